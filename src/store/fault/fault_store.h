#pragma once
/// \file
/// FaultStore: any store, behaving badly on purpose. For tests: what is above a store must survive
/// all of this.
///
/// Threads: as Store.
#include <cstdint>
#include <memory>

#include "headrace/forwarding_store.h"

namespace headrace {

struct FaultOptions {
  std::uint64_t seed = 1;  ///< All choices follow from it and from the order of calls.
  /// Share (0 .. 1) of the transfers that succeeded below but complete with `error_code`, their
  /// slab with them.
  double error_share = 0;
  Code error_code = Code::kUnavailable;
  /// Share of the gets that succeed but with one bit of their bytes flipped.
  double flip_share = 0;
  /// Share of the control-plane calls that fail with `error_code` without being made.
  double call_error_share = 0;
  /// Share of the submit() calls that take fewer requests than they could: down to none, but one
  /// while nothing is in flight, as from every store (back-pressure ends when completions are
  /// taken).
  double short_accept_share = 0;
  /// Completions are held back until more than this many are there, and then come in random order;
  /// those still held come when nothing more is in flight below, or when wait() is about to return
  /// for wake() or a passed time.
  std::uint32_t hold_back_count = 0;
  /// Overwrite the contents of the slab when a get fails, as its contract allows.
  bool spoil_failed_slabs = true;
};

/// How often each fault was injected, all handles together.
struct FaultCounts {
  std::uint64_t errors = 0;
  std::uint64_t call_errors = 0;
  std::uint64_t short_accepts = 0;
  std::uint64_t held_back = 0;
  std::uint64_t flips = 0;
};

class FaultStore : public ForwardingStore {
 public:
  static std::unique_ptr<FaultStore> create(std::unique_ptr<Store> inner,
                                            const FaultOptions& options);
  virtual FaultCounts counts() const = 0;

 protected:
  using ForwardingStore::ForwardingStore;
};

}  // namespace headrace
