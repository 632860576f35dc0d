#include "sim/shared_state.h"

namespace headrace::sim {
namespace {
constexpr std::size_t kMaxOrdinalsPerPart = 1 << 17;  // 16 parts of about 5 MB
}

std::uint64_t OrdinalTable::next(std::uint64_t identity) {
  Part& part = parts_[identity % parts_.size()];
  const MutexLock lock(part.mutex);
  if (part.counts.size() >= kMaxOrdinalsPerPart) part.counts.clear();
  return part.counts[identity]++;
}

void OrdinalTable::reset() {
  for (Part& part : parts_) {
    const MutexLock lock(part.mutex);
    part.counts.clear();
  }
}

void BehaviourCell::set(const SimBehaviour& behaviour, std::uint64_t seed) {
  const MutexLock lock(mutex_);
  value_ = {behaviour, seed, is_perfect(behaviour)};
  version_.fetch_add(1, std::memory_order_release);
}

BehaviourCell::Value BehaviourCell::get() const {
  const MutexLock lock(mutex_);
  return value_;
}

Status SharedState::open() {
  auth::Credentials accepted;
  accepted.access_key_id = options.access_key;
  accepted.secret_access_key = options.secret_key;
  accepted.session_token = options.session_token;
  auth::VerifyOptions verify;
  verify.accepted.push_back(std::move(accepted));
  verify.region = options.region;
  HEADRACE_TRY_ASSIGN(verifier, auth::SigV4Verifier::create(std::move(verify)));
  return {};
}

std::string SharedState::stats_json() const {
  Totals totals;
  for (const auto& thread : stats) thread->add_to(totals);
  return stats_to_json(totals);
}

void SharedState::reset() {
  for (const auto& thread : stats) thread->reset();
  ordinals.reset();
}

}  // namespace headrace::sim
