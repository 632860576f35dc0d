// Invariants:
// - Only the cache's writers touch a group's file; whoever keeps a value takes no lock that they
//   hold while they wait for the disk.
// - A value is written once: has_ says which were taken, and goes back only where there was no
//   memory.
// - Whoever ends the last write of a group shows it: as a whole when it is complete, else, once it
//   is settled, in runs of values that follow each other. A group that is over takes nothing more.
#include "tier/disk_values.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "tier/disk_cache.h"
#include "tier/extent_draft.h"
#include "tier/extent_writer.h"
#include "tier/new_extent.h"

namespace headrace::tier {
namespace {

/// Of an incomplete group, so much is read back at once to be shown as a file of its own.
constexpr std::uint64_t kRunBytes = std::uint64_t{4} << 20;

}  // namespace

class DiskValues::Group : public std::enable_shared_from_this<Group> {
 public:
  /// Of `count` values of a series that follow each other.
  Group(ExtentWriter& writer, ExtentInfo info, std::uint64_t stride, std::uint32_t count)
      : writer_(writer),
        info_(std::move(info)),
        stride_(stride),
        has_(count, false),
        is_written_(count, false) {}

  ~Group() {
    if (draft_ != nullptr) writer_.drop_draft(*draft_);
  }

  void keep(std::uint32_t at, std::span<const std::byte> value);
  /// What there is of it is shown as soon as all that was taken is written.
  void settle();
  bool is_over() {
    MutexLock lock(mutex_);
    return is_over_;
  }

 private:
  bool take(std::uint32_t at);
  void write(std::uint32_t at, std::span<std::byte> bytes);
  /// Puts a value down in the file's header, and makes the file if there is none. nullptr: there is
  /// none, and none is to come.
  ExtentDraft* seal(std::uint32_t at, std::span<std::byte> bytes);
  /// One pending write, or what stood for one, has ended.
  void end_write(std::optional<std::uint32_t> written);
  void show(const std::vector<bool>& written);
  void show_run(ExtentDraft& draft, std::uint32_t begin, std::uint32_t end);

  ExtentWriter& writer_;
  const ExtentInfo info_;
  const std::uint64_t stride_;

  Mutex file_mutex_;  // Of writers.
  std::unique_ptr<ExtentDraft> draft_ HEADRACE_GUARDED_BY(file_mutex_);

  Mutex mutex_;
  std::vector<bool> has_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<bool> is_written_ HEADRACE_GUARDED_BY(mutex_);
  std::uint32_t pending_ HEADRACE_GUARDED_BY(mutex_) = 0;
  bool is_over_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool is_settled_ HEADRACE_GUARDED_BY(mutex_) = false;
};

bool DiskValues::Group::take(std::uint32_t at) {
  MutexLock lock(mutex_);
  if (is_over_ || is_settled_ || has_[at]) return false;
  has_[at] = true;
  ++pending_;
  return true;
}

void DiskValues::Group::keep(std::uint32_t at, std::span<const std::byte> value) {
  if (!take(at)) return;
  if (auto slab = writer_.buffer(stride_)) {
    const auto padding = slab->bytes().subspan(value.size());
    std::memcpy(slab->bytes().data(), value.data(), value.size());
    std::fill(padding.begin(), padding.end(), std::byte{0});
    auto held = std::make_shared<Slab>(*std::move(slab));
    if (writer_.write_later(
            [self = shared_from_this(), at, held] { self->write(at, held->bytes()); }))
      return;
  }
  writer_.note_left_out(value.size());
  {
    MutexLock lock(mutex_);
    has_[at] = false;
  }
  end_write(std::nullopt);
}

ExtentDraft* DiskValues::Group::seal(std::uint32_t at, std::span<std::byte> bytes) {
  if (is_over()) return nullptr;
  MutexLock lock(file_mutex_);
  if (draft_ == nullptr) draft_ = writer_.begin_draft(info_, stride_);
  if (draft_ != nullptr) draft_->seal(at, bytes);
  return draft_.get();
}

void DiskValues::Group::write(std::uint32_t at, std::span<std::byte> bytes) {
  ExtentDraft* const draft = seal(at, bytes);
  const bool is_written = draft != nullptr && writer_.write_part(*draft, at, bytes);
  if (!is_written) {
    writer_.note_left_out(bytes.size());
    MutexLock lock(mutex_);
    is_over_ = true;
  }
  end_write(is_written ? std::optional(at) : std::nullopt);
}

void DiskValues::Group::end_write(std::optional<std::uint32_t> written) {
  std::vector<bool> shown;
  {
    MutexLock lock(mutex_);
    if (written) is_written_[*written] = true;
    if (--pending_ > 0) return;
    const bool is_complete =
        std::find(is_written_.begin(), is_written_.end(), false) == is_written_.end();
    if (!is_over_ && !is_complete && !is_settled_) return;
    if (!is_over_) shown = is_written_;
    is_over_ = true;
  }
  show(shown);
}

void DiskValues::Group::settle() {
  {
    MutexLock lock(mutex_);
    is_settled_ = true;
    if (is_over_ || pending_ > 0) return;
    ++pending_;
  }
  if (writer_.write_later([self = shared_from_this()] { self->end_write(std::nullopt); })) return;
  MutexLock lock(mutex_);
  is_over_ = true;
}

/// Nobody else has the file any more. `written`: which values; empty: the group is given up.
void DiskValues::Group::show(const std::vector<bool>& written) {
  std::unique_ptr<ExtentDraft> draft;
  {
    MutexLock lock(file_mutex_);
    draft.swap(draft_);
  }
  if (draft == nullptr) return;
  const auto count = static_cast<std::uint32_t>(written.size());
  if (count > 0 && std::find(written.begin(), written.end(), false) == written.end()) {
    writer_.publish_draft(*draft);
    return;
  }
  // Their room becomes that of the runs.
  writer_.drop_draft(*draft);
  const auto most = static_cast<std::uint32_t>(std::max<std::uint64_t>(kRunBytes / stride_, 1));
  for (std::uint32_t begin = 0; begin < count;) {
    std::uint32_t end = begin;
    while (end < count && written[end] && end - begin < most) ++end;
    if (end > begin) show_run(*draft, begin, end);
    begin = std::max(end, begin + 1);
  }
}

void DiskValues::Group::show_run(ExtentDraft& draft, std::uint32_t begin, std::uint32_t end) {
  ExtentInfo info = info_;
  info.name.offset_bytes += begin * stride_;
  info.name.length_bytes = (end - begin) * stride_;
  auto slab = writer_.buffer(FileParts::kPagesBytes + info.name.length_bytes);
  if (!slab) return writer_.note_left_out(info.name.length_bytes);
  const auto values = slab->bytes().subspan(FileParts::kPagesBytes);
  for (std::uint32_t at = begin; at < end; ++at) {
    if (!writer_.read_part(draft, at, values.subspan((at - begin) * stride_, stride_))) return;
  }
  writer_.write(info, {.pages = slab->bytes().first(FileParts::kPagesBytes), .data = values});
}

DiskValues::DiskValues(std::shared_ptr<DiskCache> cache, std::string origin, std::string url)
    : cache_(std::move(cache)), origin_(std::move(origin)), url_(std::move(url)) {}

DiskValues::~DiskValues() = default;

std::uint64_t DiskValues::capacity_bytes() const { return cache_->capacity_bytes(); }

std::string DiskValues::url_of(const ValueSeries& series) const {
  return url_ + "/" + std::string(series.key);
}

ObjectId DiskValues::object_of(const ValueSeries& series) const {
  return object_id(origin_, url_of(series), series.version);
}

bool DiskValues::read(const ValueSeries& series, std::uint32_t index, std::span<std::byte> out) {
  const ExtentName wanted{object_of(series), index * series.stride_bytes(), out.size()};
  bool is_found = false;
  cache_->read({.name = wanted, .url = {}, .etag = {}}, out, TimePoint::max(),
               [&](Tier::Found found, std::uint64_t) { is_found = found == Tier::Found::kAll; });
  return is_found;
}

void DiskValues::keep(const ValueSeries& series, std::uint32_t index,
                      std::span<const std::byte> value) {
  if (auto group = group_of(series, index / kGroupValues)) group->keep(index % kGroupValues, value);
}

std::shared_ptr<DiskValues::Group> DiskValues::group_of(const ValueSeries& series,
                                                        std::uint32_t number) {
  const GroupName group_name(object_of(series), number);
  MutexLock lock(mutex_);
  const auto known = groups_.find(group_name);
  if (known != groups_.end()) return known->second;
  if (groups_.size() >= kMostGroups)
    std::erase_if(groups_, [](const auto& entry) { return entry.second->is_over(); });
  if (groups_.size() >= kMostGroups) {
    cache_->writer().note_left_out(series.value_bytes);
    return nullptr;
  }
  const std::uint32_t begin = number * kGroupValues;
  const std::uint32_t count = std::min(kGroupValues, series.count - begin);
  const std::uint64_t stride = series.stride_bytes();
  ExtentInfo info{.name = {group_name.first, begin * stride, count * stride},
                  .object_size_bytes = series.length_bytes(),
                  .url = url_of(series),
                  .etag = std::string(series.version)};
  auto group = std::make_shared<Group>(cache_->writer(), std::move(info), stride, count);
  groups_.emplace(group_name, group);
  return group;
}

void DiskValues::settle() {
  std::map<GroupName, std::shared_ptr<Group>> groups;
  {
    MutexLock lock(mutex_);
    groups.swap(groups_);
  }
  for (const auto& [name, group] : groups) group->settle();
}

}  // namespace headrace::tier
