// Files appear by rename() from a temporary file in the same directory, so readers see one version
// or another. A version (ETag) is made of what stat() says; a read compares it before and after.
//
// rename() has no condition: If-Match and If-None-Match are checked before and once more right
// before the rename, and a writer that comes in between is not seen. publish() itself refuses to
// replace with if_absent.
//
// Listings keep their walker between pages, so a directory is read once and not once a page.
#include "store/file/file_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <set>
#include <string>
#include <utility>

#include "base/atomic_file.h"
#include "base/errno_status.h"
#include "base/mutex.h"
#include "store/file/file_io.h"
#include "store/file/file_key.h"
#include "store/file/file_uploads.h"
#include "store/file/file_walker.h"
#include "store/local_store.h"

namespace headrace {
namespace {

using namespace file;  // NOLINT(google-build-using-namespace): the folder's own namespace

// NVMe and network file systems are at full speed with a few reads of MiBs in flight (facts: 8 to
// 16); more threads only cost.
constexpr std::uint32_t kMostWorkers = 16;
// Listings that may be continued without reading their directories again.
constexpr std::size_t kKeptWalkers = 4;
constexpr std::size_t kRememberedDirectories = 4096;

class FileBackend final : public LocalBackend {
 public:
  explicit FileBackend(std::string root) : root_(std::move(root)), uploads_(root_) {}

  Status get(const Request& request, std::span<std::byte> bytes, const Interrupt& interrupt,
             Transferred& out) override {
    HEADRACE_TRY(check_key(request.key));
    struct stat info {};
    HEADRACE_TRY_ASSIGN(const Fd fd, open_object(path_of(request.key), info));
    out.etag = etag_of(info);
    if (!request.etag.empty() && request.etag != out.etag) return changed(out.etag);
    out.object_size_bytes = static_cast<std::uint64_t>(info.st_size);
    HEADRACE_TRY_ASSIGN(out.length_bytes, readable_bytes(request, out.object_size_bytes));
    HEADRACE_TRY(
        read_exactly(fd.get(), request.offset_bytes, bytes.first(out.length_bytes), interrupt));
    return check_unchanged(fd.get(), info);
  }

  Status put(const Request& request, std::span<const std::byte> bytes, const Interrupt& interrupt,
             Transferred& out) override {
    const std::string key(request.key);
    HEADRACE_TRY(check_conditions(request));
    HEADRACE_TRY_ASSIGN(TemporaryFile file, temporary_for(key));
    HEADRACE_TRY(write_all(file, bytes, interrupt));
    // Again, as close to the replacement as a file system allows: rename() itself has no condition.
    HEADRACE_TRY(check_conditions(request));
    HEADRACE_TRY_ASSIGN(ObjectInfo info, publish(file, key, request.if_absent));
    out.etag = std::move(info.etag);
    out.length_bytes = bytes.size();
    return {};
  }

  Status put_part(const Request& request, std::span<const std::byte> bytes,
                  const Interrupt& interrupt, Transferred& out) override {
    HEADRACE_TRY_ASSIGN(out.etag, uploads_.put_part(request, bytes, interrupt));
    out.length_bytes = bytes.size();
    return {};
  }

  Result<ObjectInfo> head(const std::string& key) override {
    HEADRACE_TRY(check_key(key));
    struct stat info {};
    if (::stat(path_of(key).c_str(), &info) != 0)
      return errno_status(errno, "stat " + path_of(key));
    if (!S_ISREG(info.st_mode)) return Status(Code::kNotFound, path_of(key) + " is not a file");
    return info_of(key, info);
  }

  Result<ListPage> list(const ListRequest& request, const Interrupt& interrupt) override {
    ListPager pager(request);
    HEADRACE_TRY(pager.check());
    if (request.prefix.find('/') != std::string::npos) {
      HEADRACE_TRY(check_key(request.prefix.substr(0, request.prefix.rfind('/'))));
    }
    FileWalker walker = take_walker(request);
    for (std::size_t seen = 0;; ++seen) {
      if (seen % 256 == 0) HEADRACE_TRY(interrupt.check());
      HEADRACE_TRY_ASSIGN(const FileWalker::Entry* const entry,
                          walker.peek(pager, request.delimiter == "/"));
      if (entry == nullptr) return pager.take();
      const std::string_view common =
          entry->is_directory ? std::string_view(entry->name) : pager.rolled_up(entry->name);
      const bool is_added = common.empty() ? pager.add_object(info_of(entry->name, walker.info()))
                                           : pager.add_common_prefix(common);
      if (!is_added) break;
      walker.pop();
    }
    ListPage page = pager.take();
    keep_walker(request, page.continuation, std::move(walker));
    return page;
  }

  Status remove(const std::string& key) override {
    HEADRACE_TRY(check_key(key));
    // Links are followed to read; but what lies behind one belongs to somebody else.
    auto parent = open_real_parent(root_, key);
    if (!parent)
      return parent.error().code() == Code::kNotFound ? Status() : std::move(parent).error();
    // EISDIR: a directory is no object, so there is nothing to remove.
    const std::string name = key.substr(key.rfind('/') + 1);
    if (::unlinkat(parent->get(), name.c_str(), 0) == 0 || errno == ENOENT || errno == EISDIR)
      return {};
    return errno_status(errno, "remove " + path_of(key));
  }

  Result<ObjectInfo> copy(const std::string& from_key, const std::string& to_key,
                          const ObjectSettings&, const Interrupt& interrupt) override {
    HEADRACE_TRY(check_key(from_key));
    struct stat info {};
    HEADRACE_TRY_ASSIGN(const Fd from, open_object(path_of(from_key), info));
    HEADRACE_TRY_ASSIGN(TemporaryFile file, temporary_for(to_key, info.st_mode & 0777));
    HEADRACE_TRY(
        append_file(file, from.get(), static_cast<std::uint64_t>(info.st_size), interrupt));
    HEADRACE_TRY(check_unchanged(from.get(), info));
    return publish(file, to_key, false);
  }

  Result<std::string> create_upload(const std::string& key, const ObjectSettings&) override {
    HEADRACE_TRY(check_key(key));
    return uploads_.create(key);
  }

  Result<ObjectInfo> complete_upload(const std::string& key, const std::string& upload_id,
                                     std::span<const UploadedPart> parts,
                                     const Interrupt& interrupt) override {
    HEADRACE_TRY_ASSIGN(TemporaryFile file, temporary_for(key));
    HEADRACE_TRY(uploads_.assemble(key, upload_id, parts, file, interrupt));
    HEADRACE_TRY_ASSIGN(ObjectInfo info, publish(file, key, false));
    HEADRACE_TRY(uploads_.discard(key, upload_id));
    return info;
  }

  Status abort_upload(const std::string& key, const std::string& upload_id) override {
    return uploads_.discard(key, upload_id);
  }

 private:
  struct KeptWalker {
    std::string prefix, delimiter, continuation;
    FileWalker walker;
  };

  std::string path_of(std::string_view key) const { return root_ + "/" + std::string(key); }
  static Status changed(const std::string& etag) {
    return Status(Code::kChanged, "the object is now version " + etag);
  }

  /// If-Match and If-None-Match of a put.
  Status check_conditions(const Request& request) {
    if (request.etag.empty() && !request.if_absent) return {};
    auto found = head(std::string(request.key));
    if (request.if_absent) {
      if (found) return Status(Code::kChanged, "the object exists");
      return found.error().code() == Code::kNotFound ? Status() : std::move(found).error();
    }
    if (!found) return std::move(found).error();
    return found->etag == request.etag ? Status() : changed(found->etag);
  }

  /// A temporary file in the directory where `key` will be, with the permissions of the file that
  /// it will replace; a new one with those of `mode` that the umask leaves.
  Result<TemporaryFile> temporary_for(const std::string& key, mode_t mode = 0666)
      HEADRACE_EXCLUDES(mutex_) {
    HEADRACE_TRY(check_key(key));
    const std::string path = path_of(key);
    const std::string directory = path.substr(0, path.rfind('/'));
    HEADRACE_TRY(make_directories(directory));
    if (is_first_use(directory)) remove_stale_temporaries(directory);
    auto file = TemporaryFile::create(directory, mode);
    if (!file && ::access((directory + "/.").c_str(), F_OK) != 0 && errno == ENOTDIR) {
      return Status(Code::kUnsupported, "an object is in the way of directory " + directory);
    }
    // Before anything is written: what is private is never readable under another name. File
    // systems without permissions refuse, and need none.
    struct stat old {};
    if (file && ::lstat(path.c_str(), &old) == 0 && S_ISREG(old.st_mode))
      static_cast<void>(::fchmod(file->fd(), old.st_mode & 0777));
    return file;
  }
  Result<ObjectInfo> publish(TemporaryFile& file, const std::string& key, bool if_absent) {
    const std::string path = path_of(key);
    struct stat info {};
    if (::fstat(file.fd(), &info) != 0) return errno_status(errno, "stat " + file.path());
    Status status = file.publish(path, if_absent);
    if (status.code() == Code::kNotFound && ::stat(path.c_str(), &info) == 0 &&
        S_ISDIR(info.st_mode)) {
      return Status(Code::kUnsupported, "a directory is in the way of object " + path);
    }
    if (!status.ok()) return status;
    return info_of(key, info);
  }
  bool is_first_use(const std::string& directory) HEADRACE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (cleaned_.size() == kRememberedDirectories) cleaned_.clear();
    return cleaned_.insert(directory).second;
  }

  FileWalker take_walker(const ListRequest& request) HEADRACE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const auto it = std::find_if(walkers_.begin(), walkers_.end(), [&](const KeptWalker& kept) {
      return kept.continuation == request.continuation && kept.prefix == request.prefix &&
             kept.delimiter == request.delimiter;
    });
    if (request.continuation.empty() || it == walkers_.end()) return FileWalker(root_, request);
    FileWalker walker = std::move(it->walker);
    walkers_.erase(it);
    return walker;
  }
  void keep_walker(const ListRequest& request, const std::string& continuation, FileWalker&& walker)
      HEADRACE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (walkers_.size() == kKeptWalkers) walkers_.pop_front();
    walkers_.push_back({request.prefix, request.delimiter, continuation, std::move(walker)});
  }

  const std::string root_;
  FileUploads uploads_;
  Mutex mutex_;
  std::set<std::string> cleaned_
      HEADRACE_GUARDED_BY(mutex_);  // directories without temporary files of the dead
  std::list<KeptWalker> walkers_ HEADRACE_GUARDED_BY(mutex_);
};

/// Which files they are: a path may be relative, and another file system may lie there tomorrow,
/// whose files have the same times and inodes.
std::string origin_of(const std::string& root) {
  struct stat info {};
  const bool is_there = ::stat(root.c_str(), &info) == 0;
  return "device " + (is_there ? std::to_string(info.st_dev) : "unknown") + " " + root;
}

}  // namespace

Result<std::unique_ptr<Store>> open_file_store(const StoreOptions& options) {
  HEADRACE_TRY_ASSIGN(std::string root, lasting_root_of(options.url));
  std::string url = options.url;
  while (url.size() > 1 && url.back() == '/' && !url.ends_with("://")) url.pop_back();
  std::string directory = root;
  std::string origin = origin_of(root);
  return make_local_store(
      std::make_unique<FileBackend>(std::move(root)),
      {.url = std::move(url),
       .worker_limit = std::clamp<std::uint32_t>(options.max_in_flight, 1, kMostWorkers),
       .accept_limit = std::size_t{options.queue_capacity} + options.max_in_flight,
       .default_timeout = options.default_timeout,
       .clock = options.clock,
       .local_directory = std::move(directory),
       .origin = std::move(origin)});
}

}  // namespace headrace
