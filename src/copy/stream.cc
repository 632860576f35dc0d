// Objects from and to descriptors whose length nobody knows.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "base/errno_status.h"
#include "headrace/copy.h"

namespace headrace {
namespace {

constexpr std::chrono::milliseconds kBackPressurePause{1};
// How soon a stop ends a wait for a pipe.
constexpr int kStopSliceMs = 50;
constexpr std::size_t kWriteBytes = std::size_t{1} << 20;
constexpr std::uint64_t kLeastMemory = std::uint64_t{1} << 20;

Status cancelled() { return Status(Code::kCancelled, "cancelled"); }

/// Part size that lets at least two parts fit the memory.
std::uint64_t part_bytes_of(const StreamOptions& options) {
  return std::clamp(options.part_bytes, std::uint64_t{4096},
                    std::max(options.memory_bytes, kLeastMemory) / 2 / 4096 * 4096);
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

Status write_full(int fd, std::span<const std::byte> bytes, const std::stop_token& stop) {
  while (!bytes.empty()) {
    HEADRACE_TRY(wait_for(fd, POLLOUT, stop));
    // A pipe that is ready takes this much without blocking for long.
    const ssize_t count = ::write(fd, bytes.data(), std::min(bytes.size(), kWriteBytes));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EPIPE) return Status(Code::kCancelled, "nobody reads the output");
    if (count < 0) return errno_status(errno, "write the output");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

/// Submits one request; the pause is for stores that are short of something others hold.
Status submit_one(Store& handle, Request&& request, const std::stop_token& stop) {
  while (handle.submit({&request, 1}) == 0) {
    if (stop.stop_requested()) return cancelled();
    static_cast<void>(
        handle.wait(std::span<Completion>(), system_clock().now() + kBackPressurePause, stop));
  }
  return {};
}

class StreamWriter {
 public:
  StreamWriter(Store& to, Store& handle, SlabPool& pool, const std::string& key,
               const StreamOptions& options, const std::stop_token& stop)
      : to_(to), handle_(handle), pool_(pool), key_(key), options_(options), stop_(stop) {
    part_bytes_ = std::max(part_bytes_of(options),
                           std::min(to.traits().min_part_bytes, options.memory_bytes / 2));
  }

  Result<ObjectInfo> run(int fd) {
    auto result = write(fd);
    if (!result) {
      handle_.stop();
      Completion done;
      while (in_flight_ > 0 && handle_.wait({&done, 1}, TimePoint::max()) > 0) --in_flight_;
      if (!upload_id_.empty()) static_cast<void>(to_.abort_upload(key_, upload_id_, {}));
    }
    return result;
  }

 private:
  Result<ObjectInfo> write(int fd) {
    const CallOptions call{.stop = stop_};
    HEADRACE_TRY_ASSIGN(Slab slab, pool_.acquire(part_bytes_, TimePoint::max()));
    HEADRACE_TRY_ASSIGN(std::size_t count, read_full(fd, slab.bytes(), stop_));
    if (count < slab.bytes().size()) return put_whole(std::move(slab), count);
    HEADRACE_TRY_ASSIGN(upload_id_, to_.create_upload(key_, call));
    while (count > 0) {
      HEADRACE_TRY(send(std::move(slab), count));
      while (in_flight_ >= options_.max_in_flight) HEADRACE_TRY(receive());
      HEADRACE_TRY_ASSIGN(slab, next_slab());
      HEADRACE_TRY_ASSIGN(count, read_full(fd, slab.bytes(), stop_));
    }
    while (in_flight_ > 0) HEADRACE_TRY(receive());
    std::sort(parts_.begin(), parts_.end(), [](const UploadedPart& a, const UploadedPart& b) {
      return a.part_number < b.part_number;
    });
    return to_.complete_upload(key_, upload_id_, parts_, call);
  }

  Result<ObjectInfo> put_whole(Slab slab, std::size_t count) {
    Request request;
    request.op = Op::kPut;
    request.key = key_;
    request.length_bytes = count;
    request.slab = std::move(slab);
    HEADRACE_TRY(submit_one(handle_, std::move(request), stop_));
    ++in_flight_;
    Completion done;
    HEADRACE_TRY(wait(done));
    ObjectInfo info;
    info.key = key_;
    info.size_bytes = count;
    info.etag = std::move(done.etag);
    return info;
  }

  Result<Slab> next_slab() {
    while (in_flight_ > 0) {
      auto slab = pool_.try_acquire(part_bytes_);
      if (slab || slab.error().code() != Code::kExhausted) return slab;
      HEADRACE_TRY(receive());
    }
    return pool_.acquire(part_bytes_, TimePoint::max());
  }

  Status send(Slab slab, std::size_t count) {
    const std::uint32_t number = ++sent_count_;
    if (number > to_.traits().max_parts)
      return Status(Code::kUnsupported, key_ + ": the input is longer than " +
                                            std::to_string(to_.traits().max_parts) +
                                            " parts; give a larger part size");
    Request request;
    request.op = Op::kPutPart;
    request.key = key_;
    request.upload_id = upload_id_;
    request.part_number = number;
    request.length_bytes = count;
    request.slab = std::move(slab);
    request.tag = (std::uint64_t{number} << 40) | count;
    HEADRACE_TRY(submit_one(handle_, std::move(request), stop_));
    ++in_flight_;
    return {};
  }

  Status receive() {
    Completion done;
    HEADRACE_TRY(wait(done));
    parts_.push_back({static_cast<std::uint32_t>(done.tag >> 40), std::move(done.etag),
                      done.tag & ((std::uint64_t{1} << 40) - 1), std::move(done.checksum)});
    return {};
  }

  Status wait(Completion& done) {
    while (handle_.wait({&done, 1}, TimePoint::max(), stop_) == 0) {
      if (stop_.stop_requested()) return cancelled();
    }
    --in_flight_;
    return std::move(done.status);
  }

  Store& to_;
  Store& handle_;
  SlabPool& pool_;
  const std::string& key_;
  const StreamOptions& options_;
  const std::stop_token& stop_;
  std::uint64_t part_bytes_ = 0;
  std::string upload_id_;
  std::uint32_t sent_count_ = 0;
  std::uint32_t in_flight_ = 0;
  std::vector<UploadedPart> parts_;
};

/// Parts in flight and parts that wait for their turn to be written.
class StreamReader {
 public:
  StreamReader(Store& handle, SlabPool& pool, const ObjectInfo& info, const StreamOptions& options,
               const std::stop_token& stop)
      : handle_(handle),
        pool_(pool),
        info_(info),
        options_(options),
        stop_(stop),
        part_bytes_(part_bytes_of(options)) {}

  Result<std::uint64_t> run(int fd, std::uint64_t begin, std::uint64_t end) {
    next_ = begin;
    end_ = end;
    Status status = read(fd);
    if (status.ok()) return end - begin;
    handle_.stop();
    Completion done;
    while (in_flight_ > 0 && handle_.wait({&done, 1}, TimePoint::max()) > 0) --in_flight_;
    return status;
  }

 private:
  Status read(int fd) {
    while (next_ < end_ || !parts_.empty()) {
      HEADRACE_TRY(send());
      HEADRACE_TRY(receive());
      while (!parts_.empty() && parts_.front()) {
        HEADRACE_TRY(write_full(fd, parts_.front()->bytes(), stop_));
        parts_.pop_front();
        ++first_index_;
      }
    }
    return {};
  }

  Status send() {
    while (next_ < end_ && parts_.size() < options_.max_in_flight) {
      const std::uint64_t length = std::min(part_bytes_, end_ - next_);
      auto slab =
          parts_.empty() ? pool_.acquire(length, TimePoint::max()) : pool_.try_acquire(length);
      if (!slab && slab.error().code() == Code::kExhausted) return {};
      if (!slab) return std::move(slab).error();
      Request request;
      request.key = info_.key;
      request.etag = info_.etag;
      request.offset_bytes = next_;
      request.length_bytes = length;
      request.slab = *std::move(slab);
      request.tag = first_index_ + parts_.size();
      HEADRACE_TRY(submit_one(handle_, std::move(request), stop_));
      parts_.emplace_back();
      next_ += length;
      ++in_flight_;
    }
    return {};
  }

  Status receive() {
    Completion done;
    while (handle_.wait({&done, 1}, TimePoint::max(), stop_) == 0) {
      if (stop_.stop_requested()) return cancelled();
    }
    --in_flight_;
    HEADRACE_TRY(std::move(done.status));
    parts_[done.tag - first_index_] = std::move(done.slab);
    return {};
  }

  Store& handle_;
  SlabPool& pool_;
  const ObjectInfo& info_;
  const StreamOptions& options_;
  const std::stop_token& stop_;
  const std::uint64_t part_bytes_;
  std::uint64_t next_ = 0, end_ = 0;
  std::deque<std::optional<Slab>> parts_;
  std::uint64_t first_index_ = 0;
  std::uint32_t in_flight_ = 0;
};

Status check(int fd, const StreamOptions& options) {
  if (fd < 0) return Status(Code::kInvalidArgument, "stream: no descriptor");
  if (options.max_in_flight == 0)
    return Status(Code::kInvalidArgument, "stream: max_in_flight is 0");
  return {};
}

}  // namespace

Result<ObjectInfo> write_stream(int from_fd, Store& to, const std::string& key,
                                const StreamOptions& options, std::stop_token stop) {
  HEADRACE_TRY(check(from_fd, options));
  HEADRACE_TRY_ASSIGN(
      auto pool, SlabPool::create({.limit_bytes = std::max(options.memory_bytes, kLeastMemory)}));
  HEADRACE_TRY_ASSIGN(const auto handle, to.new_handle());
  return StreamWriter(to, *handle, *pool, key, options, stop).run(from_fd);
}

Result<std::uint64_t> read_stream(Store& from, const std::string& key, int to_fd,
                                  std::uint64_t begin, std::uint64_t end,
                                  const StreamOptions& options, std::stop_token stop) {
  HEADRACE_TRY(check(to_fd, options));
  HEADRACE_TRY_ASSIGN(const ObjectInfo info, from.head(key, {.stop = stop}));
  end = std::min(end, info.size_bytes);
  if (begin > end)
    return Status(Code::kInvalidArgument, from.object_url(key) + " has " +
                                              std::to_string(info.size_bytes) + " bytes: [" +
                                              std::to_string(begin) + ", ...) is not in it");
  if (begin == end) return std::uint64_t{0};
  HEADRACE_TRY_ASSIGN(
      auto pool, SlabPool::create({.limit_bytes = std::max(options.memory_bytes, kLeastMemory)}));
  HEADRACE_TRY_ASSIGN(const auto handle, from.new_handle());
  return StreamReader(*handle, *pool, info, options, stop).run(to_fd, begin, end);
}

}  // namespace headrace
