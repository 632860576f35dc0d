#pragma once
/// \file
/// What misbehaviour means: profiles, their JSON form, and the fate of one request drawn from the
/// seed. Pure.
///
/// A fate depends on the seed, on what is asked for (method, bucket, key, range) and on how often
/// the same was asked before; not on time, on threads or on other requests. So a run with the same
/// requests meets the same faults, and a retry draws anew.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/sim.h"
#include "headrace/status.h"

namespace headrace::sim {

std::vector<std::string> profile_names();

/// Errors: kInvalidArgument for an unknown name; the message lists those known.
Result<SimBehaviour> profile_behaviour(std::string_view name);

/// Errors: kInvalidArgument naming the field: rates outside 0 .. 1 or adding up to more than 1,
/// negative or non-finite times, p99 below p50 or given without p50.
Status validate(const SimBehaviour& behaviour);

/// `current` changed by a JSON object. "profile" is taken first, then the fields of SimBehaviour by
/// their names. Errors: kInvalidArgument for malformed JSON, unknown or ill-typed fields, and what
/// validate() refuses.
Result<SimBehaviour> behaviour_from_json(std::string_view json, const SimBehaviour& current);

std::string behaviour_to_json(const SimBehaviour& behaviour);

/// No request has a fate that differs from being served at once. Rates and limits do not count.
bool is_perfect(const SimBehaviour& behaviour) noexcept;

/// Bytes per second that the server as a whole gives to that many transfers. \pre
/// total_bytes_per_s > 0
double total_rate(const SimBehaviour& behaviour, std::uint64_t transfer_count) noexcept;
/// Limit of one transfer; 0: none.
double transfer_rate(const SimBehaviour& behaviour) noexcept;

/// By what first-byte times and faults differ.
enum class Traffic : std::uint8_t {
  kGet,
  kMetadata,
  kPut,     ///< Uploads of objects and parts.
  kCommit,  ///< Copies and completions of uploads.
};

/// What happens to one request.
struct Fate {
  enum class Answer : std::uint8_t {
    kServe,
    kSlowDown,
    kInternalError,
    kTooManyRequests,
    kRequestTimeout,
    kDrop,  ///< Connection reset instead of an answer.
  };
  enum class Cut : std::uint8_t { kNone, kReset, kTruncate, kStall, kCorrupt };
  Answer answer = Answer::kServe;
  Cut cut = Cut::kNone;     ///< What happens in mid-body ...
  double cut_fraction = 0;  ///< ... after that share of it, in [0, 1).
  std::uint64_t first_byte_us = 0;
  bool is_slow_first_byte = false;  ///< first_byte_us is slow_first_byte_ms or slow_put_ms.
  bool is_dripping = false;
  bool has_wrong_range = false;
  bool has_no_range = false;
  bool has_no_etag = false;
  bool is_changed = false;  ///< The object seems to have another version.
  bool has_wrong_checksum = false;
  bool has_error_in_body = false;
};

/// `identity`: hash of what is asked for; `ordinal`: how often it was asked before. Slow first
/// bytes and faults of bodies and heads concern GETs (slow acknowledgements: uploads), errors in
/// bodies commits only.
Fate draw_fate(const SimBehaviour& behaviour, std::uint64_t seed, std::uint64_t identity,
               std::uint64_t ordinal, Traffic traffic);

/// FNV-1a with a final mix; the same on every machine. Chain by passing the last value as `hash`.
std::uint64_t hash_text(std::string_view text, std::uint64_t hash = 0) noexcept;

}  // namespace headrace::sim
