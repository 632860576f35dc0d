// Listing and copying go on at the same time, so what was found is handed on in batches, and
// `expect()` counts it before: the movers know that nothing more will come only when everything
// counted has ended. That is why a batch is flushed after an error as well.
//
// - What is current at the target is known without asking for each object: two listings side by
//   side, which needs byte order on both sides. A store that promises order and does not keep it
//   would make objects look missing, and deletes_extra would remove them: so order is checked on
//   every page.
// - Deleting comes last, from what no object of the source asked for, and what pattern or filter
//   keep out of the copy they keep out of the deletion.
// - A copy into its own source is refused before anything is written, by the names of the keys:
//   the same directory may be reached by two stores.
#include "copy/lister.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "copy/names.h"
#include "store/file/file_io.h"

namespace headrace::copy_detail {
namespace {

// What is handed to the movers at a time.
constexpr std::size_t kBatch = 64;
constexpr std::size_t kDeleteBatch = 1000;

Status stopped() { return Status(Code::kCancelled, "cancelled"); }

/// Whether a file got its time from its source: then its inode changed later than its bytes.
bool has_kept_time(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && info.st_ctim.tv_sec > info.st_mtim.tv_sec + 1;
}

}  // namespace

/// Two listings side by side would take objects out of order for missing ones, and delete them.
Status Listing::check_order() {
  if (!is_ordered_ || page_.empty()) return {};
  const auto rises = [](const ObjectInfo& a, const ObjectInfo& b) { return a.key < b.key; };
  const auto& objects = page_;
  const bool is_first = last_key_.empty();
  const auto is_same_or_falls = [&](const ObjectInfo& a, const ObjectInfo& b) {
    return !rises(a, b);
  };
  if ((!is_first && objects.front().key <= last_key_) ||
      std::adjacent_find(objects.begin(), objects.end(), is_same_or_falls) != objects.end()) {
    return Status(Code::kCorrupt, store_.object_url(prefix_) + ": the store lists it out of order");
  }
  last_key_ = objects.back().key;
  return {};
}

Result<ObjectInfo*> Listing::peek(const CallOptions& call) {
  if (!list_) {
    ParallelListOptions options;
    options.is_ordered = is_ordered_;
    options.is_one_level = is_one_level_;
    list_.emplace(store_, prefix_, options, call);
  }
  if (next_ == page_.size() && !is_ended_) {
    HEADRACE_TRY_ASSIGN(page_, list_->next());
    next_ = 0;
    is_ended_ = page_.empty();
    HEADRACE_TRY(check_order());
  }
  return is_ended_ ? nullptr : &page_[next_];
}

/// A target that is not there yet is empty.
Result<ObjectInfo*> TargetView::peek(const CallOptions& call) {
  if (is_loaded_) return nullptr;
  auto found = listing_.peek(call);
  if (!found && found.error().code() == Code::kNotFound) {
    is_loaded_ = true;
    return nullptr;
  }
  return found;
}

Status TargetView::load(const CallOptions& call) {
  while (true) {
    HEADRACE_TRY_ASSIGN(ObjectInfo* const info, peek(call));
    if (info == nullptr) break;
    std::string key = info->key;
    all_.emplace(std::move(key), std::move(*info));
    listing_.pop();
  }
  is_loaded_ = true;
  return {};
}

Result<std::optional<ObjectInfo>> TargetView::find(const std::string& key,
                                                   const CallOptions& call) {
  if (!is_ordered_) {
    if (!is_loaded_) HEADRACE_TRY(load(call));
    const auto it = all_.find(key);
    if (it == all_.end()) return std::optional<ObjectInfo>();
    std::optional<ObjectInfo> found(std::move(it->second));
    all_.erase(it);
    return found;
  }
  while (true) {
    HEADRACE_TRY_ASSIGN(ObjectInfo* const info, peek(call));
    if (info == nullptr || info->key > key) return std::optional<ObjectInfo>();
    std::optional<ObjectInfo> found(std::move(*info));
    listing_.pop();
    if (found->key == key) return found;
    extra_.push_back(std::move(found->key));
  }
}

Result<std::vector<std::string>> TargetView::take_extra(const CallOptions& call) {
  if (!is_ordered_ && !is_loaded_) HEADRACE_TRY(load(call));
  for (auto& [key, info] : all_) extra_.push_back(key);
  while (true) {
    HEADRACE_TRY_ASSIGN(ObjectInfo* const info, peek(call));
    if (info == nullptr) break;
    extra_.push_back(std::move(info->key));
    listing_.pop();
  }
  std::sort(extra_.begin(), extra_.end());
  return std::move(extra_);
}

Lister::Lister(Transfer& transfer)
    : transfer_(transfer),
      overlap_(transfer.from(), transfer.to()),
      names_(transfer.options().names) {}

/// Unless the caller has done it for this job and others.
Status Lister::take_names() {
  CopyOptions options = transfer_.options();
  if (names_ != nullptr || !may_meet(options.tasks, options.flattens)) return {};
  options.names = names_ = std::make_shared<CopyNames>();
  return take_copy_names(transfer_.from(), transfer_.to(), options, transfer_.stop_token());
}

Status Lister::run() {
  Status status = take_names();
  for (const CopyTask& task : transfer_.options().tasks) {
    if (!status.ok()) break;
    status = task.is_tree ? list_tree(task) : list_one(task);
  }
  // Also after an error: the movers wait for everything that was counted.
  Status flushed = flush();
  return status.ok() ? std::move(flushed) : std::move(status);
}

Status Lister::list_one(const CopyTask& task) {
  const CallOptions call = transfer_.call_options();
  if (!takes_one(task, transfer_.options().filter)) return {};
  HEADRACE_TRY_ASSIGN(const bool is_first, begin(task.to, task.from));
  if (!is_first) return {};
  CallOptions of_version = call;
  of_version.version_id = task.version_id;
  HEADRACE_TRY_ASSIGN(ObjectInfo info, transfer_.from().head(task.from, of_version));
  if (transfer_.options().rule == CopyRule::kAlways)
    return offer(std::move(info), task, task.to, nullptr);
  auto existing = transfer_.to().head(task.to, call);
  if (!existing && existing.error().code() != Code::kNotFound) return std::move(existing).error();
  return offer(std::move(info), task, task.to, existing ? &*existing : nullptr);
}

Status Lister::list_tree(const CopyTask& task) {
  const CopyOptions& options = transfer_.options();
  const CallOptions call = transfer_.call_options();
  Glob pattern;
  if (!task.pattern.empty()) {
    HEADRACE_TRY_ASSIGN(pattern, Glob::parse(task.pattern));
  }
  const bool needs_target = options.rule != CopyRule::kAlways || options.deletes_extra;
  // Flattened names rise in no order.
  const bool is_ordered = needs_target && !options.flattens &&
                          transfer_.from().traits().lists_in_order &&
                          transfer_.to().traits().lists_in_order;
  const std::string to_prefix =
      task.to + (options.flattens ? std::string() : task.from.substr(task.strip_bytes));
  TargetView target(transfer_.to(), to_prefix, is_ordered, is_one_level(task, transfer_.to()));
  Listing source(transfer_.from(), task.from, is_ordered, is_one_level(task, transfer_.from()));
  bool is_empty = true;
  while (true) {
    HEADRACE_TRY_ASSIGN(ObjectInfo* const info, source.peek(call));
    if (info == nullptr) break;
    if (transfer_.is_stopped()) return stopped();
    // A pattern that names nothing is an error; a filter may leave nothing.
    is_empty &= !task.pattern.empty() && !pattern.matches(info->key);
    if (takes(task, pattern, options.filter, info->key)) {
      std::string to_key = target_key(task, options.flattens, info->key);
      bool is_first = true;
      if (!is_directory_mark(*info)) {
        HEADRACE_TRY_ASSIGN(is_first, begin(to_key, info->key));
      }
      if (!is_first) {
        source.pop();
        continue;
      }
      if (overlap_.is_any()) HEADRACE_TRY(check_overlap(task, pattern, info->key, to_key));
      std::optional<ObjectInfo> existing;
      if (needs_target) {
        HEADRACE_TRY_ASSIGN(existing, target.find(to_key, call));
      }
      HEADRACE_TRY(
          offer(std::move(*info), task, std::move(to_key), existing ? &*existing : nullptr));
    }
    source.pop();
  }
  if (is_empty) {
    const bool is_pattern = !task.pattern.empty();
    return Status(Code::kNotFound,
                  transfer_.from().object_url(is_pattern ? task.pattern : task.from) +
                      (is_pattern ? ": nothing matches" : ": nothing below it"));
  }
  return options.deletes_extra ? find_extra(task, pattern, target) : Status();
}

Result<bool> Lister::begin(const std::string& to_key, const std::string& from_key) {
  if (names_ == nullptr) return true;
  return names_->begin(to_key, transfer_.from().object_url(from_key), transfer_.to());
}

/// What the pattern and the filter keep out of the copy they also keep from being deleted.
Status Lister::find_extra(const CopyTask& task, const Glob& pattern, TargetView& target) {
  HEADRACE_TRY_ASSIGN(std::vector<std::string> extra, target.take_extra(transfer_.call_options()));
  LocalTree* const local = transfer_.local_target();
  std::string last_parent = "/";  // of no key
  bool is_real = true;
  for (std::string& key : extra) {
    if (local != nullptr) {
      // Behind links lies what belongs to others.
      std::string parent = key.substr(0, key.rfind('/') + 1);
      if (parent != last_parent) is_real = bool{file::open_real_parent(local->root(), key)};
      last_parent = std::move(parent);
      if (!is_real) continue;
    }
    const std::string from_key = task.from.substr(0, task.strip_bytes) + key.substr(task.to.size());
    if (takes(task, pattern, transfer_.options().filter, from_key))
      extra_.push_back(std::move(key));
  }
  return {};
}

Status Lister::check_overlap(const CopyTask& task, const Glob& pattern, const std::string& from_key,
                             const std::string& to_key) const {
  const NameFilter& filter = transfer_.options().filter;
  const auto refuse = [&](const char* why) {
    return Status(Code::kInvalidArgument, transfer_.from().object_url(task.from) + why +
                                              transfer_.to().object_url(task.to));
  };
  const auto copy = overlap_.source_key(to_key);
  if (copy && *copy != from_key && takes(task, pattern, filter, *copy))
    return refuse(" cannot be copied into itself: ");
  if (!transfer_.options().deletes_extra) return {};
  const auto same = overlap_.target_key(from_key);
  if (!same || *same == to_key || !same->starts_with(task.to)) return {};
  const std::string source = task.from.substr(0, task.strip_bytes) + same->substr(task.to.size());
  if (takes(task, pattern, filter, source)) return refuse(" would be deleted as extra below ");
  return {};
}

bool Lister::is_current(const ObjectInfo& info, const ObjectInfo& existing) const {
  const CopyRule rule = transfer_.options().rule;
  if (rule == CopyRule::kAlways) return false;
  if (rule == CopyRule::kIfAbsent) return true;
  if (info.size_bytes != existing.size_bytes) return false;
  if (rule == CopyRule::kIfSizeDiffers) return true;
  LocalTree* const local = transfer_.local_target();
  const bool is_same_second = info.modified_unix_s == existing.modified_unix_s;
  if (rule == CopyRule::kIfNewer) {
    // The source may have changed in the second in which it was copied. What is copied once more
    // for that is of a later second. A time that is not known says nothing.
    return info.modified_unix_s == 0 || info.modified_unix_s < existing.modified_unix_s ||
           (is_same_second && local != nullptr &&
            has_kept_time(local->root() + "/" + existing.key));
  }
  if (local != nullptr) return is_same_second;
  return !info.etag.empty() && info.etag == existing.etag;
}

Status Lister::offer(ObjectInfo&& info, const CopyTask& task, std::string to_key,
                     const ObjectInfo* existing) {
  Counts& counts = transfer_.counts();
  const bool is_mark = is_directory_mark(info) && transfer_.local_target() != nullptr;
  if (is_mark || (existing != nullptr && is_current(info, *existing))) {
    ++counts.skipped;
    return {};
  }
  const bool is_dry = transfer_.options().is_dry_run;
  if (is_dry && transfer_.local_target() != nullptr) {
    Status status = dry_names_.take(to_key);
    if (!status.ok()) {
      transfer_.fail_key(info.key, std::move(status));
      return {};
    }
  }
  ++counts.found;
  counts.found_bytes += info.size_bytes;
  if (is_dry) {
    transfer_.add_event({CopyEvent::Kind::kCopied, info.key, to_key, info.size_bytes});
    return {};
  }
  transfer_.queue().expect(1);
  Item item;
  item.from_key = std::move(info.key);
  item.to_key = std::move(to_key);
  item.size_bytes = info.size_bytes;
  item.etag = std::move(info.etag);
  item.modified_unix_s = info.modified_unix_s;
  item.version_id = task.version_id;
  if (transfer_.copies_on_server() || !transfer_.is_small(item.size_bytes)) {
    // Large objects go to the movers one by one; small ones that were found before them go first.
    HEADRACE_TRY(flush());
    transfer_.begin_large(std::move(item));
    return {};
  }
  batch_.push_back(std::move(item));
  return batch_.size() < kBatch ? Status() : flush();
}

Status Lister::flush() { return transfer_.queue().push(batch_) ? Status() : stopped(); }

Status Lister::delete_extra() {
  for (std::size_t i = 0; i < extra_.size(); i += kDeleteBatch) {
    if (transfer_.is_stopped()) return stopped();
    const auto batch = std::span(extra_).subspan(i, std::min(kDeleteBatch, extra_.size() - i));
    std::vector<Status> results(batch.size());
    if (!transfer_.options().is_dry_run)
      results = transfer_.to().remove_many(batch, transfer_.call_options());
    for (std::size_t j = 0; j < batch.size(); ++j) {
      if (!results[j].ok()) {
        transfer_.fail_key(batch[j], std::move(results[j]));
        continue;
      }
      ++transfer_.counts().deleted;
      if (transfer_.options().keeps_events || transfer_.options().is_dry_run)
        transfer_.add_event({CopyEvent::Kind::kDeleted, {}, batch[j], 0});
    }
  }
  return {};
}

}  // namespace headrace::copy_detail
