#include "shard/dataset/listing.h"

#include <gtest/gtest.h>

namespace headrace::detail {
namespace {

// Every option that some builder reads, with the formats whose builders do.
TEST(ShapesIndex, KnowsEveryOptionThatABuilderReads) {
  struct Case {
    void (*set)(DatasetOptions&);
    std::vector<Format> formats;
  };
  const Case cases[] = {
      {[](DatasetOptions& o) { o.columns = {"record"}; },
       {Format::kTable, Format::kNumpy, Format::kText, Format::kTfRecord, Format::kCsv}},
      {[](DatasetOptions& o) { o.labels = "folder"; }, {Format::kRaw}},
      {[](DatasetOptions& o) { o.manifest = "metadata.csv"; }, {Format::kRaw}},
      {[](DatasetOptions& o) { o.tokens_per_sample = 7; }, {Format::kTokens, Format::kLitData}},
      {[](DatasetOptions& o) { o.token_dtype = "uint32"; }, {Format::kTokens, Format::kLitData}},
      {[](DatasetOptions& o) { o.row_groups_where = "[]"; }, {Format::kTable}},
      {[](DatasetOptions& o) { o.lenient = true; }, {Format::kWebDataset, Format::kTfRecord}}};
  for (const Case& c : cases) {
    DatasetOptions options;
    c.set(options);
    EXPECT_TRUE(shapes_index(options, Format::kAuto));
    EXPECT_NE(manifest_of({}, options), manifest_of({}, {}));
    for (int f = 1; f <= static_cast<int>(Format::kCsv); ++f) {
      const auto format = static_cast<Format>(f);
      const bool is_read = std::find(c.formats.begin(), c.formats.end(), format) != c.formats.end();
      EXPECT_EQ(shapes_index(options, format), is_read) << format_name(format);
      options.format = format;
      DatasetOptions plain;
      plain.format = format;
      EXPECT_EQ(manifest_of({}, options) != manifest_of({}, plain), is_read) << format_name(format);
    }
  }
}

TEST(ShapesIndex, HoldsForKeysWhateverTheFormat) {
  DatasetOptions options;
  EXPECT_FALSE(shapes_index(options, Format::kAuto));
  options.keys = {"a"};
  EXPECT_TRUE(shapes_index(options, Format::kMds));
}

}  // namespace
}  // namespace headrace::detail
