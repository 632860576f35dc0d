// Request limits and shared bandwidth.
#include <algorithm>

#include "base/random.h"
#include "sim/service.h"

namespace headrace::sim {
namespace {

// One booking of shared bandwidth.
constexpr double kSlotSeconds = 0.004;
constexpr std::uint64_t kMinSlotBytes = 16 << 10;
constexpr std::uint64_t kMaxSlotBytes = 1 << 20;

}  // namespace

bool Service::is_within_limits(const Exchange& exchange, TimePoint now) {
  const SimBehaviour& behaviour = current_.behaviour;
  RequestLimits::Rules rules;
  rules.reads_per_s = behaviour.read_requests_per_s;
  rules.writes_per_s = behaviour.write_requests_per_s;
  rules.partition_after =
      std::chrono::milliseconds(static_cast<std::int64_t>(behaviour.partition_after_ms));
  rules.ramp_period =
      std::chrono::milliseconds(static_cast<std::int64_t>(behaviour.ramp_period_ms));
  const Target& target = exchange.target;
  const std::string_view key =
      target.key.empty() ? target.parameter("prefix").value_or("") : target.key;
  return shared_.limits.admit(target.bucket, key, is_read(target.kind), rules, now);
}

double Service::connection_bytes_per_s(const Exchange& exchange) const noexcept {
  const SimAddress& address = current_.addresses[exchange.address_index];
  double rate = current_.transfer_bytes_per_s / address.slow_factor;
  const auto limit = [&rate](double other) {
    if (other > 0) rate = rate > 0 ? std::min(rate, other) : other;
  };
  limit(address.connection_bytes_per_s);
  if (exchange.fate.is_dripping) limit(current_.behaviour.drip_bytes_per_s);
  return rate;
}

Service::Slot Service::book(Exchange& exchange, std::uint64_t offset_bytes,
                            std::uint64_t wanted_bytes, TimePoint now) {
  const SimBehaviour& behaviour = current_.behaviour;
  Slot slot{wanted_bytes, now};
  const std::uint64_t transfers =
      std::max<std::uint64_t>(1, shared_.transfer_count.load(std::memory_order_relaxed));
  double total = 0;
  if (behaviour.total_bytes_per_s > 0) {
    total = total_rate(behaviour, transfers);
    // Some 4 ms of its share, so that transfers interleave and wake-ups stay rare.
    const auto share =
        static_cast<std::uint64_t>(total * kSlotSeconds / static_cast<double>(transfers));
    slot.bytes = std::min(slot.bytes, std::clamp(share, kMinSlotBytes, kMaxSlotBytes));
  } else {
    slot.bytes = std::min(slot.bytes, kMaxSlotBytes);
  }
  if (behaviour.part_bytes_per_s > 0 && exchange.target.kind == Kind::kGetObject) {
    const auto part_bytes = static_cast<std::uint64_t>(behaviour.part_bytes);
    const std::uint64_t index = offset_bytes / part_bytes;
    slot.bytes = std::min(slot.bytes, (index + 1) * part_bytes - offset_bytes);
    if (!exchange.part_pacer || exchange.part_index != index) {
      exchange.part_index = index;
      exchange.part_pacer = shared_.part_pacers.of(
          hash_text(exchange.target.key, hash_text(exchange.target.bucket)) + mix64(index));
    }
    slot.at =
        std::max(slot.at, exchange.part_pacer->book(slot.bytes, behaviour.part_bytes_per_s, now));
  }
  if (total > 0) slot.at = std::max(slot.at, shared_.total_pacer.book(slot.bytes, total, now));
  return slot;
}

}  // namespace headrace::sim
