// A record is on its way to the file when add() returns, and a file that cannot be written ends
// the job instead of losing lines: failure_ stays, and status() says so from then on. Two buffers
// are swapped: callers append to filling_ under the lock, the thread writes the other without it,
// so nobody waits for a disk but in wait_for_room(), when buffer_bytes are full.
//
// Counters rather than events say what is written: flush() waits until written_bytes_ has reached
// what added_bytes_ was when it was called, whatever is added meanwhile.
#include "headrace/access_log.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <thread>
#include <utility>

#include "base/errno_status.h"
#include "base/fd.h"
#include "base/mutex.h"
#include "base/start_thread.h"
#include "store/log/access_line.h"

namespace headrace {
namespace {

constexpr std::chrono::milliseconds kRoomSlice{50};
// What another process needs for a block of lines, many times over: half a line that is still the
// end of the file then is nobody's any more.
constexpr std::chrono::milliseconds kBlockTime{10};

std::chrono::sys_time<Microseconds> system_time() {
  return std::chrono::floor<Microseconds>(std::chrono::system_clock::now());
}

/// A file that may be written and not read counts as whole.
bool ends_in_half_a_line(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0)
    return false;
  char last = '\n';
  return ::pread(fd.get(), &last, 1, info.st_size - 1) == 1 && last != '\n';
}

bool is_left_torn(const std::string& path) {
  if (!ends_in_half_a_line(path)) return false;
  std::this_thread::sleep_for(kBlockTime);
  return ends_in_half_a_line(path);
}

/// 0 or errno.
int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno != EINTR) return errno;
    if (count > 0) bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return 0;
}

class FileLog final : public AccessLog {
 public:
  FileLog(const AccessLogOptions& options, Fd fd, bool is_torn)
      : options_(options),
        fd_(std::move(fd)),
        clock_(options.clock ? *options.clock : headrace::system_clock()),
        writer_{::getpid(), options.rank} {
    if (!options_.wall_clock) options_.wall_clock = system_time;
    // More than the limit: lines that come at once do not ask one by one whether there is room.
    filling_.reserve(options.buffer_bytes + options.write_bytes);
    writing_.reserve(options.buffer_bytes + options.write_bytes);
    if (is_torn) filling_ += '\n';
    added_bytes_ = filling_.size();
  }

  ~FileLog() override {
    {
      MutexLock lock(mutex_);
      is_ending_ = true;
    }
    work_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  Status start() {
    // Signals of the program are for its own threads; SIGPIPE would end it.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    Status status;
    if (!start_thread(thread_, [this] { run(); }))
      status = Status(Code::kExhausted, name() + ": no thread can be started");
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return status;
  }

  void add(const AccessRecord& record) override {
    // Not the time of this call: a consumer may come late for its completions.
    const auto age = std::chrono::floor<Microseconds>(clock_.now() - record.finished);
    const auto finished = options_.wall_clock() - age;
    MutexLock lock(mutex_);
    if (!failure_.ok()) return;
    const std::size_t before = filling_.size();
    append_access_line(filling_, writer_, record, finished);
    added_bytes_ += filling_.size() - before;
    // The thread sleeps until the first line, then until the interval has passed or a write is
    // full: it is woken for these two and not for every line.
    if (before == 0 || (before < options_.write_bytes && filling_.size() >= options_.write_bytes))
      work_.notify_one();
  }

  void set_rank(std::uint32_t rank) override {
    MutexLock lock(mutex_);
    writer_.rank = rank;
  }

  bool wait_for_room() override {
    MutexLock lock(mutex_);
    if (has_room()) return true;
    const TimePoint until = std::chrono::steady_clock::now() + kRoomSlice;
    while (!has_room() && lock.wait_until(written_, until)) {
    }
    return has_room();
  }

  void hurry() noexcept override {
    {
      MutexLock lock(mutex_);
      is_urgent_ = true;
    }
    work_.notify_one();
  }

  Status flush() override {
    hurry();
    MutexLock lock(mutex_);
    const std::uint64_t wanted = added_bytes_;
    while (written_bytes_ < wanted && failure_.ok()) lock.wait(written_);
    return failure_.clone();
  }

  Status status() const override {
    // Pairs with the release in run(); the message does not change after it.
    if (!has_failed_.load(std::memory_order_acquire)) return {};
    MutexLock lock(mutex_);
    return failure_.clone();
  }

 private:
  std::string name() const { return "access log " + options_.path; }
  bool has_room() const HEADRACE_REQUIRES(mutex_) {
    return filling_.size() < options_.buffer_bytes || !failure_.ok();
  }

  void run() {
    MutexLock lock(mutex_);
    while (true) {
      while (filling_.empty() && !is_ending_) lock.wait(work_);
      if (filling_.empty()) return;
      const TimePoint until = std::chrono::steady_clock::now() + options_.write_interval;
      while (filling_.size() < options_.write_bytes && !is_ending_ && !is_urgent_ &&
             lock.wait_until(work_, until)) {
      }
      is_urgent_ = false;
      filling_.swap(writing_);
      lock.unlock();
      const int error = write_all(fd_.get(), writing_);
      lock.lock();
      written_bytes_ += writing_.size();
      writing_.clear();
      if (error != 0 && failure_.ok()) fail(error);
      written_.notify_all();
    }
  }

  void fail(int error) HEADRACE_REQUIRES(mutex_) {
    const Status cause = errno_status(error, name() + ": cannot be written");
    // Whatever the reason, to ask the store again would not help.
    failure_ = Status(Code::kExhausted,
                      std::string(cause.message()) +
                          "; accesses must not go unrecorded, so the job ends: make room for the "
                          "log, name another file, or run without");
    filling_.clear();
    has_failed_.store(true, std::memory_order_release);
  }

  AccessLogOptions options_;
  const Fd fd_;
  const Clock& clock_;
  std::atomic<bool> has_failed_{false};
  mutable Mutex mutex_;
  AccessWriter writer_ HEADRACE_GUARDED_BY(mutex_);
  std::condition_variable work_;     // something to write, or the end
  std::condition_variable written_;  // something was written, or failed
  std::string filling_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t added_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::uint64_t written_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;
  Status failure_ HEADRACE_GUARDED_BY(mutex_);
  bool is_urgent_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool is_ending_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::string writing_;  // by the thread only
  std::thread thread_;
};

}  // namespace

Result<std::shared_ptr<AccessLog>> AccessLog::create(const AccessLogOptions& options) {
  if (options.path.empty()) return Status(Code::kInvalidArgument, "access log: no file is named");
  if (options.write_bytes == 0 || options.buffer_bytes < options.write_bytes ||
      options.write_interval.count() < 0) {
    return Status(Code::kInvalidArgument,
                  "access log " + options.path +
                      ": expected 0 < write_bytes <= buffer_bytes and no negative interval");
  }
  const bool is_torn = is_left_torn(options.path);
  Fd fd(::open(options.path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
  if (!fd) return errno_status(errno, "access log " + options.path + ": cannot be opened");
  auto log = std::make_shared<FileLog>(options, std::move(fd), is_torn);
  HEADRACE_TRY(log->start());
  return std::shared_ptr<AccessLog>(std::move(log));
}

}  // namespace headrace
