// Whether two objects get one name is known when both have been listed, and by then the first could
// have been replaced. So where tasks may meet, all are listed once before anything is copied: a
// request for 1,000 names, which memory holds anyway. Copying lists again, and what is new then is
// compared as well.
#include "copy/names.h"

#include <algorithm>
#include <utility>

#include "copy/lister.h"
#include "store/file/file_key.h"

namespace headrace {
namespace {

using copy_detail::is_directory_mark;
using copy_detail::Listing;
using copy_detail::takes;
using copy_detail::target_key;

Status take_names_of_tree(Store& from, const Store& to, const CopyTask& task,
                          const CopyOptions& options, const std::stop_token& stop) {
  Glob pattern;
  if (!task.pattern.empty()) {
    HEADRACE_TRY_ASSIGN(pattern, Glob::parse(task.pattern));
  }
  Listing listing(from, task.from, false, copy_detail::is_one_level(task, from));
  while (true) {
    HEADRACE_TRY_ASSIGN(const ObjectInfo* const info, listing.peek({.stop = stop}));
    if (info == nullptr) return {};
    if (stop.stop_requested()) return Status(Code::kCancelled, "cancelled");
    if (takes(task, pattern, options.filter, info->key) && !is_directory_mark(*info)) {
      HEADRACE_TRY(options.names->take(target_key(task, options.flattens, info->key),
                                       from.object_url(info->key), to));
    }
    listing.pop();
  }
}

}  // namespace

namespace copy_detail {

bool takes(const CopyTask& task, const Glob& pattern, const NameFilter& filter,
           std::string_view from_key) {
  if (!from_key.starts_with(task.from) || from_key.size() == task.strip_bytes) return false;
  return (task.pattern.empty() || pattern.matches(from_key)) &&
         filter.accepts(from_key.substr(task.strip_bytes));
}

bool is_one_level(const CopyTask& task, const Store& listed) {
  const std::size_t base = std::min(task.from.rfind('/') + 1, task.pattern.size());
  const std::string_view below = std::string_view(task.pattern).substr(base);
  return !listed.local_directory().empty() && !below.empty() &&
         below.find('/') == std::string_view::npos && below.find("**") == std::string_view::npos;
}

bool takes_one(const CopyTask& task, const NameFilter& filter) {
  return filter.accepts(std::string_view(task.from).substr(task.from.rfind('/') + 1));
}

bool is_directory_mark(const ObjectInfo& info) {
  return info.size_bytes == 0 && info.key.ends_with('/');
}

std::string target_key(const CopyTask& task, bool flattens, std::string_view from_key) {
  if (!flattens) return task.to + std::string(from_key.substr(task.strip_bytes));
  // Marks of directories end in a slash: their names are those of directories.
  const std::size_t end = from_key.find_last_not_of('/') + 1;
  const std::size_t slash = from_key.substr(0, end).rfind('/');
  return task.to + std::string(from_key.substr(slash == std::string_view::npos ? 0 : slash + 1));
}

Status FileNames::take(const std::string& key) {
  HEADRACE_TRY(file::check_key(key));
  if (directories_.contains(key))
    return Status(Code::kUnsupported, key + ": another object needs a directory of this name");
  for (std::size_t slash = key.rfind('/'); slash != std::string::npos && slash > 0;
       slash = key.rfind('/', slash - 1)) {
    const std::string above = key.substr(0, slash);
    if (files_.contains(above))
      return Status(Code::kUnsupported, key + ": " + above + " will be a file");
    if (!directories_.insert(above).second) break;  // Those above it were looked at.
  }
  files_.insert(key);
  return {};
}

}  // namespace copy_detail

bool may_meet(const std::vector<CopyTask>& tasks, bool flattens) {
  if (flattens) return true;
  std::vector<std::pair<std::string, bool>> targets;  // and whether it is a tree's
  for (const CopyTask& task : tasks)
    targets.emplace_back(task.is_tree ? task.to + task.from.substr(task.strip_bytes) : task.to,
                         task.is_tree);
  std::sort(targets.begin(), targets.end());
  // What lies below a target follows it at once.
  const auto meet = [](const auto& a, const auto& b) {
    return a.first == b.first || (a.second && b.first.starts_with(a.first));
  };
  return std::adjacent_find(targets.begin(), targets.end(), meet) != targets.end();
}

Result<CopyNames::Taken*> CopyNames::taken(const std::string& to_key, const std::string& from_url,
                                           const Store& to) {
  const auto [it, is_new] = by_key_.try_emplace(to_key, Taken{from_url});
  if (is_new || it->second.from_url == from_url) return &it->second;
  return Status(Code::kInvalidArgument, from_url + " and " + it->second.from_url +
                                            " would both become " + to.object_url(to_key));
}

Status CopyNames::take(const std::string& to_key, const std::string& from_url, const Store& to) {
  auto found = taken(to_key, from_url, to);
  return found ? Status() : std::move(found).error();
}

Result<bool> CopyNames::begin(const std::string& to_key, const std::string& from_url,
                              const Store& to) {
  HEADRACE_TRY_ASSIGN(Taken* const found, taken(to_key, from_url, to));
  return !std::exchange(found->has_begun, true);
}

Status take_copy_names(Store& from, const Store& to, const CopyOptions& options,
                       std::stop_token stop) {
  for (const CopyTask& task : options.tasks) {
    if (task.is_tree) {
      HEADRACE_TRY(take_names_of_tree(from, to, task, options, stop));
    } else if (copy_detail::takes_one(task, options.filter)) {
      HEADRACE_TRY(options.names->take(task.to, from.object_url(task.from), to));
    }
  }
  return {};
}

}  // namespace headrace
