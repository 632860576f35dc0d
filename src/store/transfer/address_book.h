#pragma once
/// \file
/// The addresses of one endpoint and which of them to connect to next. One owner.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "headrace/clock.h"
#include "reactor/resolver.h"

namespace headrace::transfer {

/// How long an address that refused is avoided while others exist. Long enough not to pay a connect
/// timeout per connection, short enough to use a restarted server again within a retry or two.
constexpr std::chrono::seconds kAvoidFailedAddress{10};
/// S3's own records live a few seconds, and its clients are asked to spread over the answers;
/// looking up again costs nothing on the data path because open connections stay.
constexpr std::chrono::seconds kAddressLifetime{30};

/// Not at once, so that an outage does not turn into a stream of name look-ups.
constexpr std::chrono::seconds kLookAgainAfterFailure{1};

class AddressBook {
 public:
  bool is_fresh(TimePoint now) const noexcept { return !entries_.empty() && now < expires_; }
  std::size_t size() const noexcept { return entries_.size(); }
  const NetAddress& at(std::size_t index) const noexcept { return entries_[index].address; }

  /// `expires`: TimePoint::max() for numeric hosts.
  void assign(const std::vector<NetAddress>& addresses, TimePoint expires) {
    entries_.clear();
    for (const NetAddress& address : addresses) entries_.push_back({address, TimePoint::min()});
    expires_ = expires;
  }

  /// Round robin over the addresses that have not failed lately, or over all when all have. \pre
  /// size() > 0
  std::size_t pick(TimePoint now) noexcept {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const std::size_t index = (next_ + i) % entries_.size();
      if (entries_[index].avoid_until > now) continue;
      next_ = index + 1;
      return index;
    }
    return next_++ % entries_.size();
  }

  /// A failed address may be an old one: names are looked up again soon.
  void mark_failed(const NetAddress& failed, TimePoint now) noexcept {
    for (Entry& entry : entries_) {
      if (entry.address.size_bytes == failed.size_bytes &&
          std::memcmp(&entry.address.storage, &failed.storage, failed.size_bytes) == 0) {
        entry.avoid_until = now + kAvoidFailedAddress;
      }
    }
    if (expires_ != TimePoint::max()) expires_ = std::min(expires_, now + kLookAgainAfterFailure);
  }

 private:
  struct Entry {
    NetAddress address;
    TimePoint avoid_until;
  };
  std::vector<Entry> entries_;
  std::size_t next_ = 0;
  TimePoint expires_{};
};

}  // namespace headrace::transfer
