// Each part is put together in memory of the pool from wherever its bytes are, summed in passing,
// and handed to a sink; the sum of the file is that of its parts, whoever wrote them.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/crc32c.h"
#include "checkpoint/part_sink.h"
#include "checkpoint/written_check.h"
#include "headrace/checkpoint.h"

namespace headrace::checkpoint {
namespace {

constexpr std::uint64_t kPageBytes = 4096;

class Shared final : public SharedFile {
 public:
  Shared(std::shared_ptr<StoreClient> client, SharedOptions options)
      : client_(std::move(client)), options_(std::move(options)), sums_(part_count()) {}

  Status start() {
    SinkOptions sink{.key = options_.key,
                     .size_bytes = options_.size_bytes,
                     .part_bytes = options_.part_bytes,
                     .part_count = part_count(),
                     .parts_in_flight = 16,
                     .joins = options_.joins};
    HEADRACE_TRY_ASSIGN(sink_, make_sink(client_, std::move(sink)));
    return {};
  }

  std::string token() const override { return sink_->token(); }

  Status put(std::uint32_t part, std::span<const PartRun> runs, const Pause& pause) override {
    HEADRACE_TRY(check(part, runs));
    HEADRACE_TRY_ASSIGN(Slab slab, take_memory(length_of(part), pause));
    std::byte* to = slab.bytes().data();
    for (const PartRun& run : runs) {
      std::memcpy(to, run.from, run.length_bytes);
      to += run.length_bytes;
    }
    sums_[part] = crc32c({slab.bytes().data(), length_of(part)});
    sink_->put(part, std::move(slab), length_of(part));
    ++put_count_;
    return {};
  }

  Result<std::vector<SharedPart>> settle(const Pause& pause) override {
    HEADRACE_TRY_ASSIGN(const auto parts, sink_->settle(put_count_, pause));
    std::vector<SharedPart> out;
    for (const UploadedPart& part : parts) {
      if (part.part_number != 0) out.push_back({part, sums_[part.part_number - 1]});
    }
    return out;
  }

  Result<std::string> publish(std::span<const SharedPart> parts, const Pause& pause) override {
    std::vector<UploadedPart> uploaded(part_count());
    for (const SharedPart& each : parts) {
      const std::uint32_t number = each.part.part_number;
      if (number == 0 || number > part_count() || uploaded[number - 1].part_number != 0)
        return Status(Code::kInternal, options_.key + ": a part is there twice, or is none");
      uploaded[number - 1] = each.part;
      sums_[number - 1] = each.crc32c;
    }
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < part_count(); ++i) {
      if (uploaded[i].part_number == 0 || uploaded[i].size_bytes != length_of(i))
        return Status(Code::kInternal,
                      options_.key + ": nobody has written all of part " + std::to_string(i));
      sum = crc32c_combine(sum, sums_[i], length_of(i));
    }
    HEADRACE_TRY_ASSIGN(std::string etag, sink_->publish(uploaded));
    HEADRACE_TRY(check_written(*client_, options_.key, etag, options_.size_bytes, sum,
                               options_.check, pause));
    return etag;
  }

 private:
  std::uint32_t part_count() const noexcept {
    return static_cast<std::uint32_t>((options_.size_bytes + options_.part_bytes - 1) /
                                      options_.part_bytes);
  }
  std::uint64_t length_of(std::uint32_t part) const noexcept {
    return std::min(options_.part_bytes, options_.size_bytes - part * options_.part_bytes);
  }

  Status check(std::uint32_t part, std::span<const PartRun> runs) const {
    std::uint64_t at = 0;
    for (const PartRun& run : runs) {
      if (run.to_bytes != at) return Status(Code::kInternal, options_.key + ": a hole in a part");
      at += run.length_bytes;
    }
    if (part < part_count() && at == length_of(part)) return {};
    return Status(Code::kInternal, options_.key + ": a part has another length");
  }

  Result<Slab> take_memory(std::uint64_t length_bytes, const Pause& pause) {
    while (true) {
      HEADRACE_TRY(sink_->failure());
      auto slab = client_->pool()->acquire(PartSink::slab_bytes(length_bytes),
                                           system_clock().now() + kPauseSlice);
      if (slab || slab.error().code() != Code::kDeadline) return slab;
      if (pause) pause();
      HEADRACE_TRY(client_->why({}));
    }
  }

  const std::shared_ptr<StoreClient> client_;
  const SharedOptions options_;
  std::vector<std::uint32_t> sums_;  ///< Of the parts.
  std::uint32_t put_count_ = 0;
  std::unique_ptr<PartSink> sink_;  // Last: its threads hold slabs of the client.
};

}  // namespace

Result<std::unique_ptr<SharedFile>> SharedFile::open(std::shared_ptr<StoreClient> client,
                                                     SharedOptions options) {
  if (options.size_bytes == 0 || options.part_bytes == 0 || options.part_bytes % kPageBytes != 0 ||
      (options.size_bytes - 1) / options.part_bytes >= kMostParts) {
    return Status(Code::kInvalidArgument, options.key +
                                              ": parts must be whole pages, and at most 10,000 (" +
                                              std::to_string(options.part_bytes) + " bytes of " +
                                              std::to_string(options.size_bytes) + ")");
  }
  const std::uint64_t least = std::min(options.part_bytes, options.size_bytes);
  if (SlabPool::charged_bytes(PartSink::slab_bytes(least)) > client->pool()->limit_bytes()) {
    return Status(Code::kInvalidArgument,
                  "a part of " + std::to_string(least) + " bytes does not fit the memory (" +
                      std::to_string(client->pool()->limit_bytes()) + " bytes): raise memory=");
  }
  auto file = std::make_unique<Shared>(std::move(client), std::move(options));
  HEADRACE_TRY(file->start());
  return std::unique_ptr<SharedFile>(std::move(file));
}

}  // namespace headrace::checkpoint
