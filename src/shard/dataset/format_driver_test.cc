#include "shard/dataset/format_driver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace headrace {
namespace {

TEST(Format, NamesRoundTrip) {
  for (const Format format : {Format::kAuto, Format::kMds, Format::kWebDataset, Format::kRaw}) {
    auto parsed = parse_format(format_name(format));
    ASSERT_TRUE(parsed.has_value());
    EXPECT_EQ(*parsed, format);
  }
  for (const std::string_view name : format_names()) {
    auto parsed = parse_format(name);
    ASSERT_TRUE(parsed.has_value()) << name;
    EXPECT_EQ(format_name(*parsed), name);
  }
}

TEST(Format, NamesStandInTheOrderOfTheNumbers) {
  const std::vector<std::string_view> names = format_names();
  ASSERT_GE(names.size(), 3U);
  EXPECT_EQ(names[0], "auto");
  EXPECT_EQ(names[1], "mds");
  EXPECT_EQ(names[2], "webdataset");
}

TEST(FormatDriver, IsWholeForEveryFormat) {
  std::set<Format> ids;
  std::set<std::string_view> names;
  for (const detail::FormatDriver* driver : detail::all_formats()) {
    SCOPED_TRACE(driver->name);
    EXPECT_TRUE(ids.insert(driver->id).second);
    EXPECT_TRUE(names.insert(driver->name).second);
    EXPECT_EQ(detail::driver_of(driver->id), driver);
    EXPECT_NE(driver->make, nullptr);
    EXPECT_NE(driver->build == nullptr, driver->index_json == nullptr);
    EXPECT_TRUE(driver->looks_like != nullptr ||
                !(driver->may_be_zlib || !driver->marked_kind.empty()));
    EXPECT_EQ(driver->side_key == nullptr, driver->side_mark.empty());
    EXPECT_TRUE(driver->may_be_empty != nullptr || driver->empty_hint.empty());
  }
  EXPECT_FALSE(ids.contains(Format::kAuto) || ids.contains(Format::kSamples));
}

TEST(FormatDriver, OneTakesWhatNobodyKnows) {
  const auto formats = detail::all_formats();
  EXPECT_EQ(std::count_if(formats.begin(), formats.end(),
                          [](const detail::FormatDriver* driver) { return driver->takes_all; }),
            1);
  EXPECT_EQ(detail::fallback_format().id, Format::kRaw);
}

TEST(Format, RefusesOtherNames) {
  auto parsed = parse_format("hdf5");
  ASSERT_FALSE(parsed.has_value());
  EXPECT_EQ(parsed.error().code(), Code::kInvalidArgument);
  EXPECT_NE(parsed.error().message().find("hdf5"), std::string_view::npos);
  DatasetOptions options;
  EXPECT_EQ(set_format(options, "hdf5").code(), Code::kInvalidArgument);
}

TEST(Format, KindsAreNamesAsWell) {
  for (const std::string_view kind : format_kinds()) {
    DatasetOptions options;
    ASSERT_TRUE(set_format(options, kind).ok());
    EXPECT_NE(format_name(options.format), kind) << "two words for one thing";
    EXPECT_EQ(options.kind, kind);
    ASSERT_TRUE(set_format(options, format_name(options.format)).ok());
    EXPECT_EQ(options.kind, "");
  }
}

}  // namespace
}  // namespace headrace
