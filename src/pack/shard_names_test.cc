#include "pack/shard_names.h"

#include <gtest/gtest.h>

namespace headrace::pack_detail {
namespace {

TEST(ShardNames, AreThoseOfEachFormatsOwnWriter) {
  EXPECT_EQ(shard_names("mds", false).name_of(42), "shard.00042.mds");
  EXPECT_EQ(shard_names("mds", true).name_of(1234567), "shard.1234567.mds.zstd");
  EXPECT_EQ(shard_names("webdataset", false).name_of(42), "shard-000042.tar");
  EXPECT_EQ(shard_names("webdataset", true).name_of(0), "shard-000000.tar.gz");
  EXPECT_EQ(shard_names("tfrecord", false).name_of(42), "shard-000042.tfrecord");
  EXPECT_EQ(shard_names("tfrecord", true).name_of(42), "shard-000042.tfrecord.gz");
  EXPECT_EQ(shard_names("litdata", false).name_of(42), "chunk-0-42.bin");
  EXPECT_EQ(shard_names("litdata", true).name_of(0), "chunk-0-0.zstd.bin");
  EXPECT_EQ(shard_names("parquet", true).name_of(42), "part-00042.parquet");
}

TEST(ShardNames, AreReadBack) {
  for (const char* format : {"mds", "webdataset", "tfrecord", "litdata", "parquet"}) {
    for (const bool is_compressed : {false, true}) {
      const ShardNames names = shard_names(format, is_compressed);
      for (const std::uint64_t shard : {0ULL, 7ULL, 99999ULL, 100000ULL, 12345678ULL})
        EXPECT_EQ(names.shard_of(names.name_of(shard)), shard) << format;
    }
  }
}

TEST(ShardNames, OfNobody) {
  const ShardNames names = shard_names("mds", false);
  for (const char* name : {"", "shard.", ".mds", "shard..mds", "shard.00001.mds.zstd",
                           "shard.1.mds", "shard.000001.mds", "shard.-0001.mds", "shard.note",
                           "other.00001.mds", "shard.99999999999999999999.mds"})
    EXPECT_EQ(names.shard_of(name), std::nullopt) << name;
}

}  // namespace
}  // namespace headrace::pack_detail
