// Parts are written by a few threads, each at its place, past the page cache where the file system
// takes O_DIRECT: slabs are page-aligned and parts whole pages, but for the last, which is written
// as whole pages and cut off. Where it is refused (tmpfs, some network file systems) the page cache
// is used, and synchronised at the end.
//
// Invariant: failure_ is set before the slab of the failed part goes back, so that whoever waits
// for memory sees it.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/mutex.h"
#include "base/thread_pool.h"
#include "checkpoint/durable_file.h"
#include "checkpoint/part_sink.h"
#include "checkpoint/wait_slice.h"

namespace headrace::checkpoint {
namespace {

constexpr std::size_t kWriters = 4;

class FileSink final : public PartSink {
 public:
  /// `joined`: the file that another process began; else `own` is this one's.
  FileSink(std::shared_ptr<StoreClient> client, std::string directory,
           std::optional<TemporaryFile> own, Fd joined, SinkOptions options)
      : client_(std::move(client)),
        directory_(std::move(directory)),
        options_(std::move(options)),
        own_(std::move(own)),
        joined_(std::move(joined)),
        parts_(options_.part_count),
        writers_(kWriters, options_.part_count) {
    const int flags = ::fcntl(fd(), F_GETFL);
    is_direct_ = flags >= 0 && ::fcntl(fd(), F_SETFL, flags | O_DIRECT) == 0;
  }

  ~FileSink() override { note(Status(Code::kCancelled, "was given up")); }

  void put(std::uint32_t index, Slab slab, std::uint64_t length_bytes) override {
    auto part = std::make_shared<Slab>(std::move(slab));
    {
      MutexLock lock(mutex_);
      ++put_;
    }
    writers_.submit([this, index, length_bytes, part] {
      if (failure().ok()) note(write_part(index, part->bytes(), length_bytes));
      *part = Slab();
      {
        MutexLock lock(mutex_);
        ++arrived_;
        parts_[index].part_number = index + 1;
        parts_[index].size_bytes = length_bytes;
      }
      changed_.notify_all();
    });
  }

  std::uint32_t pending() const override {
    MutexLock lock(mutex_);
    return put_ - arrived_;
  }

  Status failure() const override {
    MutexLock lock(mutex_);
    return failure_.clone();
  }

  std::string token() const override {
    return own_ ? own_->path().substr(own_->path().rfind('/') + 1) : options_.joins;
  }

  Result<std::vector<UploadedPart>> settle(std::uint32_t count, const Pause& pause) override {
    std::vector<UploadedPart> parts;
    {
      MutexLock lock(mutex_);
      while (arrived_ < count && failure_.ok()) wait_slice(lock, changed_, pause);
      HEADRACE_TRY(failure_.clone());
      parts = parts_;
    }
    // Of a file that several machines write, each has pages that only it can bring to the disk.
    if (!own_ && ::fdatasync(fd()) != 0) return errno_status(errno, "fdatasync " + options_.key);
    return parts;
  }

  Result<std::string> publish(std::span<const UploadedPart> parts) override {
    HEADRACE_CHECK(own_.has_value());
    std::uint64_t size_bytes = 0;
    for (const UploadedPart& part : parts) size_bytes += part.size_bytes;
    if (::ftruncate(fd(), static_cast<off_t>(size_bytes)) != 0)
      return errno_status(errno, "truncate " + own_->path());
    HEADRACE_TRY(publish_durable(*own_, directory_, options_.key, false));
    HEADRACE_TRY_ASSIGN(ObjectInfo info, client_->store().head(options_.key));
    return std::move(info.etag);
  }

 private:
  int fd() const noexcept { return own_ ? own_->fd() : joined_.get(); }

  void note(Status status) {
    if (status.ok()) return;
    MutexLock lock(mutex_);
    if (failure_.ok()) failure_ = std::move(status);
  }

  Status write_part(std::uint32_t index, std::span<std::byte> slab, std::uint64_t length_bytes) {
    const std::uint64_t at = index * options_.part_bytes;
    if (is_direct_.load(std::memory_order_relaxed)) {
      // A part that was not made for a file may end within a page.
      const int error = slab.size() < slab_bytes(length_bytes)
                            ? EINVAL
                            : write_at(at, slab.first(slab_bytes(length_bytes)));
      if (error != EINVAL) return status_of(error);
      const int flags = ::fcntl(fd(), F_GETFL);
      static_cast<void>(::fcntl(fd(), F_SETFL, flags & ~O_DIRECT));
      is_direct_.store(false, std::memory_order_relaxed);
    }
    return status_of(write_at(at, slab.first(length_bytes)));
  }

  Status status_of(int error) const {
    if (error == 0) return {};
    return errno_status(error, "write " + directory_ + "/" + options_.key);
  }

  /// \return 0, or what went wrong.
  int write_at(std::uint64_t offset_bytes, std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t count =
          ::pwrite(fd(), bytes.data(), bytes.size(), static_cast<off_t>(offset_bytes));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return errno;
      if (count == 0) return EIO;
      bytes = bytes.subspan(static_cast<std::size_t>(count));
      offset_bytes += static_cast<std::uint64_t>(count);
    }
    return 0;
  }

  const std::shared_ptr<StoreClient> client_;
  const std::string directory_;
  const SinkOptions options_;
  std::optional<TemporaryFile> own_;
  const Fd joined_;
  std::atomic<bool> is_direct_{false};

  mutable Mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t put_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::uint32_t arrived_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::vector<UploadedPart> parts_ HEADRACE_GUARDED_BY(mutex_);
  Status failure_ HEADRACE_GUARDED_BY(mutex_);

  ThreadPool writers_;  // Last: its tasks use all of the above.
};

/// Of a file that another process has begun, on this machine or by a file system that both see.
Result<std::unique_ptr<PartSink>> join_file_sink(std::shared_ptr<StoreClient> client,
                                                 const std::string& directory,
                                                 const SinkOptions& options) {
  const std::string path = directory + "/" + options.key;
  const std::string begun = path.substr(0, path.rfind('/') + 1) + options.joins;
  Fd fd(::open(begun.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd) return errno_status(errno, "open what another rank has begun, " + begun);
  return std::unique_ptr<PartSink>(std::make_unique<FileSink>(
      std::move(client), directory, std::nullopt, std::move(fd), options));
}

}  // namespace

Result<std::unique_ptr<PartSink>> make_file_sink(std::shared_ptr<StoreClient> client,
                                                 const std::string& directory,
                                                 SinkOptions options) {
  if (!options.joins.empty()) return join_file_sink(std::move(client), directory, options);
  HEADRACE_TRY_ASSIGN(TemporaryFile file, begin_durable(directory, options.key));
  // A full disk is told now, not behind gigabytes. File systems that cannot reserve tell it later.
  if (options.size_bytes > 0 &&
      ::fallocate(file.fd(), 0, 0, static_cast<off_t>(options.size_bytes)) != 0 &&
      (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
    return errno_status(errno, "write " + directory + "/" + options.key);
  return std::unique_ptr<PartSink>(std::make_unique<FileSink>(
      std::move(client), directory, std::move(file), Fd(), std::move(options)));
}

}  // namespace headrace::checkpoint
