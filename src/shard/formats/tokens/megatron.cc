// Layout of an index of version 1, little-endian: magic (9 bytes), version (u64), dtype code (u8),
// number of sequences (u64), number of document entries (u64); then, one a sequence, lengths (i32)
// and byte offsets (i64); then the document entries (i64), each the number of the sequence at
// which a document begins, the last one the end.
//
// Counts come from the file, so they are divided into the room there is before anything is
// allocated or read by them. Offsets are not taken on trust either: they must be the sums of the
// lengths, and the last must meet the end of the .bin. Megatron itself writes them so; a file in
// which they differ was cut off or belongs to another .bin, and its samples would be tokens of
// somebody else.
#include "shard/formats/tokens/megatron.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "base/endian.h"

namespace headrace::detail {
namespace {

constexpr std::string_view kFairseqMagic{"TNTIDX\0\0", 8};

struct Dtype {
  std::string_view name;
  std::uint64_t size_bytes;
};
// By code - 1.
constexpr std::array<Dtype, 8> kDtypes{{{"uint8", 1},
                                        {"int8", 1},
                                        {"int16", 2},
                                        {"int32", 4},
                                        {"int64", 8},
                                        {"float64", 8},
                                        {"float32", 4},
                                        {"uint16", 2}}};

bool begins_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

Status corrupt(std::string what) { return Status(Code::kCorrupt, std::move(what)); }

// Offsets of sequences, and the end of the last.
Result<std::vector<std::uint64_t>> sequence_bounds(const MegatronHead& head,
                                                   std::span<const std::byte> tables,
                                                   std::uint64_t bin_bytes) {
  const std::byte* lengths = tables.data();
  const std::byte* pointers = lengths + 4 * head.sequence_count;
  std::vector<std::uint64_t> bounds;
  bounds.reserve(head.sequence_count + 1);
  std::uint64_t at = 0;
  for (std::uint64_t i = 0; i < head.sequence_count; ++i) {
    const auto length = load_le<std::int32_t>(lengths + 4 * i);
    if (length < 0) return corrupt(fmt::format("sequence {} has {} tokens", i, length));
    if (load_le<std::uint64_t>(pointers + 8 * i) != at)
      return corrupt(fmt::format("sequence {} does not follow the one before it", i));
    bounds.push_back(at);
    // Below 2^63 before, and a length adds less than 2^34.
    at += static_cast<std::uint64_t>(length) * head.token_bytes;
    if (at > bin_bytes) {
      return corrupt(fmt::format("sequence {} ends at byte {}, its .bin has {}", i, at, bin_bytes));
    }
  }
  if (at != bin_bytes)
    return corrupt(fmt::format("sequences end at byte {}, the .bin has {}", at, bin_bytes));
  bounds.push_back(at);
  return bounds;
}

// Sequence numbers at which documents begin, and their end; empty when they leave sequences out.
Result<std::vector<std::uint64_t>> document_starts(const MegatronHead& head,
                                                   std::span<const std::byte> table) {
  std::vector<std::uint64_t> starts;
  if (head.document_count < 2) return starts;
  std::uint64_t low = 0;
  for (std::uint64_t i = 0; i < head.document_count; ++i) {
    const auto start = load_le<std::uint64_t>(table.data() + 8 * i);
    if (start < low || start > head.sequence_count) {
      return corrupt(
          fmt::format("document {} begins at sequence {} of {}", i, start, head.sequence_count));
    }
    starts.push_back(start);
    low = start;
  }
  // A table that leaves sequences out would lose their tokens: sequences are the samples then.
  if (starts.front() != 0 || starts.back() != head.sequence_count) starts.clear();
  return starts;
}

}  // namespace

Result<MegatronHead> parse_megatron_head(std::span<const std::byte> idx) {
  if (begins_with(idx, kFairseqMagic)) {
    return Status(Code::kUnsupported,
                  "index of the old fairseq layout (TNTIDX); write the data anew as an "
                  "IndexedDataset of Megatron");
  }
  if (idx.size() < kMegatronHeadBytes || !begins_with(idx, kMegatronMagic))
    return corrupt("does not begin as a Megatron index (MMIDIDX)");
  const auto version = load_le<std::uint64_t>(idx.data() + 9);
  if (version != 1) {
    return Status(Code::kUnsupported,
                  fmt::format("Megatron index of version {}, only 1 is read", version));
  }
  const auto code = std::to_integer<std::size_t>(idx[17]);
  if (code == 0 || code > kDtypes.size()) return corrupt(fmt::format("no dtype has code {}", code));
  return MegatronHead{.dtype = kDtypes[code - 1].name,
                      .token_bytes = kDtypes[code - 1].size_bytes,
                      .sequence_count = load_le<std::uint64_t>(idx.data() + 18),
                      .document_count = load_le<std::uint64_t>(idx.data() + 26)};
}

Result<std::vector<std::uint64_t>> parse_megatron_bounds(std::span<const std::byte> idx,
                                                         std::uint64_t bin_bytes) {
  HEADRACE_TRY_ASSIGN(const MegatronHead head, parse_megatron_head(idx));
  const std::uint64_t room = idx.size() - kMegatronHeadBytes;
  if (head.sequence_count > room / 12 ||
      head.document_count > (room - 12 * head.sequence_count) / 8) {
    return corrupt(fmt::format("{} sequences and {} documents do not fit its {} bytes",
                               head.sequence_count, head.document_count, idx.size()));
  }
  const auto tables = idx.subspan(kMegatronHeadBytes);
  HEADRACE_TRY_ASSIGN(auto bounds, sequence_bounds(head, tables, bin_bytes));
  HEADRACE_TRY_ASSIGN(auto starts, document_starts(head, tables.subspan(12 * head.sequence_count)));
  if (starts.empty()) return bounds;
  for (std::uint64_t& start : starts) start = bounds[start];
  return starts;
}

}  // namespace headrace::detail
