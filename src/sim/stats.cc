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
    bytes[kind].sent_bytes += other.bytes[kind].sent_bytes;
    bytes[kind].received_bytes += other.bytes[kind].received_bytes;
  }
  for (const auto& [id, count] : other.objects) {
    ObjectCount& mine = objects[id];
    mine.request_count += count.request_count;
    mine.sent_bytes += count.sent_bytes;
    mine.repeat_count += count.repeat_count;
    mine.duplicate_count += count.duplicate_count;
  }
  sent_bytes += other.sent_bytes;
  received_bytes += other.received_bytes;
  connection_count += other.connection_count;
  cut_count += other.cut_count;
  slow_count += other.slow_count;
  requester_pays_count += other.requester_pays_count;
  repeat_count += other.repeat_count;
  duplicate_count += other.duplicate_count;
}

void ThreadStats::record(const Served& served) {
  const MutexLock lock(mutex_);
  ++totals_.requests[static_cast<std::size_t>(served.kind)][served.status];
  KindBytes& bytes = totals_.bytes[static_cast<std::size_t>(served.kind)];
  bytes.sent_bytes += served.sent_bytes;
  bytes.received_bytes += served.received_bytes;
  totals_.sent_bytes += served.sent_bytes;
  totals_.received_bytes += served.received_bytes;
  totals_.cut_count += served.was_cut ? 1 : 0;
  totals_.slow_count += served.was_delayed ? 1 : 0;
  totals_.requester_pays_count += served.is_requester_paying ? 1 : 0;
  totals_.repeat_count += served.is_repeat ? 1 : 0;
  totals_.duplicate_count += served.is_duplicate ? 1 : 0;
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
  found->second.repeat_count += served.is_repeat ? 1 : 0;
  found->second.duplicate_count += served.is_duplicate ? 1 : 0;
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
  Json bytes = Json::object();
  std::uint64_t request_count = 0;
  for (std::size_t kind = 0; kind < totals.requests.size(); ++kind) {
    for (const auto& [status, count] : totals.requests[kind]) {
      requests[std::string(kind_name(static_cast<Kind>(kind)))][std::to_string(status)] = count;
      request_count += count;
    }
  }
  for (std::size_t kind = 0; kind < totals.bytes.size(); ++kind) {
    const KindBytes& count = totals.bytes[kind];
    if (count.sent_bytes == 0 && count.received_bytes == 0) continue;
    bytes[std::string(kind_name(static_cast<Kind>(kind)))] = {{"sent", count.sent_bytes},
                                                              {"received", count.received_bytes}};
  }
  Json objects = Json::object();
  for (const auto& [id, count] : totals.objects) {
    Json& object = objects[id];
    object = {{"requests", count.request_count}, {"bytes", count.sent_bytes}};
    if (count.repeat_count > 0) object["repeats"] = count.repeat_count;
    if (count.duplicate_count > 0) object["duplicates"] = count.duplicate_count;
  }
  const Json json = {{"requests", std::move(requests)},
                     {"request_count", request_count},
                     {"bytes_sent", totals.sent_bytes},
                     {"bytes_received", totals.received_bytes},
                     {"connections", totals.connection_count},
                     {"bodies_cut", totals.cut_count},
                     {"slow_first_bytes", totals.slow_count},
                     {"objects", std::move(objects)},
                     {"repeats", totals.repeat_count},
                     {"duplicates", totals.duplicate_count},
                     {"bytes", std::move(bytes)},
                     {"requester_pays", totals.requester_pays_count}};
  // Keys are bytes; those that are not UTF-8 are shown with replacement characters.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace headrace::sim
