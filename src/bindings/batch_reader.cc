// A place is a list of int64: where the memory begins in its file and its length, epoch and index,
// how many samples, columns and replaced samples there are, where ids and mask begin in the memory;
// of each column where values, offsets and presence begin (-1: there are none) and the bytes of the
// values; slot and planned id of each sample that was replaced. The columns' types go ahead of it,
// once.
//
// The batch is mapped privately: what functions write to becomes a copy of theirs, page by page,
// and the other process keeps what it has. It uses the memory again as soon as it hears that the
// batch is done. What is still held then is made a copy before (keep()). Otherwise the mapping
// stays for the next batch in this place, since touching 36 MiB anew costs 4 ms, and only pages
// that were written to are dropped: /proc/self/pagemap tells which those are, in a third of a
// millisecond.
#include "batch_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "errors.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace headrace {
namespace {

constexpr std::size_t kHeadNumbers = 9;
constexpr std::size_t kColumnNumbers = 4;
constexpr std::size_t kReplacedNumbers = 2;
constexpr std::int64_t kNone = -1;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
constexpr std::size_t kPageBytes = 4096;
/// Mappings that are kept; batches of a loader lie in few places, which are used in turn.
constexpr std::size_t kMostMappings = 64;

struct Head {
  std::int64_t begin, size_bytes, epoch, index, count, columns, replaced, ids, mask;
};
static_assert(sizeof(Head) == kHeadNumbers * sizeof(std::int64_t));

template <class T>
std::int64_t offset_in(std::span<const std::byte> memory, std::span<T> part) noexcept {
  if (part.data() == nullptr) return kNone;
  return reinterpret_cast<const std::byte*>(part.data()) - memory.data();
}

/// What the kernel says of this process's pages.
class PageMap {
 public:
  PageMap() : fd_(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)) {}
  PageMap(const PageMap&) = delete;
  PageMap& operator=(const PageMap&) = delete;
  ~PageMap() {
    if (fd_ >= 0) ::close(fd_);
  }
  /// Of private pages of a file drops those that were written to: reading them gives the file's
  /// bytes again. False where the kernel does not tell.
  bool drop_written(std::span<std::byte> bytes) const noexcept {
    std::array<std::uint64_t, 4096> pages;
    const std::size_t count = (bytes.size() + kPageBytes - 1) / kPageBytes;
    for (std::size_t done = 0; done < count;) {
      const std::size_t part = std::min(count - done, pages.size());
      std::byte* const at = bytes.data() + done * kPageBytes;
      if (!read(at, std::span(pages).first(part))) return false;
      if (!drop_written(at, std::span(pages).first(part))) return false;
      done += part;
    }
    return true;
  }

 private:
  static bool is_written(std::uint64_t page) noexcept {
    constexpr std::uint64_t kPresent = std::uint64_t{1} << 63;
    constexpr std::uint64_t kSwapped = std::uint64_t{1} << 62;
    constexpr std::uint64_t kOfFile = std::uint64_t{1} << 61;
    return (page & (kPresent | kSwapped)) != 0 && (page & kOfFile) == 0;
  }
  bool read(const std::byte* at, std::span<std::uint64_t> pages) const noexcept {
    const auto offset = reinterpret_cast<std::uintptr_t>(at) / kPageBytes * sizeof(std::uint64_t);
    const auto got = ::pread(fd_, pages.data(), pages.size_bytes(), static_cast<off_t>(offset));
    return got == static_cast<ssize_t>(pages.size_bytes());
  }
  static bool drop_written(std::byte* at, std::span<const std::uint64_t> pages) noexcept {
    for (auto first = pages.begin();;) {
      first = std::find_if(first, pages.end(), is_written);
      if (first == pages.end()) return true;
      const auto last = std::find_if_not(first, pages.end(), is_written);
      const auto size = static_cast<std::size_t>(last - first) * kPageBytes;
      if (::madvise(at + (first - pages.begin()) * std::ptrdiff_t{kPageBytes}, size,
                    MADV_DONTNEED) != 0)
        return false;
      first = last;
    }
  }

  const int fd_;
};

/// Private pages of a part of a file. Large ones begin where a huge page could.
class Mapping {
 public:
  Mapping(int fd, std::uint64_t begin, std::size_t size_bytes) : size_bytes_(size_bytes) {
    const auto map = [&](void* at, int flags) {
      return ::mmap(at, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | flags, fd,
                    static_cast<off_t>(begin));
    };
    if (size_bytes < kHugePageBytes) {
      at_ = map(nullptr, 0);
    } else {
      room_bytes_ = size_bytes + kHugePageBytes;
      room_ = ::mmap(nullptr, room_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                     -1, 0);
      if (room_ == MAP_FAILED) fail();
      const auto address = reinterpret_cast<std::uintptr_t>(room_);
      const std::size_t lead = (kHugePageBytes - address % kHugePageBytes) % kHugePageBytes;
      at_ = map(static_cast<std::byte*>(room_) + lead, MAP_FIXED);
    }
    if (at_ == MAP_FAILED) fail();
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (room_ != nullptr)
      ::munmap(room_, room_bytes_);
    else
      ::munmap(at_, size_bytes_);
  }
  std::span<std::byte> bytes() const noexcept {
    return {static_cast<std::byte*>(at_), size_bytes_};
  }
  /// From now on nothing that the other process writes is seen here. \pre it writes nothing yet.
  void keep() const {
    if (::madvise(at_, size_bytes_, MADV_POPULATE_WRITE) == 0) return;
    // Before Linux 5.14: a write to each page makes it a copy.
    for (std::size_t i = 0; i < size_bytes_; i += kPageBytes) {
      volatile std::byte& first = bytes()[i];
      first = first;
    }
  }

 private:
  [[noreturn]] static void fail() {
    raise(Status(Code::kExhausted,
                 std::string("cannot map a batch's memory: ") + std::strerror(errno)));
  }
  const std::size_t size_bytes_;
  void* at_ = nullptr;
  void* room_ = nullptr;
  std::size_t room_bytes_ = 0;
};

/// Raises where the place is none of a batch with so many columns.
Head head_of(std::span<const std::int64_t> place, std::size_t column_count) {
  Head head{};
  if (place.size() >= kHeadNumbers) {
    std::memcpy(&head, place.data(), sizeof head);
    const auto replaced = static_cast<std::size_t>(head.replaced);
    if (static_cast<std::size_t>(head.columns) == column_count &&
        place.size() == kHeadNumbers + column_count * kColumnNumbers + replaced * kReplacedNumbers)
      return head;
  }
  raise(Status(Code::kInternal, "the place of a batch is cut short, or has other columns"));
}

/// A batch of another process.
class MappedBatch final : public Batch {
 public:
  MappedBatch(const BatchSchema& schema, std::shared_ptr<const Mapping> mapping, const Head& head,
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
  const std::shared_ptr<const Mapping> mapping_;
  std::vector<BatchColumn> columns_;
  std::vector<ReplacedSample> replaced_;
};

/// (name, encoding, dtype, shape, bytes of a value or 0), as PyLoader::columns() tells them.
using PyColumn =
    std::tuple<std::string, std::string, std::string, std::vector<std::uint64_t>, std::uint64_t>;

/// Makes batches of one loader in a process that is not the loader's.
class BatchReader {
 public:
  BatchReader(const std::vector<PyColumn>& columns, nb::object batch_type,
              const std::optional<nb::object>& to_arrow)
      : batch_type_(std::move(batch_type)) {
    schema_.reserve(columns.size());
    for (const auto& [name, encoding, dtype, shape, fixed_size_bytes] : columns) {
      schema_.push_back({.name = name,
                         .encoding = encoding,
                         .dtype = dtype,
                         .shape = shape,
                         .fixed_size_bytes = fixed_size_bytes});
      converters_.emplace_back(schema_.back(), to_arrow.value_or(nb::object()));
    }
  }

  nb::object open(int fd, nb::bytes place) {
    last_.reset();
    std::vector<std::int64_t> numbers(place.size() / sizeof(std::int64_t));
    std::memcpy(numbers.data(), place.data(), numbers.size() * sizeof(std::int64_t));
    const Head head = head_of(numbers, schema_.size());
    last_begin_ = head.begin;
    const auto owner = std::make_shared<const BatchOwner>(
        std::make_unique<MappedBatch>(schema_, mapping(fd, head), head, numbers));
    last_ = owner;
    return make_batch(converters_, batch_type_, owner);
  }

  /// Of the last batch: the other process may use its memory again.
  void end() {
    const auto at = mappings_.find(last_begin_);
    if (at == mappings_.end()) return;
    const bool is_held = !last_.expired();
    if (is_held) at->second->keep();
    if (is_held || !page_map_.drop_written(at->second->bytes())) mappings_.erase(at);
    last_.reset();
  }

 private:
  std::shared_ptr<const Mapping> mapping(int fd, const Head& head) {
    const auto size_bytes = static_cast<std::size_t>(head.size_bytes);
    if (mappings_.size() >= kMostMappings) mappings_.clear();
    std::shared_ptr<const Mapping>& found = mappings_[head.begin];
    if (found == nullptr || found->bytes().size() < size_bytes) {
      mappings_.erase(head.begin);
      auto made =
          std::make_shared<const Mapping>(fd, static_cast<std::uint64_t>(head.begin), size_bytes);
      return mappings_[head.begin] = std::move(made);
    }
    return found;
  }

  BatchSchema schema_;
  std::vector<ColumnConverter> converters_;
  nb::object batch_type_;
  const PageMap page_map_;
  std::map<std::int64_t, std::shared_ptr<const Mapping>> mappings_;  ///< By where they begin.
  std::weak_ptr<const BatchOwner> last_;
  std::int64_t last_begin_ = kNone;
};

}  // namespace

nb::object make_batch(std::span<const ColumnConverter> converters, const nb::object& batch_type,
                      const SharedBatch& owner) {
  const nb::capsule capsule = make_capsule(owner);
  const Batch& batch = owner->batch();
  nb::object out = batch_type();
  const auto columns = batch.columns();
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const nb::object value = converters[c].convert_batch(columns[c], owner, capsule);
    if (PyDict_SetItem(out.ptr(), converters[c].name().ptr(), value.ptr()) != 0)
      throw nb::python_error();
  }
  const std::size_t count = batch.count();
  auto* ids = reinterpret_cast<std::byte*>(const_cast<std::int64_t*>(batch.ids().data()));
  auto* mask = reinterpret_cast<std::byte*>(const_cast<std::uint8_t*>(batch.mask().data()));
  nb::setattr(out, "ids", make_array(ids, {&count, 1}, nb::dtype<std::int64_t>(), capsule));
  nb::setattr(out, "mask", make_array(mask, {&count, 1}, nb::dtype<bool>(), capsule));
  nb::dict replaced;
  for (const ReplacedSample& sample : batch.replaced())
    replaced[nb::int_(sample.slot)] = nb::int_(sample.planned_id);
  nb::setattr(out, "replaced", replaced);
  nb::setattr(out, "epoch", nb::int_(batch.epoch()));
  nb::setattr(out, "index", nb::int_(batch.index()));
  return out;
}

std::optional<nb::bytes> place_of(const Batch& batch) {
  const std::optional<BatchMemory> memory = batch.shared();
  if (!memory) return std::nullopt;
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
  return nb::bytes(numbers.data(), numbers.size() * sizeof(std::int64_t));
}

void bind_batch_reader(nb::module_& m) {
  nb::class_<BatchReader>(m, "BatchReader")
      .def(nb::init<const std::vector<PyColumn>&, nb::object, const std::optional<nb::object>&>(),
           nb::arg("columns"), nb::arg("batch_type"), nb::arg("to_arrow").none())
      .def("open", &BatchReader::open, nb::arg("fd"), nb::arg("place"))
      .def("end", &BatchReader::end);
}

}  // namespace headrace
