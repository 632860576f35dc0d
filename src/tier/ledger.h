#pragma once
/// \file
/// Ledger: how many bytes of files a cache directory holds, over all its processes, and who may add
/// some.
///
/// A page of memory that all processes map says it; each has a slot in it for what it is about to
/// add. A slot belongs to whoever holds the lock of the same number, so those of dead processes are
/// known, and what they had reserved is free again. Whoever dies while files come or go may leave
/// the sum too high, never too low: then it is counted anew.
///
/// Threads: any.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/fd.h"
#include "base/mutex.h"
#include "headrace/status.h"
#include "tier/extent_name.h"
#include "tier/file_locks.h"

namespace headrace::tier {

struct LedgerPage;

class Ledger {
 public:
  /// `root`: the directory. Errors: kExhausted (as many processes as there are slots, no room),
  /// kUnsupported (no locks), kCorrupt (a file that is no ledger).
  static Result<std::unique_ptr<Ledger>> open(int root);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  /// Files of all processes, as far as the ledger knows.
  std::uint64_t file_bytes() const noexcept;
  /// And their reservations.
  std::uint64_t used_bytes() const noexcept;
  /// Reserves bytes for a file unless all would be more than `limit_bytes` then.
  bool try_reserve(std::uint64_t bytes, std::uint64_t limit_bytes) noexcept;
  void cancel(std::uint64_t bytes) noexcept;

  /// While it lives, files come and go as it is told; nobody counts meanwhile.
  class Change {
   public:
    explicit Change(Ledger& ledger);
    ~Change();
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;
    /// Before the file appears: its reservation becomes part of the sum.
    void add(std::uint64_t bytes) noexcept;
    /// After it went, or when it did not appear.
    void subtract(std::uint64_t bytes) noexcept;

   private:
    Ledger& ledger_;
  };

  /// Whether somebody died in a Change since files were last counted.
  bool is_doubtful() const noexcept;
  /// Replaces the sum by what `count` says, while no file comes or goes in any process. False:
  /// some do just now, and nothing was counted.
  bool recount(const std::function<std::uint64_t()>& count);
  /// Frees what dead processes had reserved.
  void sweep() noexcept;

  /// Of extents that went without having been read again: small numbers of many, for a short time.
  void note_ghost(const ExtentName& extent) noexcept;
  bool was_ghost(const ExtentName& extent) noexcept;

  /// One process evicts at a time. False: another does.
  bool try_begin_eviction() noexcept;
  void end_eviction() noexcept;
  /// One process fetches an extent at a time. False: another does. Errors count as true: fetching
  /// twice is better than never.
  bool try_begin_flight(const ExtentName& extent) noexcept;
  void end_flight(const ExtentName& extent) noexcept;

 private:
  Ledger(FileLocks locks, Fd file, LedgerPage* page);
  Status claim_slot();

  const FileLocks locks_;
  const Fd file_;
  LedgerPage* const page_;
  std::uint32_t slot_ = 0;
  // Threads of this process share its locks: the first takes the gate, the last gives it back.
  Mutex mutex_;
  std::uint32_t changing_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace::tier
