#pragma once
/// \file
/// Counts of what was served. Each server thread writes its own ThreadStats; a reader merges them.
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "sim/target.h"

namespace headrace::sim {

/// One finished exchange.
struct Served {
  Kind kind = Kind::kInvalid;
  int status = 0;
  std::uint64_t sent_bytes = 0;      ///< Of the body, as given to the socket.
  std::uint64_t received_bytes = 0;  ///< Of the body, framing taken off.
  bool was_cut = false;              ///< By a planned reset or truncation.
  bool was_delayed = false;          ///< By the slow first byte.
  bool is_repeat = false;            ///< The same range was asked for before ...
  bool is_duplicate = false;         ///< ... and was still in flight: a hedge.
  bool is_requester_paying = false;
  std::string_view bucket, key;
};

struct ObjectCount {
  std::uint64_t request_count = 0;
  std::uint64_t sent_bytes = 0;
  std::uint64_t repeat_count = 0;
  std::uint64_t duplicate_count = 0;
};

/// Bytes by kind.
struct KindBytes {
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
};

/// Totals of one thread or of all.
struct Totals {
  std::array<std::unordered_map<int, std::uint64_t>, static_cast<std::size_t>(Kind::kCount)>
      requests;
  std::array<KindBytes, static_cast<std::size_t>(Kind::kCount)> bytes;
  std::unordered_map<std::string, ObjectCount> objects;  ///< GETs by "bucket/key".
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t connection_count = 0;
  std::uint64_t cut_count = 0;
  std::uint64_t slow_count = 0;
  std::uint64_t repeat_count = 0;
  std::uint64_t duplicate_count = 0;
  std::uint64_t requester_pays_count = 0;
  void add(const Totals& other);
};

class ThreadStats {
 public:
  void record(const Served& served) HEADRACE_EXCLUDES(mutex_);
  void record_connection() HEADRACE_EXCLUDES(mutex_);
  void add_to(Totals& totals) const HEADRACE_EXCLUDES(mutex_);
  void reset() HEADRACE_EXCLUDES(mutex_);

 private:
  // Taken by the owner for each request and by readers rarely: next to no contention.
  mutable Mutex mutex_;
  Totals totals_ HEADRACE_GUARDED_BY(mutex_);
  std::string id_ HEADRACE_GUARDED_BY(mutex_);
};

/// The statistics endpoint's document; docs/simulator.md explains the fields.
std::string stats_to_json(const Totals& totals);

}  // namespace headrace::sim
