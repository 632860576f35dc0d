// What a scan found in a file, as it is kept until the index stands.
#include <gtest/gtest.h>

#include "shard/scan/scan_files.h"

namespace headrace::detail {
namespace {

FileSamples samples(bool has_gaps, std::uint64_t cut_bytes) {
  return {.bounds = {0, 100, 100, 70'000},
          .has_gaps = has_gaps,
          .facts = "facts",
          .cut_bytes = cut_bytes};
}

TEST(ScannedFile, IsReadAsItWasKept) {
  for (const bool has_gaps : {false, true}) {
    for (const std::uint64_t cut_bytes : {0U, 1U, 70'000U}) {
      const std::string kept = scanned_to_bytes(
          samples(has_gaps, cut_bytes), {.compression = Compression::kGzip, .raw_bytes = 9});
      auto file = parse_scanned(kept);
      ASSERT_TRUE(file.has_value());
      EXPECT_EQ(file->samples.bounds, samples(has_gaps, 0).bounds);
      EXPECT_EQ(file->samples.has_gaps, has_gaps);
      EXPECT_EQ(file->samples.cut_bytes, cut_bytes);
      EXPECT_EQ(file->samples.facts, "facts");
      EXPECT_EQ(file->form.compression, Compression::kGzip);
      EXPECT_EQ(file->form.raw_bytes, 9U);
    }
  }
}

TEST(ScannedFile, IsRefusedWhenItIsCutOff) {
  const std::string kept =
      scanned_to_bytes(samples(true, 5), {.compression = Compression::kNone, .raw_bytes = 0});
  for (std::size_t length = 0; length < kept.size(); ++length)
    EXPECT_FALSE(parse_scanned(std::string_view(kept).substr(0, length)).has_value()) << length;
}

}  // namespace
}  // namespace headrace::detail
