#include "shard/formats/mds/mds_shard.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/endian.h"

namespace headrace::detail {

void append_mds_offsets(std::span<const std::byte> piece, std::uint64_t offset,
                        std::vector<std::uint64_t>& out) {
  // The first word of the shard is the sample count.
  for (std::size_t at = offset == 0 ? 4 : 0; at + 4 <= piece.size(); at += 4) {
    out.push_back(load_le<std::uint32_t>(piece.data() + at));
  }
}

Status check_mds_offsets(std::span<const std::uint64_t> offsets, std::uint64_t raw_bytes) {
  const std::uint64_t lowest = mds_table_bytes(offsets.size() - 1);
  if (offsets.front() < lowest) {
    return Status(Code::kCorrupt, fmt::format("samples begin at {}, inside the table of {} bytes",
                                              offsets.front(), lowest));
  }
  return check_line_offsets(offsets, raw_bytes);
}

Status check_line_offsets(std::span<const std::uint64_t> offsets, std::uint64_t raw_bytes) {
  for (std::size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] < offsets[i - 1]) {
      return Status(Code::kCorrupt, fmt::format("sample {} ends at {} before it begins at {}",
                                                i - 1, offsets[i], offsets[i - 1]));
    }
  }
  if (offsets.back() != raw_bytes) {
    return Status(Code::kCorrupt, fmt::format("samples end at {}, the shard has {} bytes",
                                              offsets.back(), raw_bytes));
  }
  return Status();
}

Result<std::span<const std::byte>> mds_sample(std::span<const std::byte> shard,
                                              std::uint64_t sample_count, std::uint64_t index) {
  if (shard.size() < mds_table_bytes(sample_count))
    return Status(Code::kCorrupt, "shard shorter than its table");
  if (load_le<std::uint32_t>(shard.data()) != sample_count) {
    return Status(Code::kCorrupt, fmt::format("shard of {} samples, the index says {}",
                                              load_le<std::uint32_t>(shard.data()), sample_count));
  }
  const std::byte* entry = shard.data() + 4 * (1 + index);
  const std::uint64_t begin = load_le<std::uint32_t>(entry);
  const std::uint64_t end = load_le<std::uint32_t>(entry + 4);
  if (begin > end || end > shard.size()) return Status(Code::kCorrupt, "offsets outside the shard");
  return shard.subspan(begin, end - begin);
}

MdsLayout::MdsLayout(const std::vector<Column>& columns) {
  for (const Column& column : columns) {
    places_.push_back({column.fixed_size_bytes, fixed_bytes_});
    fixed_bytes_ += column.fixed_size_bytes;
    if (column.fixed_size_bytes == 0) ++variable_count_;
  }
}

bool MdsLayout::cut(std::span<const std::byte> sample, std::span<ColumnBytes> out) const noexcept {
  HEADRACE_DCHECK(out.size() == places_.size());
  const std::byte* size_entry = sample.data();
  std::uint64_t at = 4 * variable_count_;
  if (at > sample.size()) return false;
  for (std::size_t c = 0; c < places_.size(); ++c) {
    std::uint64_t size = places_[c].size_bytes;
    if (size == 0) {
      size = load_le<std::uint32_t>(size_entry);
      size_entry += 4;
    }
    if (size > sample.size() - at) return false;
    out[c] = {sample.subspan(at, size), true};
    at += size;
  }
  return at == sample.size();
}

void MdsLayout::cut_fixed(const std::byte* sample, std::span<ColumnBytes> out) const noexcept {
  for (std::size_t c = 0; c < places_.size(); ++c) {
    out[c] = {std::span(sample + places_[c].offset_bytes, places_[c].size_bytes), true};
  }
}

}  // namespace headrace::detail
