// What is written and what is left out, seen in the directory alone.
#include "tier/extent_writer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/manual_clock.h"
#include "tier/cache_directory_fixture.h"
#include "tier/extent_file.h"

namespace headrace::tier {
namespace {

class ExtentWriterTest : public CacheDirectoryFixture {
 protected:
  void open(CacheOptions options) {
    options.free_floor_bytes = 0;
    options.clock = &clock_;
    open_directory(options);
    auto writer = ExtentWriter::create(*directory_, *evictor_, options);
    ASSERT_TRUE(writer);
    writer_ = *std::move(writer);
  }
  /// Whether it is there then, as it came.
  bool keep(const std::string& url) {
    const ExtentInfo info = info_of(url);
    const std::vector<std::byte> data(kLength, std::byte{42});
    writer_->keep(info, data, {}, Slab());
    writer_->flush();
    const Fd file = directory_->open_extent(info.name);
    std::vector<std::byte> out(kLength);
    std::uint64_t size = 0;
    return file && read_extent(file.get(), info.name, 0, out, size, nullptr).ok() && out == data &&
           size == kLength;
  }
  double metric(const std::string& name) const {
    MetricList all;
    writer_->append_metrics(all);
    for (const Metric& metric : all) {
      if (metric.name == name) return metric.value;
    }
    ADD_FAILURE() << name;
    return 0;
  }

  ManualClock clock_;
  std::unique_ptr<ExtentWriter> writer_;
};

TEST_F(ExtentWriterTest, WritesWhatItWasBrought) {
  open({.directory = place_.path()});
  EXPECT_TRUE(keep("s3://b/1"));
  EXPECT_EQ(metric("cache.written_bytes"), kLength);
  EXPECT_EQ(metric("cache.skipped_bytes"), 0);
  EXPECT_EQ(directory_->ledger().used_bytes(), file_bytes({{}, 0, kLength}));
}

TEST_F(ExtentWriterTest, WithoutMemoryItIsLeftOut) {
  open({.directory = place_.path(), .buffer_bytes = kLength});
  EXPECT_FALSE(keep("s3://b/1"));
  EXPECT_EQ(metric("cache.skipped_bytes"), kLength);
  writer_->allow_buffers(ExtentWriter::waiting_bytes_of(kLength));
  EXPECT_TRUE(keep("s3://b/2"));
}

TEST_F(ExtentWriterTest, WithoutRoomItIsLeftOut) {
  open({.directory = place_.path(), .limit_bytes = kLength});
  EXPECT_FALSE(keep("s3://b/1"));
  EXPECT_EQ(metric("cache.skipped_bytes"), kLength);
  EXPECT_EQ(directory_->ledger().used_bytes(), 0U) << "and nothing stays reserved";
}

TEST_F(ExtentWriterTest, PausesAfterAFailure) {
  open({.directory = place_.path()});
  directory_->note_failure(Status(Code::kExhausted, "no space left"));
  EXPECT_FALSE(keep("s3://b/1"));
  clock_.advance(std::chrono::seconds(6));
  EXPECT_TRUE(keep("s3://b/1"));
}

TEST_F(ExtentWriterTest, ADraftThatIsDroppedGivesItsRoomBack) {
  open({.directory = place_.path()});
  const ExtentInfo info{.name = {object_id("h:1", "s3://b/1", "e"), 0, 2 * kHeaderBytes},
                        .url = "s3://b/1",
                        .etag = "e"};
  const auto draft = writer_->begin_draft(info, kHeaderBytes);
  if (draft == nullptr) GTEST_SKIP() << "no files without a name here";
  EXPECT_EQ(directory_->ledger().used_bytes(), file_bytes(info.name));
  writer_->drop_draft(*draft);
  EXPECT_EQ(directory_->ledger().used_bytes(), 0U);
}

}  // namespace
}  // namespace headrace::tier
