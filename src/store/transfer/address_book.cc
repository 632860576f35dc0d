// Which of an endpoint's addresses a new connection takes: in turn, those that failed or were slow
// left out for a while. When all are bad one is taken all the same, as something has to be tried.
//
// - An address that was bad comes back by one connection: trial_until keeps the others away until
//   it has reported.
// - Slow is judged against the other addresses only, never by a fixed number: a store that is slow
//   everywhere is not the address's fault. With one address nothing is judged.
// - Averages are weighted by 1/16, so some tens of transfers decide; after a demotion they begin
//   anew.
#include "store/transfer/address_book.h"

#include <algorithm>
#include <cstring>

namespace headrace::transfer {
namespace {

// Transfers until an address is judged, and bodies small enough not to tell a rate.
constexpr std::uint32_t kLeastReports = 16;
constexpr std::uint64_t kLeastRateBytes = 256 << 10;
// Slow: its first bytes take three times as long as the others', or its bodies come at less than
// 0.4 of their rate. Less is within the spread of a healthy store.
constexpr double kSlowFirstByte = 3;
constexpr double kSlowRate = 0.4;
// Differences below this are not worth a connection.
constexpr double kNegligible_s = 0.002;
constexpr double kWeight = 1.0 / 16;

double seconds_of(Microseconds time) { return static_cast<double>(time.count()) * 1e-6; }

void average(double& value, std::uint32_t& count, double sample) noexcept {
  ++count;
  value += (sample - value) * std::max(kWeight, 1.0 / count);
}

}  // namespace

bool is_same_address(const NetAddress& left, const NetAddress& right) noexcept {
  return left.size_bytes == right.size_bytes &&
         std::memcmp(&left.storage, &right.storage, left.size_bytes) == 0;
}

void AddressBook::assign(const std::vector<NetAddress>& addresses, TimePoint expires) {
  entries_.clear();
  for (const NetAddress& address : addresses) {
    if (entries_.size() == kMaxAddresses) break;
    entries_.emplace_back().address = address;
  }
  expires_ = expires;
}

void AddressBook::harvest(const std::vector<NetAddress>& addresses, TimePoint now,
                          TimePoint expires) {
  for (const NetAddress& address : addresses) {
    Entry* entry = find(address);
    if (entry == nullptr) {
      if (entries_.size() >= kMaxAddresses) {
        const auto oldest = std::min_element(
            entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.named_at < b.named_at; });
        entries_.erase(oldest);
      }
      entry = &entries_.emplace_back();
      entry->address = address;
    }
    entry->named_at = now;
  }
  std::erase_if(entries_, [now](const Entry& entry) {
    const bool is_failing = entry.avoid_until > now;
    return entry.named_at < now && (is_failing || now - entry.named_at >= kForgetAddress);
  });
  expires_ = expires;
}

std::optional<std::size_t> AddressBook::pick_good(std::size_t not_this, TimePoint now) noexcept {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::size_t index = (next_ + i) % entries_.size();
    Entry& entry = entries_[index];
    if (index == not_this || entry.avoid_until > now || entry.trial_until > now) continue;
    next_ = index + 1;
    // One connection tries out what was bad before; the others wait for its word.
    if (entry.has_failed || entry.was_slow) entry.trial_until = now + kDemoteSlowAddress;
    return index;
  }
  return std::nullopt;
}

std::size_t AddressBook::pick(TimePoint now) noexcept {
  const auto good = pick_good(entries_.size(), now);
  return good ? *good : next_++ % entries_.size();
}

std::size_t AddressBook::pick_other(const NetAddress& not_this, TimePoint now) noexcept {
  std::size_t excluded = 0;
  while (excluded < entries_.size() && !is_same_address(entries_[excluded].address, not_this))
    ++excluded;
  const auto good = pick_good(excluded, now);
  if (good) return *good;
  return excluded < entries_.size() ? excluded : pick(now);  // the same one before a bad one
}

AddressBook::Entry* AddressBook::find(const NetAddress& address) noexcept {
  for (Entry& entry : entries_) {
    if (is_same_address(entry.address, address)) return &entry;
  }
  return nullptr;
}

const AddressBook::Entry* AddressBook::find(const NetAddress& address) const noexcept {
  return const_cast<AddressBook*>(this)->find(address);
}

void AddressBook::mark_failed(const NetAddress& failed, TimePoint now) noexcept {
  if (Entry* entry = find(failed)) {
    entry->avoid_until = now + kAvoidFailedAddress;
    entry->has_failed = true;
  }
  if (expires_ != TimePoint::max()) expires_ = std::min(expires_, now + kLookAgainAfterFailure);
}

void AddressBook::mark_good(const NetAddress& good) noexcept {
  Entry* entry = find(good);
  if (entry == nullptr || !entry->has_failed) return;
  entry->has_failed = false;
  if (!entry->was_slow) entry->avoid_until = entry->trial_until = TimePoint::min();
}

bool AddressBook::is_avoided(const NetAddress& address, TimePoint now) const noexcept {
  const Entry* entry = find(address);
  return entry == nullptr || entry->avoid_until > now;
}

bool AddressBook::report(const NetAddress& address, const AddressReport& report,
                         TimePoint now) noexcept {
  if (entries_.size() < 2) return false;
  Entry* entry = find(address);
  if (entry == nullptr) return false;
  average(entry->first_byte_s, entry->first_byte_count, seconds_of(report.first_byte));
  if (report.bytes >= kLeastRateBytes && report.body > Microseconds(0)) {
    average(entry->bytes_per_s, entry->rate_count,
            static_cast<double>(report.bytes) / seconds_of(report.body));
  }
  if (entry->first_byte_count < kLeastReports) return false;
  if (is_slow(*entry)) {
    demote(*entry, now);
    return true;
  }
  if (entry->was_slow) {
    entry->was_slow = false;
    entry->avoid_until = entry->trial_until = TimePoint::min();
  }
  return false;
}

bool AddressBook::is_slow(const Entry& entry) const noexcept {
  double best_first_byte_s = 1e9;
  double best_rate = 0;
  for (const Entry& other : entries_) {
    if (&other == &entry) continue;
    if (other.first_byte_count >= kLeastReports)
      best_first_byte_s = std::min(best_first_byte_s, other.first_byte_s);
    if (other.rate_count >= kLeastReports) best_rate = std::max(best_rate, other.bytes_per_s);
  }
  if (entry.first_byte_s > kSlowFirstByte * best_first_byte_s + kNegligible_s) return true;
  return entry.rate_count >= kLeastReports && entry.bytes_per_s < kSlowRate * best_rate;
}

void AddressBook::demote(Entry& entry, TimePoint now) noexcept {
  entry.avoid_until = now + kDemoteSlowAddress;
  // What comes after that is judged by itself.
  entry.was_slow = true;
  entry.trial_until = TimePoint::min();
  entry.first_byte_count = entry.rate_count = 0;
  entry.first_byte_s = entry.bytes_per_s = 0;
  ++demotions_;
}

}  // namespace headrace::transfer
