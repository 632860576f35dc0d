#pragma once
/// \file
/// Keys of a bucket in byte order, a page at a time.
///
/// Threads: any. Large folders are read once and remembered for as long as they do not change.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "sim/storage.h"

namespace headrace::sim {

struct ListQuery {
  std::string prefix;
  std::string delimiter;
  std::string after;  ///< Only keys and common prefixes greater than this. May be empty.
  std::uint32_t max_count = 1000;  ///< Of keys and common prefixes together.
};

struct ListedObject {
  std::string key;
  FileInfo info;
};

struct Listing {
  std::vector<ListedObject> objects;
  std::vector<std::string> common_prefixes;
  bool is_truncated = false;
  std::string last;  ///< Last key or common prefix of this page.
  bool last_is_prefix = false;
};

/// Sorted names of folders.
class FolderCache {
 public:
  struct Entry {
    std::string
        name;  ///< Folders end in '/': in that form byte order of names is byte order of keys.
    bool is_folder() const noexcept { return name.back() == '/'; }
  };
  using Entries = std::vector<Entry>;
  /// Visible regular files and folders in `path`; empty when it cannot be read.
  std::shared_ptr<const Entries> read(const std::string& path) HEADRACE_EXCLUDES(mutex_);

 private:
  struct Cached {
    std::int64_t modified_ns = 0;
    std::uint64_t inode = 0;
    std::shared_ptr<const Entries> entries;
  };
  Mutex mutex_;
  std::unordered_map<std::string, Cached> cached_ HEADRACE_GUARDED_BY(mutex_);
  std::size_t entry_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

/// \pre the bucket exists.
Listing list_objects(const Storage& storage, FolderCache& folders, std::string_view bucket,
                     const ListQuery& query);

}  // namespace headrace::sim
