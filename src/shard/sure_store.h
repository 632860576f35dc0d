#pragma once
/// \file
/// SureStore: another store, whose gets give only bytes that came twice the same, each time over a
/// connection of its own. For making again what made no sense: what still makes none is the data's
/// fault, whatever the format has no checksums for.
///
/// Place: open.cc.
///
/// Threads: a handle has one owner.
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "headrace/forwarding_store.h"
#include "headrace/second_look.h"

namespace headrace::detail {

class SureStore final : public ForwardingStore {
 public:
  /// `inner` outlives it.
  explicit SureStore(Store& inner) : ForwardingStore(inner) {}
  /// A handle: owns its store.
  explicit SureStore(std::unique_ptr<Store> inner) : ForwardingStore(std::move(inner)) {}

  /// Only gets are repeated.
  std::size_t submit(std::span<Request> requests) override;
  /// Errors of a get besides those of the store below: kUnavailable, when it came differently each
  /// of SecondLook::kMostReads times.
  std::size_t wait(std::span<Completion> out, TimePoint until, std::stop_token stop) override;
  void cancel(std::uint64_t tag) override;
  void stop() noexcept override;

 private:
  /// A get that has not been handed back.
  struct Read {
    Request request;  ///< Its slab is here only between two reads.
    SecondLook look = {};
    bool is_cancelled = false;
  };
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(std::make_unique<SureStore>(std::move(handle)));
  }
  Request next_read(std::uint64_t number);
  void read_again();
  bool is_done(Completion& done);
  Completion give_up(std::uint64_t number);

  std::map<std::uint64_t, Read> reads_;  ///< By our number, the tag below.
  std::deque<std::uint64_t> waiting_;    ///< To be read again, where the store below took no more.
  std::uint64_t next_number_ = 0;
  bool is_stopped_ = false;
};

}  // namespace headrace::detail
