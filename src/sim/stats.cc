#include "sim/stats.h"

#include <nlohmann/json.hpp>

namespace headrace::sim {
namespace {
// Beyond, GETs of further objects are counted together under "...".
constexpr std::size_t kMaxObjects = 1'000'000;
}  // namespace

void Totals::add(const Totals& other) {
  for (std::size_t kind = 0; kind < requests.size(); ++kind) {
    for (const auto& [status, count] : other.requests[kind]) requests[kind][status] += count;
  }
  for (const auto& [id, count] : other.objects) {
    ObjectCount& mine = objects[id];
    mine.request_count += count.request_count;
    mine.sent_bytes += count.sent_bytes;
  }
  sent_bytes += other.sent_bytes;
  received_bytes += other.received_bytes;
  connection_count += other.connection_count;
  cut_count += other.cut_count;
  slow_count += other.slow_count;
}

void ThreadStats::record(const Served& served) {
  const MutexLock lock(mutex_);
  ++totals_.requests[static_cast<std::size_t>(served.kind)][served.status];
  totals_.sent_bytes += served.sent_bytes;
  totals_.received_bytes += served.received_bytes;
  totals_.cut_count += served.was_cut ? 1 : 0;
  totals_.slow_count += served.was_delayed ? 1 : 0;
  if (served.kind != Kind::kGetObject) return;
  id_.assign(served.bucket);
  id_ += '/';
  id_ += served.key;
  auto found = totals_.objects.find(id_);
  if (found == totals_.objects.end()) {
    const bool is_full = totals_.objects.size() >= kMaxObjects;
    found = totals_.objects.try_emplace(is_full ? "..." : id_).first;
  }
  ++found->second.request_count;
  found->second.sent_bytes += served.sent_bytes;
}

void ThreadStats::record_connection() {
  const MutexLock lock(mutex_);
  ++totals_.connection_count;
}

void ThreadStats::add_to(Totals& totals) const {
  const MutexLock lock(mutex_);
  totals.add(totals_);
}

void ThreadStats::reset() {
  const MutexLock lock(mutex_);
  totals_ = Totals();
}

std::string stats_to_json(const Totals& totals) {
  using Json = nlohmann::json;
  Json requests = Json::object();
  std::uint64_t request_count = 0;
  for (std::size_t kind = 0; kind < totals.requests.size(); ++kind) {
    for (const auto& [status, count] : totals.requests[kind]) {
      requests[std::string(kind_name(static_cast<Kind>(kind)))][std::to_string(status)] = count;
      request_count += count;
    }
  }
  Json objects = Json::object();
  for (const auto& [id, count] : totals.objects) {
    objects[id] = {{"requests", count.request_count}, {"bytes", count.sent_bytes}};
  }
  const Json json = {
      {"requests", std::move(requests)},        {"request_count", request_count},
      {"bytes_sent", totals.sent_bytes},        {"bytes_received", totals.received_bytes},
      {"connections", totals.connection_count}, {"bodies_cut", totals.cut_count},
      {"slow_first_bytes", totals.slow_count},  {"objects", std::move(objects)}};
  // Keys are bytes; those that are not UTF-8 are shown with replacement characters.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace headrace::sim
