#pragma once
/// \file
/// A file in which every finished request to a store is one line of JSON: what a job read, for
/// audits.
///
/// Place: src/store/log/. log_accesses() wraps a store; without it there is no cost. Lines are
/// collected in memory and appended by a thread of the log, so that neither reactors nor (unless
/// the file's disk falls far behind) consumers wait for the file.
///
/// Threads: AccessLog from any thread.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "headrace/clock.h"
#include "headrace/status.h"
#include "headrace/store.h"

namespace headrace {

struct AccessLogOptions {
  /// The file; appended to, made with mode 0644 when missing. Several logs, of several processes
  /// too, may share one: each write is whole lines. Not so on NFS, which does not append
  /// atomically.
  std::string path;
  /// Of this process in a training job; unset: left out.
  std::optional<std::uint32_t> rank = {};
  /// Lines are written when there are so many bytes of them. Larger: fewer writes, more lost by
  /// `kill -9`.
  std::size_t write_bytes = std::size_t{64} << 10;
  /// Memory for lines; with so many bytes waiting for the file, consumers wait too. At least
  /// write_bytes.
  std::size_t buffer_bytes = std::size_t{1} << 20;
  /// Longest that a line waits for others.
  std::chrono::milliseconds write_interval{1000};
  Clock* clock = nullptr;  ///< nullptr: system_clock(). Must be the one of the store.
  /// Time for the lines, since 1970 UTC. Empty: the system's.
  std::function<std::chrono::sys_time<Microseconds>()> wall_clock = {};
};

/// One line. The texts need to live during AccessLog::add() only.
struct AccessRecord {
  std::string_view operation = {};  ///< "get", "put", ...; see docs/stores.md.
  std::string_view root = {};       ///< Store::url().
  std::string_view key = {};        ///< Or prefix.
  std::string_view to_key = {};     ///< Of a copy; empty: left out.
  std::string_view version = {};    ///< ETag; empty: left out.
  bool is_transfer = false;         ///< The next three are left out otherwise.
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;  ///< Asked for.
  std::uint64_t moved_bytes = 0;
  Code outcome = Code::kOk;
  TimePoint started{}, finished{};
};

class AccessLog {
 public:
  /// Opens the file and starts the thread. When the file does not end in a newline (somebody was
  /// killed while writing), one is added, so that only that line is broken. Errors: those of the
  /// file, kInvalidArgument (options), kExhausted (no thread).
  static Result<std::shared_ptr<AccessLog>> create(const AccessLogOptions& options);
  /// Writes what is left. What fails then is lost: flush() before to know.
  virtual ~AccessLog() = default;
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  /// Takes one line; never waits for the file. Dropped after a failure.
  virtual void add(const AccessRecord& record) = 0;
  /// For the lines from now on.
  virtual void set_rank(std::uint32_t rank) = 0;
  /// Waits while the memory for lines is full, at most 50 ms; false: it still is.
  virtual bool wait_for_room() = 0;
  /// Has what was added before written soon. Never waits.
  virtual void hurry() noexcept = 0;
  /// Waits until what was added before is in the file. Errors: those of status().
  virtual Status flush() = 0;
  /// The first failure to write, which is for good: kExhausted, with the file and the reason. O(1).
  virtual Status status() const = 0;

 protected:
  AccessLog() = default;
};

/// A handle on the store of `inner` whose requests, and those of its new_handle()s, go into `log`:
/// transfers when wait() hands their completions out (or the handle dies with them), other calls
/// when they return. Requests that never reached the store are left out. local_directory() is
/// empty: every access is a request.
///
/// Once the log has failed, calls are refused and transfers complete with its status: nothing is
/// delivered that was not recorded, except what was waiting in memory when the write failed.
std::unique_ptr<Store> log_accesses(std::unique_ptr<Store> inner, std::shared_ptr<AccessLog> log,
                                    Clock* clock = nullptr);

}  // namespace headrace
