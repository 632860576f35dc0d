// A box of a row-major array is rows of bytes that lie one after the other, each at a higher offset
// than the one before: so the rows within a range of bytes are found by halving, and what is needed
// of a piece is found in one pass over its rows.
#include "checkpoint/box_plan.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace headrace::checkpoint {
namespace {

/// The rows of a box: as long as source and destination both have them in one piece.
class Rows {
 public:
  explicit Rows(const WantedBox& box) : box_(box) {
    const std::size_t dims = box.shape.size();
    strides_.resize(dims);
    std::uint64_t stride = box.element_bytes;
    for (std::size_t d = dims; d-- > 0; stride *= box.shape[d]) strides_[d] = stride;
    row_bytes_ = box.element_bytes;
    outer_dims_ = dims;
    bool is_whole = true;
    while (outer_dims_ > 0 && is_whole &&
           (box.count[outer_dims_ - 1] == 1 ||
            box.to_strides_bytes[outer_dims_ - 1] == static_cast<std::int64_t>(row_bytes_))) {
      --outer_dims_;
      row_bytes_ *= box.count[outer_dims_];
      is_whole = box.count[outer_dims_] == box.shape[outer_dims_];
    }
    row_count_ = row_bytes_ == 0 ? 0 : 1;
    for (std::size_t d = 0; d < outer_dims_; ++d) row_count_ *= box.count[d];
  }

  std::uint64_t count() const noexcept { return row_count_; }
  std::uint64_t bytes() const noexcept { return row_bytes_; }

  struct Row {
    std::uint64_t from_bytes = 0;  ///< In the piece.
    std::int64_t to_bytes = 0;     ///< From the box's first element.
  };
  Row at(std::uint64_t row) const noexcept {
    Row found;
    for (std::size_t d = box_.shape.size(); d-- > 0;) {
      std::uint64_t index = 0;
      if (d < outer_dims_) {
        index = row % box_.count[d];
        row /= box_.count[d];
      }
      found.from_bytes += (box_.start[d] + index) * strides_[d];
      found.to_bytes += static_cast<std::int64_t>(index) * box_.to_strides_bytes[d];
    }
    return found;
  }
  /// The first row that ends behind `from_bytes`.
  std::uint64_t first_behind(std::uint64_t from_bytes) const noexcept {
    std::uint64_t low = 0;
    std::uint64_t high = row_count_;
    while (low < high) {
      const std::uint64_t middle = low + (high - low) / 2;
      if (at(middle).from_bytes + row_bytes_ > from_bytes) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

 private:
  const WantedBox& box_;
  std::vector<std::uint64_t> strides_;
  std::size_t outer_dims_ = 0;
  std::uint64_t row_bytes_ = 0;
  std::uint64_t row_count_ = 0;
};

/// Calls `add` with each range of blocks that a box needs, rising, `only` left aside.
template <typename Add>
void for_each_needed(const WantedBox& box, const Add& add) {
  const Rows rows(box);
  BlockRange range;  // That was not added yet.
  for (std::uint64_t row = 0; row < rows.count(); ++row) {
    const std::uint64_t from = rows.at(row).from_bytes;
    const std::uint64_t first = from / kSumBlockBytes;
    if (first > range.end || range.end == 0) {
      if (range.end != 0) add(range);
      range.first = first;
    }
    range.end = (from + rows.bytes() - 1) / kSumBlockBytes + 1;
  }
  if (range.end != 0) add(range);
}

/// Where the blocks of a box's piece lie in the file, asked for in rising order.
class BlockOffsets {
 public:
  explicit BlockOffsets(const WantedBox& box) : box_(box), offset_bytes_(box.place.offset_bytes) {}

  /// Of the block; behind the last one: where the piece ends.
  std::uint64_t of(std::uint64_t block) noexcept {
    if (box_.stored_bytes.empty())
      return box_.place.offset_bytes + std::min(block * kSumBlockBytes, box_.place.length_bytes);
    for (; next_block_ < block; ++next_block_) offset_bytes_ += box_.stored_bytes[next_block_];
    return offset_bytes_;
  }

 private:
  const WantedBox& box_;
  std::uint64_t next_block_ = 0;
  std::uint64_t offset_bytes_;  ///< Of that, in a compressed file.
};

/// Adds the blocks that are to be read for a box, as few runs as there are.
void add_runs(std::span<const WantedBox> boxes, std::uint32_t index, std::uint64_t most_blocks,
              std::vector<BlockRun>& out) {
  const WantedBox& box = boxes[index];
  BlockOffsets offsets(box);
  const auto add = [&](BlockRange range) {
    for (; range.first < range.end; range.first += most_blocks) {
      const BlockRange some{range.first, std::min(range.first + most_blocks, range.end)};
      const std::uint64_t from = offsets.of(some.first);
      out.push_back({index, some, from, offsets.of(some.end) - from});
    }
  };
  auto only = box.only.begin();
  for_each_needed(box, [&](const BlockRange& needed) {
    if (box.only.empty()) add(needed);
    while (only != box.only.end() && only->end <= needed.first) ++only;
    for (auto each = only; each != box.only.end() && each->first < needed.end; ++each)
      add({std::max(each->first, needed.first), std::min(each->end, needed.end)});
  });
}

Status invalid(const char* why) {
  return Status(Code::kInvalidArgument, std::string("a box of a tensor: ") + why);
}

/// Whether what is said of a compressed piece's blocks can be: no block is longer than it was.
Status check_stored(const WantedBox& box, std::uint64_t blocks) {
  if (box.stored_bytes.empty()) return {};
  if (box.stored_bytes.size() != blocks)
    return invalid("its piece has another number of stored blocks");
  for (std::uint64_t i = 0; i < blocks; ++i) {
    if (box.stored_bytes[i] == 0 || box.stored_bytes[i] > block_bytes(box, i))
      return invalid("a stored block of its piece has a length that none can have");
  }
  return {};
}

}  // namespace

std::uint64_t block_bytes(const WantedBox& box, std::uint64_t block) noexcept {
  return std::min(kSumBlockBytes, box.place.length_bytes - block * kSumBlockBytes);
}

std::uint64_t stored_block_bytes(const WantedBox& box, std::uint64_t block) noexcept {
  return box.stored_bytes.empty() ? block_bytes(box, block) : box.stored_bytes[block];
}

Status check_box(const WantedBox& box) {
  const std::size_t dims = box.shape.size();
  if (box.start.size() != dims || box.count.size() != dims || box.to_strides_bytes.size() != dims)
    return invalid("as many numbers are needed as the tensor has dimensions");
  std::uint64_t bytes = box.element_bytes;
  for (std::size_t d = 0; d < dims; ++d) {
    if (box.start[d] > box.shape[d] || box.count[d] > box.shape[d] - box.start[d])
      return invalid("it is outside the piece");
    if (box.shape[d] != 0 && bytes > UINT64_MAX / box.shape[d])
      return invalid("its piece is too large");
    bytes *= box.shape[d];
  }
  if (bytes != box.place.length_bytes) return invalid("its piece has another length");
  const std::uint64_t blocks = (box.place.length_bytes + kSumBlockBytes - 1) / kSumBlockBytes;
  if (box.sums.size() != (box.has_sums ? blocks : 0))
    return invalid("its piece has another number of sums");
  HEADRACE_TRY(check_stored(box, blocks));
  std::uint64_t end = 0;
  for (const BlockRange& range : box.only) {
    if (range.first < end || range.end < range.first) return invalid("its blocks do not rise");
    end = range.end;
  }
  return {};
}

Result<std::vector<BlockRange>> needed_blocks(const WantedBox& box) {
  HEADRACE_TRY(check_box(box));
  std::vector<BlockRange> ranges;
  for_each_needed(box, [&](const BlockRange& range) { ranges.push_back(range); });
  return ranges;
}

std::vector<BoxRequest> plan_requests(std::span<const WantedBox> boxes, std::uint64_t most_bytes,
                                      std::uint64_t hole_bytes) {
  std::vector<BlockRun> runs;
  for (std::uint32_t i = 0; i < boxes.size(); ++i)
    add_runs(boxes, i, most_bytes / kSumBlockBytes, runs);
  std::ranges::sort(runs, {}, &BlockRun::offset_bytes);
  std::vector<BoxRequest> requests;
  for (const BlockRun& run : runs) {
    const std::uint64_t end = run.offset_bytes + run.length_bytes;
    if (!requests.empty()) {
      BoxRequest& last = requests.back();
      const std::uint64_t last_end = last.offset_bytes + last.length_bytes;
      const std::uint64_t joined = std::max(end, last_end) - last.offset_bytes;
      if (run.offset_bytes <= last_end + hole_bytes && joined <= most_bytes) {
        last.length_bytes = joined;
        last.runs.push_back(run);
        continue;
      }
    }
    requests.push_back({run.offset_bytes, run.length_bytes, {run}});
  }
  return requests;
}

void copy_box(const WantedBox& box, std::uint64_t from_bytes, std::span<const std::byte> bytes) {
  const Rows rows(box);
  const std::uint64_t end = from_bytes + bytes.size();
  for (std::uint64_t i = rows.first_behind(from_bytes); i < rows.count(); ++i) {
    const Rows::Row row = rows.at(i);
    if (row.from_bytes >= end) break;
    const std::uint64_t from = std::max(row.from_bytes, from_bytes);
    const std::uint64_t to = std::min(row.from_bytes + rows.bytes(), end);
    std::memcpy(box.to + row.to_bytes + (from - row.from_bytes), bytes.data() + (from - from_bytes),
                to - from);
  }
}

}  // namespace headrace::checkpoint
