#include <gtest/gtest.h>

#include "headrace/dataset.h"

namespace headrace {
namespace {

TEST(Format, NamesRoundTrip) {
  for (const Format format : {Format::kAuto, Format::kMds, Format::kWebDataset, Format::kRaw}) {
    auto parsed = parse_format(format_name(format));
    ASSERT_TRUE(parsed.has_value());
    EXPECT_EQ(*parsed, format);
  }
}

TEST(Format, RefusesOtherNames) {
  auto parsed = parse_format("parquet");
  ASSERT_FALSE(parsed.has_value());
  EXPECT_EQ(parsed.error().code(), Code::kInvalidArgument);
  EXPECT_NE(parsed.error().message().find("parquet"), std::string_view::npos);
}

}  // namespace
}  // namespace headrace
