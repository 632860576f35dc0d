#pragma once
/// \file
/// Ledger: how many bytes of files a cache directory holds, over all its processes, and who may add
/// some.
///
/// A small file that all processes have open says it; each has a slot in it for what it added and
/// is about to add. A slot belongs to whoever holds the lock of the same number, so those of dead
/// processes are known, and what they had reserved is free again. Whoever dies while files come or
/// go may leave the sum too high, never too low: then it is counted anew. So it is where one died
/// with something reserved, since a file under an unfinished name may be left of that, and when the
/// ledger was cut off or damaged: whoever finds that out makes another, and nothing is added
/// meanwhile.
///
/// Threads: any.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "base/fd.h"
#include "base/mutex.h"
#include "headrace/status.h"
#include "tier/extent_name.h"
#include "tier/file_locks.h"

namespace headrace::tier {

/// What the file says. \see ledger.cc
struct LedgerReading;

class Ledger {
 public:
  /// `root`: the directory; stays open and outlives this. `before`: called before there is a
  /// ledger, while no other process opens the directory; its error is returned. Errors: kExhausted
  /// (as many processes as there are slots, no room), kUnsupported (no locks, a file that is no
  /// ledger of this version).
  static Result<std::unique_ptr<Ledger>> open(
      int root, const std::function<Status()>& before = [] { return Status(); });
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  /// Files of all processes, as far as the ledger knows; 0 when it cannot be read.
  std::uint64_t file_bytes() const noexcept;
  /// And their reservations; 0 when it cannot be read.
  std::uint64_t used_bytes() const noexcept;
  /// Reserves bytes for a file unless all would be more than `limit_bytes` then, or the ledger
  /// cannot be read or written.
  bool try_reserve(std::uint64_t bytes, std::uint64_t limit_bytes) noexcept;
  void cancel(std::uint64_t bytes) noexcept;

  /// While it lives, files come and go as it is told; nobody counts meanwhile.
  class Change {
   public:
    explicit Change(Ledger& ledger);
    ~Change();
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;
    /// Before the file appears: its reservation becomes part of the sum. False: the ledger could
    /// not be written or has been replaced; the reservation is gone, and the file must not appear.
    bool add(std::uint64_t bytes) noexcept;
    /// After it went, or when it did not appear. Where that cannot be written, the sum stays too
    /// high until somebody counts.
    void subtract(std::uint64_t bytes) noexcept;

   private:
    Ledger& ledger_;
  };

  /// Whether somebody died in a Change, or with something reserved, since files were last counted,
  /// or the ledger cannot be read.
  bool is_doubtful() const noexcept;
  /// Replaces the sum by what `count` says, while no file comes or goes in any process. False:
  /// some do just now, and nothing was counted; or `count` had no answer, and the sum is as it was.
  bool recount(const std::function<std::optional<std::uint64_t>()>& count);
  /// Frees what dead processes had reserved.
  void sweep() noexcept;

  /// Whether no other process has the directory open.
  bool is_alone() const noexcept;

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
  /// What a process says of itself; written as a whole, by its owner alone.
  struct Slot {
    std::uint64_t reserved_bytes = 0;
    std::uint64_t net_bytes = 0;  ///< Added less subtracted, modulo 2^64, of all its owners.
    std::uint32_t is_changing = 0;
    std::uint32_t doubts = 0;  ///< How often it found that the sum may be wrong.
    std::uint64_t check = 0;
  };
  friend struct LedgerReading;

  Ledger(int root, FileLocks locks, Fd file);
  Status claim_slot();
  /// False: it cannot be read, or is not whole.
  bool look(LedgerReading& out) const noexcept;
  /// Changes the own slot. False: it could not be written; what it says of files is then as before.
  template <class Edit>
  bool update(const Edit& edit) noexcept;
  bool store(std::uint32_t index, Slot slot) const noexcept;
  void doubt() noexcept;
  /// Takes another ledger for one that is not whole. False: there is none.
  bool recover();

  const int root_;
  const FileLocks locks_;
  const Fd file_;  // Always the same number; recover() changes what it stands for.
  std::uint32_t slot_index_ = 0;
  Mutex slot_mutex_;
  Slot slot_ HEADRACE_GUARDED_BY(slot_mutex_);  // What the file says, or is to say with the next.
  // Threads of this process share its locks: the first takes the gate, the last gives it back.
  Mutex mutex_;
  std::uint32_t changing_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace::tier
