#include "read/ready_block.h"

#include <algorithm>
#include <cstring>

#include "read/request_plan.h"

namespace headrace::read {
namespace {

std::size_t extent_at(std::span<const Extent> extents, std::uint64_t target_offset_bytes) noexcept {
  const auto found = std::find_if(extents.begin(), extents.end(), [&](const Extent& extent) {
    return target_offset_bytes >= extent.target_offset_bytes &&
           target_offset_bytes - extent.target_offset_bytes < extent.length_bytes;
  });
  return static_cast<std::size_t>(found - extents.begin());
}

/// Requests and what they are compared with; by tag first those for sums, then the reads.
struct Reading {
  std::vector<Extent> requests;
  std::vector<CutObject> objects;
  std::size_t head_count = 0;

  const Extent& extent_of(std::uint64_t tag) const noexcept {
    return tag < head_count ? objects[tag].extent : requests[tag - head_count];
  }
};

void start(RangeFetcher& fetcher, const Reading& reading, bool is_fresh) {
  for (std::size_t tag = 0; tag < reading.head_count + reading.requests.size(); ++tag) {
    const Extent& extent = reading.extent_of(tag);
    const bool is_head = tag < reading.head_count;
    fetcher.start({.key = extent.key,
                   .etag = extent.etag,
                   .offset_bytes = is_head ? 0 : extent.offset_bytes,
                   .length_bytes = is_head ? 0 : extent.length_bytes,
                   .is_fresh = is_fresh,
                   .is_head = is_head,
                   .tag = tag});
  }
}

/// Takes all that was started. `failed`: the tag of the error.
Status take_all(RangeFetcher& fetcher, Reading& reading, std::span<std::byte> target,
                std::uint64_t& failed) {
  while (fetcher.pending() > 0) {
    auto data = fetcher.next(&failed);
    if (!data && failed < reading.head_count) {
      HEADRACE_TRY(take_head(reading.objects[failed], std::move(data).error(), {}));
      continue;
    }
    if (!data) return std::move(data).error();
    if (data->tag < reading.head_count) {
      reading.objects[data->tag].sum = data->object_checksum;
      continue;
    }
    const Extent& extent = reading.extent_of(data->tag);
    std::memcpy(target.data() + extent.target_offset_bytes, data->bytes().data(),
                data->length_bytes);
    if (reading.head_count == 0) take_get(reading.objects, extent, data->object_checksum);
  }
  return {};
}

}  // namespace

Status fetch_extents(RangeFetcher& fetcher, std::span<const Extent> extents,
                     std::uint64_t most_bytes, bool is_fresh, std::span<std::byte> target,
                     std::size_t* failed) {
  const CutRule rule = cut_rule(fetcher.store().traits(), most_bytes);
  Reading reading;
  reading.requests.assign(extents.begin(), extents.end());
  cut_requests(rule, reading.requests, reading.objects);
  if (rule.sums == ObjectSums::kHead) reading.head_count = reading.objects.size();
  for (SecondLook look;; is_fresh = true) {
    start(fetcher, reading, is_fresh);
    std::uint64_t tag = 0;
    Status status = take_all(fetcher, reading, target, tag);
    if (!status.ok()) {
      if (failed != nullptr)
        *failed = extent_at(extents, reading.extent_of(tag).target_offset_bytes);
      return status;
    }
    const auto wrong =
        std::find_if(reading.objects.begin(), reading.objects.end(), [&](const CutObject& object) {
          status = check_objects(fetcher.store(), {&object, 1}, target);
          return !status.ok();
        });
    if (wrong == reading.objects.end()) return {};
    if (failed != nullptr) *failed = extent_at(extents, wrong->extent.target_offset_bytes);
    switch (look.take(SecondLook::digest_of(target))) {
      case SecondLook::Verdict::kReadAgain:
        break;
      case SecondLook::Verdict::kData:
        return status;
      case SecondLook::Verdict::kNeverSame:
        return SecondLook::never_same(status);
    }
  }
}

Status ExtentReader::read(std::span<const Extent> extents, bool is_fresh,
                          std::span<std::byte> target, std::size_t* failed) {
  if (!fetcher_) {
    HEADRACE_TRY_ASSIGN(fetcher_, RangeFetcher::create(store_, pool_, {.call = call_}));
  }
  Status status = fetch_extents(*fetcher_, extents, most_bytes_, is_fresh, target, failed);
  // Reads may be under way that nobody will take.
  if (!status.ok()) fetcher_.reset();
  return status;
}

Result<std::shared_ptr<const UnpackedBlock>> make_ready(const Dataset& dataset, std::uint32_t block,
                                                        std::span<const std::byte> stored,
                                                        std::span<std::byte> raw,
                                                        SlabArena* arena) {
  if (dataset.is_unpacked(block)) return dataset.unpack(block, stored, *arena);
  HEADRACE_TRY(dataset.decompress(block, stored, raw.first(dataset.block(block).raw_bytes)));
  return std::shared_ptr<const UnpackedBlock>();
}

BlockBytes ready_bytes(const Dataset& dataset, std::uint32_t block, std::span<const std::byte> raw,
                       const UnpackedBlock* unpacked) {
  const Block info = dataset.block(block);
  BlockBytes bytes{.block = block, .begin = 0, .end = info.sample_count, .bytes = {}};
  bytes.unpacked = unpacked;
  if (unpacked == nullptr) bytes.bytes = raw.first(info.raw_bytes);
  return bytes;
}

}  // namespace headrace::read
