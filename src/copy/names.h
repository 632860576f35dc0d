#pragma once
/// \file
/// Which objects a task takes, and what they are called at the target. Pure.
#include <string>
#include <string_view>
#include <unordered_set>

#include "headrace/copy.h"

namespace headrace::copy_detail {

/// Whether the task takes the object. What it takes from the source it may delete at the target.
/// `pattern`: the task's, parsed.
bool takes(const CopyTask& task, const Glob& pattern, const NameFilter& filter,
           std::string_view from_key);

/// Whether only one directory of the source or the target need be listed, as the task's pattern
/// stays there: what lies below may be large, or not to be read. Of files: stores list all that is
/// below it faster, many names a request and many requests at once.
bool is_one_level(const CopyTask& task, const Store& listed);

/// The same of a task of one object, of whose key the filter sees the last part.
bool takes_one(const CopyTask& task, const NameFilter& filter);

/// Whether it stands for a directory: such marks are all the same, and no file can be one.
bool is_directory_mark(const ObjectInfo& info);

/// Where an object of a tree goes.
std::string target_key(const CopyTask& task, bool flattens, std::string_view from_key);

/// What names alone tell of files that are to lie in one directory.
class FileNames {
 public:
  /// Errors: those that writing the file would have, of keys that no path can be, and of two one of
  /// which would be a directory above the other.
  Status take(const std::string& key);

 private:
  std::unordered_set<std::string> files_, directories_;
};

}  // namespace headrace::copy_detail
