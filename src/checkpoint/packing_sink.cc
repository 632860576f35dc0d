// Invariants:
// - What is left of a block is never longer than it was, so all of a part fits where it lay.
// - Parts are taken on in order, by one thread at a time: what belongs to that one needs no lock.
// - The open part has the first bytes of the file that were not passed on, and is shorter than
//   part_bytes_: only the last one of the file is passed on so.
#include "checkpoint/packing_sink.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/crc32c.h"
#include "checkpoint/block_packer.h"
#include "checkpoint/wait_slice.h"
#include "seal/seal_header.h"

namespace headrace::checkpoint {
namespace {

std::uint64_t block_count(std::uint64_t length_bytes) {
  return (length_bytes + kSumBlockBytes - 1) / kSumBlockBytes;
}

}  // namespace

PackingSink::PackingSink(std::unique_ptr<PartSink> to, const DataLayout& layout, const PartMap& map,
                         std::uint64_t part_bytes, std::uint32_t threads)
    : to_(std::move(to)),
      map_(map),
      part_bytes_(part_bytes),
      places_(layout.places()),
      tags_(layout.pieces().size()),
      packers_(std::max(threads, 1U), map.count()) {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    planes_.push_back(plane_count(layout.pieces()[i].dtype));
    stored_bytes_.emplace_back(block_count(places_[i].length_bytes));
    if (layout.key() != nullptr) tags_[i].resize(stored_bytes_[i].size());
    places_[i].offset_bytes = layout.header().size();  // What has no bytes stays there.
  }
  if (const SealKey* key = layout.key()) {
    const auto salt = seal::read_seal_header(layout.header(), key);
    HEADRACE_CHECK(salt.has_value());
    sealer_.emplace(*key, *salt);
  }
}

PackingSink::~PackingSink() { is_given_up_ = true; }

void PackingSink::put(std::uint32_t index, Slab slab, std::uint64_t length_bytes) {
  {
    MutexLock lock(mutex_);
    ++put_count_;
  }
  auto part = std::make_shared<Slab>(std::move(slab));
  packers_.submit([this, index, length_bytes, part] {
    if (is_given_up_) return;
    const std::uint64_t left_bytes = pack(index, part->bytes().first(length_bytes));
    take_on(index, {std::move(*part), left_bytes});
  });
}

std::uint32_t PackingSink::pending() const {
  MutexLock lock(mutex_);
  return put_count_ - next_ + to_->pending();
}

std::uint64_t PackingSink::pack(std::uint32_t part, std::span<std::byte> bytes) {
  std::array<std::byte, kPackRoomBytes> room;
  std::byte* to = bytes.data();
  const auto keep = [&to](const std::byte* from, std::size_t count) {
    if (from != to) std::memmove(to, from, count);
    to += count;
  };
  for (const Slice& slice : map_.slices(part)) {
    const auto all = bytes.subspan(slice.at_bytes, slice.length_bytes);
    if (slice.piece == Slice::kHeader) {
      keep(all.data(), all.size());
      continue;
    }
    for (std::uint64_t at = 0; at < all.size(); at += kSumBlockBytes) {
      const auto block = all.subspan(at, std::min(kSumBlockBytes, all.size() - at));
      const std::size_t packed = pack_block(block, planes_[slice.piece], room);
      const std::size_t count = packed == 0 ? block.size() : packed;
      keep(packed == 0 ? block.data() : room.data(), count);
      stored_bytes_[slice.piece][(slice.from_bytes + at) / kSumBlockBytes] =
          static_cast<std::uint16_t>(count);
    }
  }
  return static_cast<std::uint64_t>(to - bytes.data());
}

void PackingSink::take_on(std::uint32_t part, Packed packed) {
  MutexLock lock(mutex_);
  waiting_.emplace(part, std::move(packed));
  if (is_taking_on_) return;
  is_taking_on_ = true;
  while (!waiting_.empty() && waiting_.begin()->first == next_) {
    auto first = waiting_.extract(waiting_.begin());
    lock.unlock();
    append(first.key(), std::move(first.mapped()));
    lock.lock();
    ++next_;
    changed_.notify_all();
  }
  is_taking_on_ = false;
}

void PackingSink::append(std::uint32_t part, Packed packed) {
  const auto bytes = packed.slab.bytes().first(packed.length_bytes);
  seal_blocks(part, bytes.data());
  crc32c_ = crc32c(bytes, crc32c_);
  const std::uint64_t fits_bytes =
      open_.slab ? std::min(part_bytes_ - open_.length_bytes, packed.length_bytes) : 0;
  if (open_.slab) {
    std::memcpy(open_.slab.bytes().data() + open_.length_bytes, bytes.data(), fits_bytes);
    open_.length_bytes += fits_bytes;
    if (open_.length_bytes == part_bytes_) pass_on();
  }
  if (fits_bytes == packed.length_bytes) return;
  packed.length_bytes -= fits_bytes;
  std::memmove(bytes.data(), bytes.data() + fits_bytes, packed.length_bytes);
  open_ = std::move(packed);
  if (open_.length_bytes == part_bytes_) pass_on();
}

/// Places the blocks of a part, which begins behind all that was taken on, and encrypts them where
/// they are.
void PackingSink::seal_blocks(std::uint32_t part, std::byte* bytes) {
  for (const Slice& slice : map_.slices(part)) {
    if (slice.piece == Slice::kHeader) {
      bytes += slice.length_bytes;
      size_bytes_ += slice.length_bytes;
      continue;
    }
    const std::uint64_t first = slice.from_bytes / kSumBlockBytes;
    if (first == 0) places_[slice.piece].offset_bytes = size_bytes_;
    for (std::uint64_t block = first; block < first + block_count(slice.length_bytes); ++block) {
      const std::span stored(bytes, stored_bytes_[slice.piece][block]);
      if (sealer_) sealer_->seal(size_bytes_, stored, stored, tags_[slice.piece][block]);
      bytes += stored.size();
      size_bytes_ += stored.size();
    }
  }
}

void PackingSink::pass_on() {
  // A file is written in whole pages, and then cut off: nothing that lay in memory goes there.
  const auto rest = open_.slab.bytes().subspan(open_.length_bytes);
  std::memset(rest.data(), 0, std::min<std::size_t>(rest.size(), slab_bytes(1)));
  to_->put(made_count_++, std::move(open_.slab), open_.length_bytes);
  open_ = {};
}

Result<std::vector<UploadedPart>> PackingSink::settle(std::uint32_t count, const Pause& pause) {
  {
    MutexLock lock(mutex_);
    while (next_ < count) {
      HEADRACE_TRY(failure());
      wait_slice(lock, changed_, pause);
    }
  }
  if (open_.slab) pass_on();
  HEADRACE_TRY_ASSIGN(auto parts, to_->settle(made_count_, pause));
  parts.resize(made_count_);
  return parts;
}

void PackingSink::describe(DataFile& file) {
  file.size_bytes = size_bytes_;
  file.crc32c = crc32c_;
  file.places = std::move(places_);
  file.stored_bytes = std::move(stored_bytes_);
  file.tags = std::move(tags_);
}

}  // namespace headrace::checkpoint
