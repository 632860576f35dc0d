// Byte order of keys is not the order of names: "a.txt" comes before "a/b", as '.' is less than
// '/'. So a directory's name is sorted with its slash, and the walk goes down where the name
// stands.
//
// Directories are held open on the path from the root to here, and files are looked at relative to
// theirs. A link may lead back up; a directory that is on the path already, by device and inode,
// is not entered again.
//
// What vanishes is passed over, what cannot be looked at is an error: whoever mirrors this tree
// would take it for removed.
#include "store/file/file_walker.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "base/errno_status.h"
#include "base/fd.h"
#include "store/file/file_key.h"

namespace headrace::file {
namespace {

bool is_gone(int error) noexcept { return error == ENOENT || error == ENOTDIR || error == ELOOP; }

/// What cannot be looked at is no missing file: whoever mirrors a tree would delete its copy.
Result<bool> is_there(bool has_been_seen, const std::string& path) {
  if (has_been_seen) return true;
  return is_gone(errno) ? Result<bool>(false) : errno_status(errno, "stat " + path);
}

/// Whether an entry is a file or a directory; links count as what they point to.
Result<bool> classify(const std::string& path, int directory_fd, const dirent& entry,
                      FileWalker::Entry& out) {
  unsigned char type = entry.d_type;
  if (type == DT_LNK || type == DT_UNKNOWN) {
    struct stat info {};
    const bool has_been_seen = ::fstatat(directory_fd, entry.d_name, &info, 0) == 0;
    HEADRACE_TRY_ASSIGN(const bool exists, is_there(has_been_seen, path + entry.d_name));
    if (!exists) return false;
    type = S_ISDIR(info.st_mode) ? DT_DIR : S_ISREG(info.st_mode) ? DT_REG : DT_UNKNOWN;
  }
  out.is_directory = type == DT_DIR;
  return type == DT_DIR || type == DT_REG;
}

}  // namespace

std::string FileWalker::base_of(const std::string& prefix) {
  const std::size_t slash = prefix.rfind('/');
  return slash == std::string::npos ? std::string() : prefix.substr(0, slash + 1);
}

Status FileWalker::enter(const std::string& key) {
  const std::string path = root_ + "/" + key;
  Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return is_gone(errno) ? Status() : errno_status(errno, "read directory " + path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return errno_status(errno, "stat " + path);
  for (const Directory& above : path_) {
    if (above.device == info.st_dev && above.inode == info.st_ino) return {};
  }
  std::unique_ptr<DIR, CloseDirectory> entries(::fdopendir(fd.get()));
  if (entries == nullptr) return errno_status(errno, "read directory " + path);
  static_cast<void>(fd.release());
  Directory directory;
  directory.device = info.st_dev;
  directory.inode = info.st_ino;
  while (true) {
    errno = 0;
    const dirent* const found = ::readdir(entries.get());
    if (found == nullptr && errno != 0) return errno_status(errno, "read directory " + path);
    if (found == nullptr) break;
    const std::string_view name = found->d_name;
    Entry entry;
    if (name == "." || name == ".." || name.starts_with(kHiddenPrefix)) continue;
    HEADRACE_TRY_ASSIGN(const bool is_listed,
                        classify(path, ::dirfd(entries.get()), *found, entry));
    if (!is_listed) continue;
    entry.name.reserve(key.size() + name.size() + 1);
    entry.name.append(key).append(name);
    if (entry.is_directory) entry.name.push_back('/');
    directory.entries.push_back(std::move(entry));
  }
  std::sort(directory.entries.begin(), directory.entries.end(),
            [&](const Entry& a, const Entry& b) {
              return a.name.compare(key.size(), std::string::npos, b.name, key.size(),
                                    std::string::npos) > 0;
            });
  directory.key = key;
  directory.handle = std::move(entries);
  path_.push_back(std::move(directory));
  return {};
}

Result<bool> FileWalker::has_files(const std::string& key) const {
  ListRequest request;
  request.prefix = key;
  FileWalker below(root_, request);
  HEADRACE_TRY_ASSIGN(const Entry* const first, below.peek(ListPager(request), false));
  return first != nullptr;
}

Result<bool> FileWalker::settle(const ListPager& pager, bool rolls_directories) {
  const Entry& entry = path_.back().entries.back();
  if (entry.is_directory) {
    if (pager.skips_all_below(entry.name)) {
      pop();
      return false;
    }
    if (rolls_directories) {
      auto found = has_files(entry.name);
      // One that may not be read (lost+found) has a name all the same; its files are not asked for.
      if (!found && found.error().code() == Code::kDenied) return true;
      if (!found) return std::move(found).error();
      if (!*found) pop();
      return *found;
    }
    // Entering replaces the entry by the directory's own: pop() first, as enter() may put another
    // on top.
    const std::string name = entry.name;
    pop();
    HEADRACE_TRY(enter(name));
    return false;
  }
  bool is_listed = pager.wants(entry.name);
  if (is_listed) {
    const Directory& parent = path_.back();
    const char* const name = entry.name.c_str() + parent.key.size();
    const bool has_been_seen = ::fstatat(::dirfd(parent.handle.get()), name, &info_, 0) == 0;
    HEADRACE_TRY_ASSIGN(is_listed, is_there(has_been_seen, root_ + "/" + entry.name));
    is_listed = is_listed && S_ISREG(info_.st_mode);
  }
  if (!is_listed) pop();
  return is_listed;
}

Result<const FileWalker::Entry*> FileWalker::peek(const ListPager& pager, bool rolls_directories) {
  if (!is_started_) {
    struct stat info {};
    if (::stat(root_.c_str(), &info) != 0) return errno_status(errno, "read directory " + root_);
    if (!S_ISDIR(info.st_mode)) return errno_status(ENOTDIR, "read directory " + root_);
    HEADRACE_TRY(enter(base_));
    is_started_ = true;
  }
  while (!path_.empty()) {
    if (path_.back().entries.empty()) {
      path_.pop_back();
      continue;
    }
    if (!is_settled_) {
      HEADRACE_TRY_ASSIGN(is_settled_, settle(pager, rolls_directories));
      if (!is_settled_) continue;
    }
    return &path_.back().entries.back();
  }
  return nullptr;
}

void FileWalker::pop() {
  path_.back().entries.pop_back();
  is_settled_ = false;
}

}  // namespace headrace::file
