#pragma once
/// \file
/// FileWalker: yields the files below a directory in byte order of their keys, one at a time,
/// reading each directory once.
///
/// Follows symbolic links, not into a directory that it is already inside of. Skips what is neither
/// file nor directory, what vanishes while it walks (links that lead nowhere too), and names of
/// ours. What it cannot look at is an error. Memory: the names of the directories on the path from
/// the root to here.
///
/// Threads: one at a time.
#include <dirent.h>
#include <sys/stat.h>

#include <memory>
#include <string>
#include <vector>

#include "headrace/status.h"
#include "store/list_pager.h"

namespace headrace::file {

class FileWalker {
 public:
  /// Below `root`; starts in the directory that holds all keys with the request's prefix.
  FileWalker(std::string root, const ListRequest& request)
      : root_(std::move(root)), base_(base_of(request.prefix)) {}

  struct Entry {
    std::string name;  ///< The key; of a directory with a slash at the end.
    bool is_directory = false;
  };

  /// The next file that `pager` wants; or, when `rolls_directories`, the next directory that has
  /// files below it, or may not be read. It stays the next until pop(). nullptr at the end. Errors:
  /// kNotFound (no root), kDenied (a directory that cannot be read, a file that cannot be looked
  /// at), others of errno_status().
  Result<const Entry*> peek(const ListPager& pager, bool rolls_directories);
  /// Of the file that peek() found.
  const struct stat& info() const noexcept { return info_; }
  /// Leaves the entry behind.
  void pop();

 private:
  struct CloseDirectory {
    void operator()(DIR* directory) const noexcept { ::closedir(directory); }
  };
  struct Directory {
    // Its files are looked at from here: a path from the root costs three times as much.
    std::unique_ptr<DIR, CloseDirectory> handle;
    std::string key;             // with slash, or empty
    std::vector<Entry> entries;  // in reverse order: the next is at the back
    dev_t device = 0;
    ino_t inode = 0;
  };
  static std::string base_of(const std::string& prefix);
  /// Reads a directory and puts it on the path; nothing happens when it is gone or already on the
  /// path.
  Status enter(const std::string& key);
  /// Whether the next entry is to be listed; drops it or enters it when not.
  Result<bool> settle(const ListPager& pager, bool rolls_directories);
  Result<bool> has_files(const std::string& key) const;

  std::string root_;
  std::string base_;
  bool is_started_ = false;
  bool is_settled_ = false;  // the next entry is to be listed
  struct stat info_ {};
  std::vector<Directory> path_;
};

}  // namespace headrace::file
