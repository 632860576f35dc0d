#include "sim/request_limits.h"

#include <algorithm>

#include "sim/behaviour.h"

namespace headrace::sim {
namespace {
// A bucket holds what a tenth of a second allows: bursts pass, a second over the limit does not.
constexpr double kBurstSeconds = 0.1;
constexpr std::chrono::seconds kWindow{1};
constexpr std::size_t kMaxNodes = 100'000;
}  // namespace

void RequestLimits::Meter::grow(double limit_per_s, const Rules& rules, TimePoint now) {
  ++window_count;
  if (now - window_begin < kWindow) return;
  const bool is_used = static_cast<double>(window_count) > limit_per_s * scale / 2;
  if (is_used && now - scaled_at >= rules.ramp_period) {
    scale *= 2;
    scaled_at = now;
  }
  window_begin = now;
  window_count = 0;
}

bool RequestLimits::Meter::take(double limit_per_s, const Rules& rules, TimePoint now) {
  if (tokens < 0) {
    tokens = std::max(1.0, limit_per_s * kBurstSeconds);
    filled_at = scaled_at = window_begin = now;
  }
  if (rules.ramp_period.count() > 0) grow(limit_per_s, rules, now);
  const double rate = limit_per_s * scale;
  const double seconds = std::chrono::duration<double>(now - filled_at).count();
  filled_at = now;
  tokens = std::min(tokens + std::max(0.0, seconds) * rate, std::max(1.0, rate * kBurstSeconds));
  if (tokens < 1) return false;
  tokens -= 1;
  return true;
}

RequestLimits::Node& RequestLimits::find(std::string_view bucket, std::string_view key) {
  auto root = buckets_.find(bucket);
  if (root == buckets_.end()) {
    root = buckets_.emplace(std::string(bucket), std::make_unique<Node>()).first;
    ++node_count_;
  }
  Node* node = root->second.get();
  for (std::uint64_t depth = 0; node->is_split; ++depth) {
    const std::size_t slash = key.find('/');
    std::string hashed;
    std::string_view name = key.substr(0, slash == std::string_view::npos ? slash : slash + 1);
    if (slash == std::string_view::npos) {
      hashed = ((hash_text(key) >> (depth % 64)) & 1) != 0 ? "1" : "0";
      name = hashed;
    } else {
      key.remove_prefix(slash + 1);
    }
    auto child = node->children.find(name);
    if (child == node->children.end()) {
      if (node_count_ >= kMaxNodes) return *node;
      child = node->children.emplace(std::string(name), std::make_unique<Node>()).first;
      ++node_count_;
    }
    node = child->second.get();
  }
  return *node;
}

bool RequestLimits::admit(std::string_view bucket, std::string_view key, bool is_read,
                          const Rules& rules, TimePoint now) {
  const double limit = is_read ? rules.reads_per_s : rules.writes_per_s;
  if (limit <= 0) return true;
  const MutexLock lock(mutex_);
  Node& node = find(bucket, key);
  if (node.meters[is_read ? 0 : 1].take(limit, rules, now)) return true;
  if (rules.partition_after.count() <= 0) return false;
  const bool is_new =
      node.over_at == TimePoint::min() || now - node.over_at > 2 * rules.partition_after;
  if (is_new) node.over_since = now;
  node.over_at = now;
  node.is_split = now - node.over_since >= rules.partition_after;
  return false;
}

std::size_t RequestLimits::partition_count() const {
  const MutexLock lock(mutex_);
  return node_count_;
}

void RequestLimits::reset() {
  const MutexLock lock(mutex_);
  buckets_.clear();
  node_count_ = 0;
}

}  // namespace headrace::sim
