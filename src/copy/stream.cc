// Objects from and to descriptors whose length nobody knows.
//
// One slab is filled by read() while earlier ones are under way, so memory is bounded by the pool
// and the length need not be known. Input that ends within the first part is put as one object: an
// upload of parts would cost two more requests.
//
// Every wait for a descriptor is a poll() of 50 ms at most, because a thread inside read() or
// write() on a pipe cannot be told to stop. The descriptors are the caller's and stay in the mode
// that they have: a pipe may be shared with other programs, which O_NONBLOCK would reach as well.
// So a pipe is opened once more to write to it: a mode belongs to who opened.
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "headrace/copy.h"
#include "io/object_scan.h"
#include "io/uploader.h"
#include "store/submit_queue.h"

namespace headrace {
namespace {

// How soon a stop ends a wait for a pipe.
constexpr int kStopSliceMs = 50;
constexpr std::size_t kWriteBytes = std::size_t{1} << 20;
constexpr std::uint64_t kLeastMemory = std::uint64_t{1} << 20;
// Parts double so often before the store's limit of them: from 8 MiB on, 10,000 are 480 GiB,
// where there is memory for the largest.
constexpr std::uint32_t kPartSizes = 5;

Status cancelled() { return Status(Code::kCancelled, "cancelled"); }

/// Largest part of which two fit the memory.
std::uint64_t most_part_bytes(const StreamOptions& options) {
  return std::max(options.memory_bytes, kLeastMemory) / 2 / 4096 * 4096;
}

std::uint64_t part_bytes_of(const StreamOptions& options) {
  return std::clamp(options.part_bytes, std::uint64_t{4096}, most_part_bytes(options));
}

/// Until the descriptor can be read or written, or has an error that read() or write() will tell.
Status wait_for(int fd, short events, const std::stop_token& stop) {
  while (true) {
    if (stop.stop_requested()) return cancelled();
    pollfd one{.fd = fd, .events = events, .revents = 0};
    if (::poll(&one, 1, kStopSliceMs) != 0) return {};
  }
}

/// Fills `bytes` unless the stream ends before; returns how many came.
Result<std::size_t> read_full(int fd, std::span<std::byte> bytes, const std::stop_token& stop) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    HEADRACE_TRY(wait_for(fd, POLLIN, stop));
    const ssize_t count = ::read(fd, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_status(errno, "read the input");
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

/// Where to write to what the descriptor is of: a pipe takes what it has room for, and no write to
/// it waits for its reader.
class Output {
 public:
  explicit Output(int fd) : fd_(fd) {
    struct stat info {};
    if (::fstat(fd, &info) != 0 || !S_ISFIFO(info.st_mode)) return;
    const std::string name = "/proc/self/fd/" + std::to_string(fd);
    own_ = Fd(::open(name.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  }
  int fd() const noexcept { return own_ ? own_.get() : fd_; }

 private:
  const int fd_;
  Fd own_;
};

Status write_full(int fd, std::span<const std::byte> bytes, const std::stop_token& stop) {
  while (!bytes.empty()) {
    HEADRACE_TRY(wait_for(fd, POLLOUT, stop));
    const ssize_t count = ::write(fd, bytes.data(), std::min(bytes.size(), kWriteBytes));
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count < 0 && errno == EPIPE) return Status(Code::kCancelled, "nobody reads the output");
    if (count < 0) return errno_status(errno, "write the output");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

Result<ObjectInfo> put_whole(Store& handle, const std::string& key, Slab slab, std::size_t count,
                             bool if_absent, const std::stop_token& stop) {
  Request request;
  request.op = Op::kPut;
  request.if_absent = if_absent;
  request.key = key;
  request.length_bytes = count;
  request.slab = std::move(slab);
  Completion done = run_request(handle, std::move(request), stop);
  HEADRACE_TRY(std::move(done.status));
  ObjectInfo info;
  info.key = key;
  info.size_bytes = count;
  info.etag = std::move(done.etag);
  return info;
}

Status check(int fd, const StreamOptions& options) {
  if (fd < 0) return Status(Code::kInvalidArgument, "stream: no descriptor");
  if (options.max_in_flight == 0)
    return Status(Code::kInvalidArgument, "stream: max_in_flight is 0");
  return {};
}

Status check_absent(Store& store, const std::string& key, const CallOptions& call) {
  auto found = store.head(key, call);
  if (found) return Status(Code::kChanged, store.object_url(key) + ": the object exists");
  return found.error().code() == Code::kNotFound ? Status() : std::move(found).error();
}

}  // namespace

Result<ObjectInfo> write_stream(int from_fd, Store& to, const std::string& key,
                                const StreamOptions& options, std::stop_token stop) {
  HEADRACE_TRY(check(from_fd, options));
  HEADRACE_TRY_ASSIGN(
      auto pool, SlabPool::create({.limit_bytes = std::max(options.memory_bytes, kLeastMemory)}));
  HEADRACE_TRY_ASSIGN(const auto handle, to.new_handle());
  const StoreTraits& traits = to.traits();
  // One part at a time is slow, but it arrives; a smaller one the store would refuse at the end.
  if (SlabPool::charged_bytes(traits.min_part_bytes) > pool->limit_bytes()) {
    return Status(Code::kInvalidArgument, "stream: parts of " + to.url() + " have at least " +
                                              std::to_string(traits.min_part_bytes) +
                                              " bytes, and the memory does not hold one");
  }
  std::uint64_t part_bytes = std::max(part_bytes_of(options), traits.min_part_bytes);
  const std::uint64_t most_bytes =
      std::clamp(most_part_bytes(options), part_bytes, std::max(part_bytes, traits.max_part_bytes));
  const std::uint32_t parts_of_one_size = std::max(traits.max_parts / kPartSizes, 1U);
  HEADRACE_TRY_ASSIGN(Slab slab, pool->acquire(part_bytes, TimePoint::max()));
  HEADRACE_TRY_ASSIGN(std::size_t count, read_full(from_fd, slab.bytes(), stop));
  if (count < slab.bytes().size())
    return put_whole(*handle, key, std::move(slab), count, options.if_absent, stop);
  HEADRACE_TRY_ASSIGN(
      const auto uploader,
      io::Uploader::begin(to, *handle, key,
                          {.call = {.stop = stop}, .max_in_flight = options.max_in_flight}));
  for (std::uint32_t part_count = 1; count > 0; ++part_count) {
    HEADRACE_TRY(uploader->put(std::move(slab), count));
    if (part_count % parts_of_one_size == 0) part_bytes = std::min(part_bytes * 2, most_bytes);
    HEADRACE_TRY_ASSIGN(slab, uploader->acquire(*pool, part_bytes));
    HEADRACE_TRY_ASSIGN(count, read_full(from_fd, slab.bytes(), stop));
  }
  if (options.if_absent) HEADRACE_TRY(check_absent(to, key, {.stop = stop}));
  return uploader->finish();
}

Result<std::uint64_t> read_stream(Store& from, const std::string& key, int to_fd,
                                  std::uint64_t begin, std::uint64_t end,
                                  const StreamOptions& options, std::stop_token stop) {
  HEADRACE_TRY(check(to_fd, options));
  // Its version is asked for with each part, so that no output mixes two versions.
  const CallOptions call{.stop = stop, .version_id = options.version_id};
  HEADRACE_TRY_ASSIGN(const ObjectInfo info, from.head(key, call));
  end = std::min(end, info.size_bytes);
  if (begin > end)
    return Status(Code::kInvalidArgument, from.object_url(key) + " has " +
                                              std::to_string(info.size_bytes) + " bytes: [" +
                                              std::to_string(begin) + ", ...) is not in it");
  if (begin == end) return std::uint64_t{0};
  HEADRACE_TRY_ASSIGN(
      auto pool, SlabPool::create({.limit_bytes = std::max(options.memory_bytes, kLeastMemory)}));
  const std::uint64_t part_bytes = part_bytes_of(options);
  std::vector<io::ScanPiece> pieces;
  for (std::uint64_t at = begin; at < end; at += part_bytes)
    pieces.push_back({at, std::min(part_bytes, end - at)});
  io::ObjectScan scan(from, *pool, call, options.max_in_flight);
  const Output output(to_fd);
  HEADRACE_TRY(scan.run({.key = info.key, .etag = info.etag, .pieces = pieces},
                        [&](std::size_t, const RangeData& data) {
                          return write_full(output.fd(), data.bytes(), stop);
                        }));
  return end - begin;
}

Status check_replaceable(const std::string& path) {
  return check_replaceable(AT_FDCWD, path, path);
}

}  // namespace headrace
