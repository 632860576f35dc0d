#include "copy/lister.h"

#include <algorithm>
#include <utility>

namespace headrace::copy_detail {
namespace {

// What is handed to the lanes at a time.
constexpr std::size_t kBatch = 64;
constexpr std::size_t kDeleteBatch = 1000;

Status stopped() { return Status(Code::kCancelled, "cancelled"); }

}  // namespace

Result<ObjectInfo*> Listing::peek(const CallOptions& call) {
  while (next_ == page_.objects.size()) {
    if (is_started_ && page_.continuation.empty()) return nullptr;
    request_.continuation = std::move(page_.continuation);
    HEADRACE_TRY_ASSIGN(page_, store_.list(request_, call));
    is_started_ = true;
    next_ = 0;
  }
  return &page_.objects[next_];
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

Status Lister::run() {
  for (const CopyTask& task : transfer_.options().tasks) {
    HEADRACE_TRY(task.is_tree ? list_tree(task) : list_one(task));
  }
  return flush();
}

Status Lister::list_one(const CopyTask& task) {
  const CallOptions call = transfer_.call_options();
  HEADRACE_TRY_ASSIGN(ObjectInfo info, transfer_.from().head(task.from, call));
  if (transfer_.options().rule == CopyRule::kAlways)
    return offer(std::move(info), task.to, nullptr);
  auto existing = transfer_.to().head(task.to, call);
  if (!existing && existing.error().code() != Code::kNotFound) return std::move(existing).error();
  return offer(std::move(info), task.to, existing ? &*existing : nullptr);
}

Status Lister::list_tree(const CopyTask& task) {
  const CopyOptions& options = transfer_.options();
  const CallOptions call = transfer_.call_options();
  Glob pattern;
  if (!task.pattern.empty()) {
    HEADRACE_TRY_ASSIGN(pattern, Glob::parse(task.pattern));
  }
  const bool needs_target = options.rule != CopyRule::kAlways || options.deletes_extra;
  const bool is_ordered =
      transfer_.from().traits().lists_in_order && transfer_.to().traits().lists_in_order;
  const std::string to_prefix = task.to + task.from.substr(task.strip_bytes);
  TargetView target(transfer_.to(), to_prefix, is_ordered);
  Listing source(transfer_.from(), task.from);
  bool is_empty = true;
  while (true) {
    HEADRACE_TRY_ASSIGN(ObjectInfo* const info, source.peek(call));
    if (info == nullptr) break;
    if (transfer_.is_stopped()) return stopped();
    is_empty = false;
    const std::string_view relative = std::string_view(info->key).substr(task.strip_bytes);
    const bool is_wanted = !relative.empty() &&
                           (task.pattern.empty() || pattern.matches(info->key)) &&
                           options.filter.accepts(relative);
    if (is_wanted) {
      std::string to_key = task.to;
      to_key += relative;
      std::optional<ObjectInfo> existing;
      if (needs_target) {
        HEADRACE_TRY_ASSIGN(existing, target.find(to_key, call));
      }
      HEADRACE_TRY(offer(std::move(*info), std::move(to_key), existing ? &*existing : nullptr));
    }
    source.pop();
  }
  if (is_empty) {
    return Status(Code::kNotFound, transfer_.from().object_url(task.from) + ": nothing below it");
  }
  if (!options.deletes_extra) return {};
  HEADRACE_TRY_ASSIGN(std::vector<std::string> extra, target.take_extra(call));
  for (std::string& key : extra) {
    // What the filter keeps out of the copy it also keeps from being deleted.
    if (options.filter.accepts(std::string_view(key).substr(task.to.size())))
      extra_.push_back(std::move(key));
  }
  return {};
}

bool Lister::is_current(const ObjectInfo& info, const ObjectInfo& existing) const {
  const CopyRule rule = transfer_.options().rule;
  if (rule == CopyRule::kAlways) return false;
  if (rule == CopyRule::kIfAbsent) return true;
  if (info.size_bytes != existing.size_bytes) return false;
  if (rule == CopyRule::kIfSizeDiffers) return true;
  if (rule == CopyRule::kIfNewer) return info.modified_unix_s <= existing.modified_unix_s;
  if (transfer_.local_target() != nullptr) return info.modified_unix_s == existing.modified_unix_s;
  return !info.etag.empty() && info.etag == existing.etag;
}

Status Lister::offer(ObjectInfo&& info, std::string to_key, const ObjectInfo* existing) {
  Counts& counts = transfer_.counts();
  // Marks of empty directories have no file that could stand for them.
  const bool is_mark = info.size_bytes == 0 && info.key.ends_with('/') && transfer_.local_target();
  if (is_mark || (existing != nullptr && is_current(info, *existing))) {
    ++counts.skipped;
    return {};
  }
  ++counts.found;
  counts.found_bytes += info.size_bytes;
  if (transfer_.options().is_dry_run) {
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
  if (transfer_.copies_on_server() || !transfer_.is_small(item.size_bytes)) {
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
