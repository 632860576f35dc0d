#pragma once
/// \file
/// AddressBook: the addresses of one endpoint, what each is worth, and which to connect to next.
///
/// Answers of all look-ups add up, since large stores name a few of their many addresses at a time.
/// Addresses that fail are avoided for a while, addresses slower than the others are demoted and
/// tried again now and then. Pure: time comes as an argument.
///
/// Threads: one owner.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "headrace/clock.h"
#include "net/resolver.h"

namespace headrace::transfer {

/// How long an address that refused is avoided while others exist. Long enough not to pay a connect
/// timeout per connection, short enough to use a restarted server again within a retry or two.
constexpr std::chrono::seconds kAvoidFailedAddress{10};
/// S3's own records live a few seconds, and its clients are asked to spread over the answers;
/// looking up again costs nothing on the data path because open connections stay.
constexpr std::chrono::seconds kAddressLifetime{30};
/// An address that no answer named for so long is forgotten; sooner when it fails. The AWS clients
/// keep theirs 5 minutes.
constexpr std::chrono::minutes kForgetAddress{5};
constexpr std::size_t kMaxAddresses = 64;

/// Not at once, so that an outage does not turn into a stream of name look-ups.
constexpr std::chrono::seconds kLookAgainAfterFailure{1};
/// How long a slow address gets no new connections; then one is tried.
constexpr std::chrono::seconds kDemoteSlowAddress{20};
/// How long a connect may take before another address is tried (RFC 8305, section 8), when there is
/// one.
constexpr std::chrono::milliseconds kNextAddressAfter{250};

/// What a transfer told about the address that it came from.
struct AddressReport {
  std::uint64_t bytes = 0;
  Microseconds first_byte{0};
  Microseconds body{0};
};

bool is_same_address(const NetAddress& left, const NetAddress& right) noexcept;

class AddressBook {
 public:
  bool is_fresh(TimePoint now) const noexcept { return !entries_.empty() && now < expires_; }
  std::size_t size() const noexcept { return entries_.size(); }
  const NetAddress& at(std::size_t index) const noexcept { return entries_[index].address; }

  /// Replaces all. `expires`: TimePoint::max() for numeric hosts.
  void assign(const std::vector<NetAddress>& addresses, TimePoint expires);
  /// Adds the answer of a look-up at `now` to what is known, and forgets what is long gone.
  void harvest(const std::vector<NetAddress>& addresses, TimePoint now, TimePoint expires);
  /// The look-up failed: what is known will do for another while.
  void extend(TimePoint expires) noexcept { expires_ = expires; }

  /// Round robin over the addresses that neither failed nor were slow lately, or over all when all
  /// did. \pre size() > 0
  std::size_t pick(TimePoint now) noexcept;
  /// As pick(), and another one than `not_this` where there is a good one.
  std::size_t pick_other(const NetAddress& not_this, TimePoint now) noexcept;

  /// A failed address may be an old one: names are looked up again soon.
  void mark_failed(const NetAddress& failed, TimePoint now) noexcept;
  void mark_good(const NetAddress& good) noexcept;

  /// True: the address is too slow beside the others; from now on it is demoted, and its idle
  /// connections are better closed.
  bool report(const NetAddress& address, const AddressReport& report, TimePoint now) noexcept;
  bool is_avoided(const NetAddress& address, TimePoint now) const noexcept;
  /// Addresses demoted so far, repeated ones included.
  std::uint64_t demotions() const noexcept { return demotions_; }

 private:
  struct Entry {
    NetAddress address;
    TimePoint avoid_until = TimePoint::min();
    TimePoint trial_until = TimePoint::min();  // one connection tries it meanwhile
    TimePoint named_at{};                      // by the last answer that did
    bool has_failed = false;                   // and no connect has succeeded since
    bool was_slow = false;                     // and no reports have shown it better since
    double first_byte_s = 0;                   // moving averages
    double bytes_per_s = 0;
    std::uint32_t first_byte_count = 0;
    std::uint32_t rate_count = 0;
  };
  /// The next one that is neither avoided nor being tried; `not_this`: an index, or size().
  std::optional<std::size_t> pick_good(std::size_t not_this, TimePoint now) noexcept;
  Entry* find(const NetAddress& address) noexcept;
  const Entry* find(const NetAddress& address) const noexcept;
  bool is_slow(const Entry& entry) const noexcept;
  void demote(Entry& entry, TimePoint now) noexcept;

  std::vector<Entry> entries_;
  std::size_t next_ = 0;
  TimePoint expires_{};
  std::uint64_t demotions_ = 0;
};

}  // namespace headrace::transfer
