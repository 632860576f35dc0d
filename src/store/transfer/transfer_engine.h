#pragma once
/// \file
/// TransferEngine: many HTTP transfers in flight over a few connections, on a few reactor threads.
///
/// Place: store drivers (s3/, later gcs/ and azure/) wrap a TransferHandle in the public Store
/// interface and give the engine their HttpProtocol. The engine moves bytes, retries, times out; it
/// knows HTTP but no vendor.
///
/// Contract: every accepted request yields exactly one Completion before its deadline (plus
/// scheduling slack). The engine never calls the caller's code. A cancelled kernel operation owns
/// its slab until the kernel hands it back.
///
/// Threads: TransferEngine and TransferHandle from any thread, except wait(): one thread at a time
/// per handle.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <type_traits>
#include <utility>

#include "headrace/metrics.h"
#include "headrace/store.h"
#include "store/http_protocol.h"
#include "store/net_settings.h"
#include "store/transfer/retry_policy.h"

namespace headrace {

namespace transfer {
class EngineCore;
class HandleCore;
}  // namespace transfer

/// One consumer's queue pair over a shared engine. submit/wait/wake/cancel/stop have exactly the
/// meaning of class Store. Keeps the engine alive. The destructor cancels what is left, waits until
/// the kernel has handed all slabs back, and drops the completions that nobody took.
class TransferHandle {
 public:
  ~TransferHandle();
  TransferHandle(const TransferHandle&) = delete;
  TransferHandle& operator=(const TransferHandle&) = delete;

  /// Accepts while fewer than queue_capacity + max_in_flight requests of this handle are between
  /// submit() and wait().
  std::size_t submit(std::span<Request> requests);
  std::size_t wait(std::span<Completion> out, TimePoint until, std::stop_token stop = {});
  void wake() noexcept;
  void cancel(std::uint64_t tag);
  void stop() noexcept;

 private:
  friend class TransferEngine;
  TransferHandle(std::shared_ptr<transfer::EngineCore> engine, transfer::HandleCore* core);
  std::shared_ptr<transfer::EngineCore> engine_;
  transfer::HandleCore* core_;  // owned by the engine, which keeps it for reuse
};

class TransferEngine {
 public:
  /// Starts the reactor threads; contacts nobody. Uses the poller, limit, timeout, retry and clock
  /// fields of `options`; not url, endpoint or credentials. `protocol` is shared by all reactors.
  /// Errors: kUnsupported (kUring where the kernel refuses it), kInvalidArgument (zero
  /// limits; authorities that cannot be read), kExhausted (threads, file descriptors).
  static Result<std::shared_ptr<TransferEngine>> create(std::shared_ptr<HttpProtocol> protocol,
                                                        const StoreOptions& options,
                                                        NetSettings network);
  /// With what options and environment say about the network.
  static Result<std::shared_ptr<TransferEngine>> create(std::shared_ptr<HttpProtocol> protocol,
                                                        const StoreOptions& options,
                                                        const Environment& environment);
  /// With what `options` say by themselves, without an environment.
  static Result<std::shared_ptr<TransferEngine>> create(std::shared_ptr<HttpProtocol> protocol,
                                                        const StoreOptions& options);
  ~TransferEngine();  ///< The threads end with the last of engine and handles.
  TransferEngine(const TransferEngine&) = delete;
  TransferEngine& operator=(const TransferEngine&) = delete;

  /// Cheap: reuses the queues of destroyed handles.
  std::unique_ptr<TransferHandle> new_handle();
  /// Store::origin().
  std::string origin() const;

  /// One control-plane exchange with retries: while nothing was sent, or when call.is_idempotent.
  /// Blocks. A 2xx answer has passed protocol->check_answer(); everything else is error_from()'s
  /// Status. Errors: those, kCancelled (call_options.stop), kDeadline.
  Result<HttpAnswer> call(const HttpCall& call, const CallOptions& call_options = {});

  /// call(), and what `read(const HttpAnswer&)`, a Result<T>, makes of the answer. One that makes
  /// no sense (kCorrupt) is asked for again over another connection, as call() does with one that
  /// is no HTTP; when such answers keep coming, read()'s error with what was asked. Where the
  /// exchange must not be repeated, the first one is the end.
  template <class Read>
  auto call(HttpCall call, CallOptions call_options, const Read& read)
      -> std::invoke_result_t<const Read&, const HttpAnswer&> {
    call_options.deadline = deadline_of(call_options);
    for (std::uint32_t repeats = 0;; ++repeats) {
      auto answer = this->call(call, call_options);
      if (!answer) return std::move(answer).error();
      auto result = read(*answer);
      if (result) return result;
      const bool is_doubtful = result.error().code() == Code::kCorrupt;
      if (!is_doubtful || !call.is_idempotent || repeats == transfer::kDoubtfulRepeats)
        return std::move(result).error().annotate(call.what);
      call.fresh_connection = true;
    }
  }

  /// When a call with these options has to end. Where they name no deadline, it has the store's
  /// default_timeout, or `at_least` that.
  TimePoint deadline_of(const CallOptions& call_options,
                        std::chrono::milliseconds at_least = {}) const noexcept;
  Clock& clock() const noexcept;

  /// "store.*", summed over reactors; see docs/metrics.md.
  void append_metrics(MetricList& out) const;
  /// "uring" or "epoll": what kAuto chose.
  const char* poller_name() const noexcept;

 private:
  explicit TransferEngine(std::shared_ptr<transfer::EngineCore> core);
  std::shared_ptr<transfer::EngineCore> core_;
};

}  // namespace headrace
