// A place is a list of int64: where the memory begins in its file and its length, epoch and index,
// how many samples, columns and replaced samples there are, where ids and mask begin in the memory;
// of each column where values, offsets and presence begin (-1: there are none) and the bytes of the
// values; slot and planned id of each sample that was replaced. The columns' types go ahead of it,
// once.
//
// The batch is mapped privately: what functions write to becomes a copy of theirs, page by page,
// and the other process keeps what it has. It uses the memory again as soon as it hears that the
// batch is done. What is still held then is made a copy before (keep()), and is the batch's alone.
// Otherwise the mapping stays for the next batch in this place, since touching 36 MiB anew costs
// 4 ms, and only pages that were written to are dropped.
//
// Invariant: a mapping in mappings_ is held by no batch but the last one. So end() sees by its
// owners whether that one is still there.
#include "headrace/mapped_batch.h"

#include <cstring>
#include <map>
#include <utility>

#include "mem/private_mapping.h"

namespace headrace {
namespace {

constexpr std::size_t kHeadNumbers = 9;
constexpr std::size_t kColumnNumbers = 4;
constexpr std::size_t kReplacedNumbers = 2;
constexpr std::int64_t kNone = -1;
/// Mappings that are kept; batches of a loader lie in few places, which are used in turn.
constexpr std::size_t kMostMappings = 64;

struct Head {
  std::int64_t begin, size_bytes, epoch, index, count, columns, replaced, ids, mask;
};
static_assert(sizeof(Head) == kHeadNumbers * sizeof(std::int64_t));

using SharedMapping = std::shared_ptr<const mem::PrivateMapping>;

template <class T>
std::int64_t offset_in(std::span<const std::byte> memory, std::span<T> part) noexcept {
  if (part.data() == nullptr) return kNone;
  return reinterpret_cast<const std::byte*>(part.data()) - memory.data();
}

Result<Head> head_of(std::span<const std::int64_t> place, std::size_t column_count) {
  Head head{};
  if (place.size() >= kHeadNumbers) {
    std::memcpy(&head, place.data(), sizeof head);
    const auto replaced = static_cast<std::size_t>(head.replaced);
    if (static_cast<std::size_t>(head.columns) == column_count &&
        place.size() == kHeadNumbers + column_count * kColumnNumbers + replaced * kReplacedNumbers)
      return head;
  }
  return Status(Code::kInternal, "the place of a batch is cut short, or has other columns");
}

/// A batch of another process.
class MappedBatch final : public Batch {
 public:
  MappedBatch(const BatchSchema& schema, SharedMapping mapping, const Head& head,
              std::span<const std::int64_t> place)
      : head_(head), mapping_(std::move(mapping)) {
    std::span<const std::int64_t> rest = place.subspan(kHeadNumbers);
    for (const OutputColumn& column : schema) {
      add_column(column, rest.first(kColumnNumbers));
      rest = rest.subspan(kColumnNumbers);
    }
    for (; !rest.empty(); rest = rest.subspan(kReplacedNumbers))
      replaced_.push_back({.slot = static_cast<std::uint32_t>(rest[0]), .planned_id = rest[1]});
  }

  std::uint32_t count() const noexcept override { return static_cast<std::uint32_t>(head_.count); }
  std::span<const BatchColumn> columns() const noexcept override { return columns_; }
  std::span<const std::int64_t> ids() const noexcept override {
    return {at<std::int64_t>(head_.ids), count()};
  }
  std::span<const std::uint8_t> mask() const noexcept override {
    return {at<std::uint8_t>(head_.mask), count()};
  }
  std::span<const ReplacedSample> replaced() const noexcept override { return replaced_; }
  std::uint64_t epoch() const noexcept override { return static_cast<std::uint64_t>(head_.epoch); }
  std::uint64_t index() const noexcept override { return static_cast<std::uint64_t>(head_.index); }

 private:
  void add_column(const OutputColumn& column, std::span<const std::int64_t> place) {
    BatchColumn& to = columns_.emplace_back();
    to.column = &column;
    to.values = {at<std::byte>(place[0]), static_cast<std::size_t>(place[1])};
    if (place[2] != kNone) to.offsets = {at<std::uint64_t>(place[2]), count() + std::size_t{1}};
    if (place[3] != kNone) to.present = {at<std::uint8_t>(place[3]), count()};
  }

  template <class T>
  T* at(std::int64_t offset) const noexcept {
    return reinterpret_cast<T*>(mapping_->bytes().data() + offset);
  }

  const Head head_;
  const SharedMapping mapping_;
  std::vector<BatchColumn> columns_;
  std::vector<ReplacedSample> replaced_;
};

class Mapper final : public BatchMapper {
 public:
  explicit Mapper(BatchSchema schema) : schema_(std::move(schema)) {}

  Result<std::unique_ptr<Batch>> open(int fd, std::span<const std::int64_t> place) override {
    last_begin_ = kNone;
    HEADRACE_TRY_ASSIGN(const Head head, head_of(place, schema_.size()));
    HEADRACE_TRY_ASSIGN(auto mapping, mapping_for(fd, head));
    last_begin_ = head.begin;
    return std::unique_ptr<Batch>(
        std::make_unique<MappedBatch>(schema_, std::move(mapping), head, place));
  }

  void end() override {
    const auto at = mappings_.find(std::exchange(last_begin_, kNone));
    if (at == mappings_.end()) return;
    const bool is_held = at->second.use_count() > 1;
    if (is_held) at->second->keep();
    if (is_held || !page_map_.drop_written(at->second->bytes())) mappings_.erase(at);
  }

  const BatchSchema& schema() const noexcept override { return schema_; }

 private:
  Result<SharedMapping> mapping_for(int fd, const Head& head) {
    const auto size_bytes = static_cast<std::size_t>(head.size_bytes);
    if (mappings_.size() >= kMostMappings) mappings_.clear();
    SharedMapping& found = mappings_[head.begin];
    if (found != nullptr && found->bytes().size() >= size_bytes) return found;
    mappings_.erase(head.begin);
    HEADRACE_TRY_ASSIGN(auto made, mem::PrivateMapping::create(
                                       fd, static_cast<std::uint64_t>(head.begin), size_bytes));
    return mappings_[head.begin] = std::move(made);
  }

  const BatchSchema schema_;
  const mem::PageMap page_map_;
  std::map<std::int64_t, SharedMapping> mappings_;  ///< By where they begin.
  std::int64_t last_begin_ = kNone;
};

}  // namespace

std::unique_ptr<BatchMapper> BatchMapper::create(BatchSchema schema) {
  return std::make_unique<Mapper>(std::move(schema));
}

std::vector<std::int64_t> place_of(const Batch& batch) {
  const std::optional<BatchMemory> memory = batch.shared();
  if (!memory) return {};
  const std::span<const std::byte> bytes = memory->bytes;
  const auto columns = batch.columns();
  std::vector<std::int64_t> numbers{static_cast<std::int64_t>(memory->place.offset),
                                    static_cast<std::int64_t>(bytes.size()),
                                    static_cast<std::int64_t>(batch.epoch()),
                                    static_cast<std::int64_t>(batch.index()),
                                    static_cast<std::int64_t>(batch.count()),
                                    static_cast<std::int64_t>(columns.size()),
                                    static_cast<std::int64_t>(batch.replaced().size()),
                                    offset_in(bytes, batch.ids()),
                                    offset_in(bytes, batch.mask())};
  for (const BatchColumn& column : columns) {
    numbers.push_back(offset_in(bytes, column.values));
    numbers.push_back(static_cast<std::int64_t>(column.values.size()));
    numbers.push_back(offset_in(bytes, column.offsets));
    numbers.push_back(offset_in(bytes, column.present));
  }
  for (const ReplacedSample& sample : batch.replaced()) {
    numbers.push_back(sample.slot);
    numbers.push_back(sample.planned_id);
  }
  return numbers;
}

}  // namespace headrace
