// All that threads share, each with a lock of its own that is held for a look-up, a copy or the
// making of a session, never over a system call. Each table is bounded, and what happens when it is
// full is harmless: ordinals start anew (early faults come once more), the oldest sessions and
// completed uploads are forgotten.
//
// Changes of behaviour go by version: set() raises it under the lock after the value has changed,
// and each thread takes a copy when the version is not the one it knows. Requests read their own
// thread's copy without any lock.
#include "sim/shared_state.h"

#include <cstdio>

namespace headrace::sim {
namespace {
constexpr std::size_t kMaxOrdinalsPerPart = 1 << 17;  // 16 parts of about 5 MB
}

OrdinalTable::Before OrdinalTable::begin(std::uint64_t identity) {
  Part& part = parts_[identity % parts_.size()];
  const MutexLock lock(part.mutex);
  if (part.counts.size() >= kMaxOrdinalsPerPart) part.counts.clear();
  Count& count = part.counts[identity];
  const Before before{count.begun, count.in_flight > 0};
  ++count.begun;
  ++count.in_flight;
  return before;
}

void OrdinalTable::end(std::uint64_t identity) {
  Part& part = parts_[identity % parts_.size()];
  const MutexLock lock(part.mutex);
  const auto found = part.counts.find(identity);
  if (found != part.counts.end() && found->second.in_flight > 0) --found->second.in_flight;
}

void OrdinalTable::reset() {
  for (Part& part : parts_) {
    const MutexLock lock(part.mutex);
    part.counts.clear();
  }
}

void BehaviourCell::set(const SimBehaviour& behaviour, std::uint64_t seed) {
  const MutexLock lock(mutex_);
  value_.behaviour = behaviour;
  value_.seed = seed;
  value_.is_perfect = is_perfect(behaviour);
  value_.shares_bandwidth = behaviour.total_bytes_per_s > 0 || behaviour.part_bytes_per_s > 0;
  value_.limits_requests = behaviour.read_requests_per_s > 0 || behaviour.write_requests_per_s > 0;
  value_.transfer_bytes_per_s = transfer_rate(behaviour);
  version_.fetch_add(1, std::memory_order_release);
}

void BehaviourCell::set_address(std::size_t index, const SimAddress& address) {
  const MutexLock lock(mutex_);
  value_.addresses[index] = address;
  version_.fetch_add(1, std::memory_order_release);
}

void BehaviourCell::set_address_count(std::size_t count) {
  const MutexLock lock(mutex_);
  value_.addresses.resize(count);
  version_.fetch_add(1, std::memory_order_release);
}

BehaviourCell::Value BehaviourCell::get() const {
  const MutexLock lock(mutex_);
  return value_;
}

Result<auth::Credentials> SessionTable::create(std::string_view bucket, std::string_view region,
                                               TimePoint ends_at) {
  constexpr std::size_t kMaxSessions = 4096;
  const MutexLock lock(mutex_);
  char id[24];
  std::snprintf(id, sizeof id, "%08llu", static_cast<unsigned long long>(++count_));
  Session session;
  session.bucket = bucket;
  session.ends_at = ends_at;
  session.credentials.access_key_id = std::string("SESSION") + id;
  session.credentials.secret_access_key = std::string("session-secret-") + id;
  auth::VerifyOptions verify;
  verify.accepted.push_back(session.credentials);
  verify.region = region;
  verify.service = "s3express";
  HEADRACE_TRY_ASSIGN(session.verifier, auth::SigV4Verifier::create(std::move(verify)));
  const std::string token = std::string("session-token-") + id;
  auth::Credentials out = session.credentials;
  out.session_token = token;
  // Tokens sort by their number of at least eight digits, so the first is the oldest.
  if (sessions_.size() >= kMaxSessions) sessions_.erase(sessions_.begin());
  sessions_[token] = std::move(session);
  return out;
}

std::optional<SessionTable::Session> SessionTable::find(std::string_view token,
                                                        std::string_view bucket) const {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(token);
  if (found == sessions_.end() || found->second.bucket != bucket) return std::nullopt;
  return found->second;
}

void SessionTable::expire_all() {
  const MutexLock lock(mutex_);
  for (auto& [token, session] : sessions_) session.ends_at = TimePoint::min();
}

void CompletedUploads::add(const std::string& id, Upload upload) {
  constexpr std::size_t kMaxUploads = 1024;
  const MutexLock lock(mutex_);
  if (order_.size() >= kMaxUploads) {
    uploads_.erase(order_.front());
    order_.pop_front();
  }
  uploads_[id] = std::move(upload);
  order_.push_back(id);
}

std::optional<CompletedUploads::Upload> CompletedUploads::find(std::string_view id) const {
  const MutexLock lock(mutex_);
  const auto found = uploads_.find(id);
  if (found == uploads_.end()) return std::nullopt;
  return found->second;
}

Status SharedState::open() {
  if (options.tls) {
    HEADRACE_TRY_ASSIGN(tls, TlsContext::create(options));
  }
  storage.remove_stale_temporaries();
  auth::Credentials accepted;
  accepted.access_key_id = options.access_key;
  accepted.secret_access_key = options.secret_key;
  accepted.session_token = options.session_token;
  auth::VerifyOptions verify;
  verify.accepted.push_back(std::move(accepted));
  verify.region = options.region;
  // CreateSession is signed with the account's keys for the service "s3express".
  auth::VerifyOptions express = verify;
  express.service = "s3express";
  HEADRACE_TRY_ASSIGN(express_verifier, auth::SigV4Verifier::create(std::move(express)));
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
  limits.reset();
}

}  // namespace headrace::sim
