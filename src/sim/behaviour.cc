// A fate must not move when something else changes. Hence: the seed of its generator is made from
// the request alone, every fault is drawn whether its rate is 0 or not, and new faults are drawn
// after all others. Switching one fault on then leaves the others at the requests where they were,
// and tests can name those requests.
//
// What is drawn as one number excludes each other: the answers (throttle, error, ...) share one,
// reset and truncation another. The rest are independent.
//
// First bytes are lognormal with the two quantiles that are given: sigma = ln(p99 / p50) / z99.
#include "sim/behaviour.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/random.h"

namespace headrace::sim {
namespace {

using Json = nlohmann::json;

enum class Unit : std::uint8_t { kTime, kSignedTime, kRate, kBytesPerS, kCount };

struct FieldOf {
  const char* name;
  double SimBehaviour::*member;
  Unit unit;
};

#define HEADRACE_FIELD(name, unit) \
  FieldOf { #name, &SimBehaviour::name, Unit::unit }
constexpr auto kFields = std::to_array<FieldOf>({
    HEADRACE_FIELD(first_byte_p50_ms, kTime),
    HEADRACE_FIELD(first_byte_p99_ms, kTime),
    HEADRACE_FIELD(metadata_p50_ms, kTime),
    HEADRACE_FIELD(metadata_p99_ms, kTime),
    HEADRACE_FIELD(put_p50_ms, kTime),
    HEADRACE_FIELD(put_p99_ms, kTime),
    HEADRACE_FIELD(slow_first_byte_rate, kRate),
    HEADRACE_FIELD(slow_first_byte_ms, kTime),
    HEADRACE_FIELD(slow_put_rate, kRate),
    HEADRACE_FIELD(slow_put_ms, kTime),
    HEADRACE_FIELD(connection_bytes_per_s, kBytesPerS),
    HEADRACE_FIELD(part_bytes_per_s, kBytesPerS),
    HEADRACE_FIELD(part_bytes, kCount),
    HEADRACE_FIELD(total_bytes_per_s, kBytesPerS),
    HEADRACE_FIELD(knee_transfers, kCount),
    HEADRACE_FIELD(collapse_transfers, kCount),
    HEADRACE_FIELD(collapse_exponent, kCount),
    HEADRACE_FIELD(collapse_floor, kRate),
    HEADRACE_FIELD(read_requests_per_s, kCount),
    HEADRACE_FIELD(write_requests_per_s, kCount),
    HEADRACE_FIELD(partition_after_ms, kTime),
    HEADRACE_FIELD(ramp_period_ms, kTime),
    HEADRACE_FIELD(limit_status, kCount),
    HEADRACE_FIELD(throttle_rate, kRate),
    HEADRACE_FIELD(too_many_rate, kRate),
    HEADRACE_FIELD(error_rate, kRate),
    HEADRACE_FIELD(request_timeout_rate, kRate),
    HEADRACE_FIELD(drop_rate, kRate),
    HEADRACE_FIELD(error_in_body_rate, kRate),
    HEADRACE_FIELD(reset_rate, kRate),
    HEADRACE_FIELD(truncate_rate, kRate),
    HEADRACE_FIELD(stall_rate, kRate),
    HEADRACE_FIELD(stall_ms, kTime),
    HEADRACE_FIELD(corrupt_rate, kRate),
    HEADRACE_FIELD(drip_rate, kRate),
    HEADRACE_FIELD(drip_bytes_per_s, kBytesPerS),
    HEADRACE_FIELD(wrong_range_rate, kRate),
    HEADRACE_FIELD(missing_range_rate, kRate),
    HEADRACE_FIELD(missing_etag_rate, kRate),
    HEADRACE_FIELD(changed_etag_rate, kRate),
    HEADRACE_FIELD(wrong_checksum_rate, kRate),
    HEADRACE_FIELD(shuffle_listings, kRate),
    HEADRACE_FIELD(idle_close_ms, kTime),
    HEADRACE_FIELD(close_after_requests, kCount),
    HEADRACE_FIELD(session_ms, kTime),
    HEADRACE_FIELD(clock_skew_ms, kSignedTime),
});
#undef HEADRACE_FIELD

// A day: more is a mistake of units.
constexpr double kMaxTimeMs = 8.64e7;

Status invalid(const std::string& what) {
  return Status(Code::kInvalidArgument, "simulator behaviour: " + what);
}

// 99 % quantile of the standard normal distribution.
constexpr double kZ99 = 2.3263478740408408;

/// A standard normal by Box and Muller; uses two draws.
double draw_normal(Random& random) {
  const double u = 1.0 - random.unit();  // (0, 1]
  const double v = random.unit();
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * 3.141592653589793 * v);
}

std::uint64_t draw_first_byte_us(double p50_ms, double p99_ms, Random& random) {
  // Drawn even where there is no delay: see the top.
  const double normal = draw_normal(random);
  if (p50_ms <= 0) return 0;
  const double sigma = std::log(p99_ms / p50_ms) / kZ99;
  return static_cast<std::uint64_t>(std::min(p50_ms * std::exp(sigma * normal), kMaxTimeMs) * 1e3);
}

std::uint64_t draw_first_byte_us(const SimBehaviour& behaviour, Traffic traffic, Random& random) {
  if (traffic == Traffic::kMetadata && behaviour.metadata_p50_ms > 0) {
    return draw_first_byte_us(behaviour.metadata_p50_ms, behaviour.metadata_p99_ms, random);
  }
  if ((traffic == Traffic::kPut || traffic == Traffic::kCommit) && behaviour.put_p50_ms > 0) {
    return draw_first_byte_us(behaviour.put_p50_ms, behaviour.put_p99_ms, random);
  }
  return draw_first_byte_us(behaviour.first_byte_p50_ms, behaviour.first_byte_p99_ms, random);
}

SimBehaviour standard_behaviour() {
  SimBehaviour behaviour;
  behaviour.first_byte_p50_ms = 30;
  behaviour.first_byte_p99_ms = 80;
  behaviour.metadata_p50_ms = 14.3;
  behaviour.metadata_p99_ms = 34.6;
  behaviour.put_p50_ms = 100;
  behaviour.put_p99_ms = 200;
  behaviour.slow_first_byte_rate = 0.001;
  behaviour.slow_first_byte_ms = 1000;
  behaviour.slow_put_rate = 0.001;
  behaviour.slow_put_ms = 5000;
  behaviour.connection_bytes_per_s = 90e6;
  behaviour.part_bytes_per_s = 1.25e9;
  behaviour.read_requests_per_s = 5500;
  behaviour.write_requests_per_s = 3500;
  behaviour.partition_after_ms = 45 * 60e3;
  behaviour.idle_close_ms = 5000;
  return behaviour;
}

SimBehaviour express_behaviour() {
  SimBehaviour behaviour;
  behaviour.first_byte_p50_ms = 4;
  behaviour.first_byte_p99_ms = 9;
  behaviour.connection_bytes_per_s = 166e6;
  behaviour.part_bytes_per_s = 12.5e9;
  behaviour.read_requests_per_s = 200'000;
  behaviour.write_requests_per_s = 100'000;
  behaviour.shuffle_listings = 1;
  behaviour.idle_close_ms = 5000;
  return behaviour;
}

SimBehaviour gcs_behaviour() {
  SimBehaviour behaviour = standard_behaviour();
  behaviour.part_bytes_per_s = behaviour.partition_after_ms = behaviour.idle_close_ms = 0;
  behaviour.slow_put_rate = 0;
  behaviour.read_requests_per_s = 5000;
  behaviour.write_requests_per_s = 1000;
  behaviour.ramp_period_ms = 20 * 60e3;
  behaviour.limit_status = 429;
  return behaviour;
}

SimBehaviour azure_behaviour() {
  SimBehaviour behaviour = standard_behaviour();
  behaviour.part_bytes_per_s = behaviour.partition_after_ms = behaviour.idle_close_ms = 0;
  behaviour.slow_put_rate = 0;
  behaviour.connection_bytes_per_s = 60e6;
  behaviour.read_requests_per_s = behaviour.write_requests_per_s = 20'000;
  return behaviour;
}

SimBehaviour collapse(double total_bytes_per_s, double knee, double limit, double exponent) {
  SimBehaviour behaviour;
  behaviour.first_byte_p50_ms = 5;
  behaviour.first_byte_p99_ms = 15;
  behaviour.total_bytes_per_s = total_bytes_per_s;
  behaviour.knee_transfers = knee;
  behaviour.collapse_transfers = limit;
  behaviour.collapse_exponent = exponent;
  return behaviour;
}

struct NamedProfile {
  const char* name;
  SimBehaviour (*make)();
};

// Sources and reasoning of the numbers: docs/simulator.md.
constexpr auto kProfiles = std::to_array<NamedProfile>({
    {"none", [] { return SimBehaviour(); }},
    {"s3-standard", standard_behaviour},
    {"s3-express", express_behaviour},
    {"gcs", gcs_behaviour},
    {"azure", azure_behaviour},
    {"collapse-8", [] { return collapse(400e6, 8, 16, 1); }},
    {"collapse-32", [] { return collapse(300e6, 32, 48, 2); }},
    {"collapse-96", [] { return collapse(400e6, 96, 128, 1.5); }},
});

double limit_of(Unit unit) {
  return unit == Unit::kRate                                ? 1.0
         : unit == Unit::kBytesPerS || unit == Unit::kCount ? 1e15
                                                            : kMaxTimeMs;
}

Status check_pair(double p50, double p99, const char* name) {
  if (p99 >= p50 && (p50 > 0 || p99 <= 0)) return {};
  return invalid(std::string(name) + "_p99_ms must be at least " + name +
                 "_p50_ms, and 0 when that is 0");
}

Status check_groups(const SimBehaviour& b) {
  HEADRACE_TRY(check_pair(b.first_byte_p50_ms, b.first_byte_p99_ms, "first_byte"));
  HEADRACE_TRY(check_pair(b.metadata_p50_ms, b.metadata_p99_ms, "metadata"));
  HEADRACE_TRY(check_pair(b.put_p50_ms, b.put_p99_ms, "put"));
  if (b.throttle_rate + b.error_rate + b.too_many_rate + b.request_timeout_rate + b.drop_rate > 1) {
    return invalid(
        "throttle_rate, error_rate, too_many_rate, request_timeout_rate and drop_rate together "
        "must not exceed 1");
  }
  if (b.reset_rate + b.truncate_rate > 1) {
    return invalid("reset_rate + truncate_rate must not exceed 1");
  }
  if (b.knee_transfers > 0 && b.total_bytes_per_s <= 0) {
    return invalid("knee_transfers needs total_bytes_per_s");
  }
  if (b.collapse_transfers > 0 && b.collapse_transfers < std::max(1.0, b.knee_transfers)) {
    return invalid("collapse_transfers must be at least knee_transfers");
  }
  if (b.part_bytes < 1) return invalid("part_bytes must be at least 1");
  if (b.limit_status != 503 && b.limit_status != 429) {
    return invalid("limit_status must be 503 or 429");
  }
  return {};
}

}  // namespace

std::vector<std::string> profile_names() {
  std::vector<std::string> names;
  for (const NamedProfile& profile : kProfiles) names.emplace_back(profile.name);
  return names;
}

Result<SimBehaviour> profile_behaviour(std::string_view name) {
  std::string known;
  for (const NamedProfile& profile : kProfiles) {
    if (name == profile.name) return profile.make();
    known += known.empty() ? "" : ", ";
    known += profile.name;
  }
  return Status(Code::kInvalidArgument,
                "unknown simulator profile \"" + std::string(name) + "\": use one of " + known);
}

Status validate(const SimBehaviour& behaviour) {
  for (const FieldOf& field : kFields) {
    const double value = behaviour.*field.member;
    const double limit = limit_of(field.unit);
    const double least = field.unit == Unit::kSignedTime ? -limit : 0;
    if (!(value >= least && value <= limit)) {
      return invalid(std::string(field.name) + " must be between " + Json(least).dump() + " and " +
                     Json(limit).dump());
    }
    if (field.unit == Unit::kBytesPerS && value > 0 && value < 1024) {
      return invalid(std::string(field.name) + " must be 0 (none) or at least 1024");
    }
  }
  return check_groups(behaviour);
}

Result<SimBehaviour> behaviour_from_json(std::string_view text, const SimBehaviour& current) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return invalid("the body must be a JSON object");
  SimBehaviour behaviour = current;
  if (auto profile = json.find("profile"); profile != json.end()) {
    if (!profile->is_string()) return invalid("profile must be a string");
    HEADRACE_TRY_ASSIGN(behaviour, profile_behaviour(profile->get_ref<const std::string&>()));
  }
  for (const auto& [name, value] : json.items()) {
    if (name == "profile" || name == "seed") continue;
    const FieldOf* found = nullptr;
    for (const FieldOf& field : kFields) {
      if (name == field.name) found = &field;
    }
    if (found == nullptr) return invalid("unknown field \"" + name + "\"");
    if (!value.is_number()) return invalid(name + " must be a number");
    behaviour.*found->member = value.get<double>();
  }
  HEADRACE_TRY(validate(behaviour));
  return behaviour;
}

std::string behaviour_to_json(const SimBehaviour& behaviour) {
  nlohmann::ordered_json json;
  for (const FieldOf& field : kFields) json[field.name] = behaviour.*field.member;
  return json.dump();
}

bool is_perfect(const SimBehaviour& b) noexcept {
  const bool has_refusals = b.throttle_rate > 0 || b.too_many_rate > 0 || b.error_rate > 0 ||
                            b.request_timeout_rate > 0 || b.drop_rate > 0 ||
                            b.error_in_body_rate > 0;
  const bool has_times = b.first_byte_p50_ms > 0 || b.metadata_p50_ms > 0 || b.put_p50_ms > 0 ||
                         b.slow_first_byte_rate > 0 || b.slow_put_rate > 0;
  const bool has_bodies = b.reset_rate > 0 || b.truncate_rate > 0 || b.stall_rate > 0 ||
                          b.corrupt_rate > 0 || b.drip_rate > 0;
  const bool has_heads = b.wrong_range_rate > 0 || b.missing_range_rate > 0 ||
                         b.missing_etag_rate > 0 || b.changed_etag_rate > 0 ||
                         b.wrong_checksum_rate > 0;
  return !has_refusals && !has_times && !has_bodies && !has_heads;
}

double total_rate(const SimBehaviour& behaviour, std::uint64_t transfer_count) noexcept {
  const double total = behaviour.total_bytes_per_s;
  const auto n = static_cast<double>(transfer_count);
  if (behaviour.collapse_transfers <= 0 || n <= behaviour.collapse_transfers) return total;
  const double share = std::pow(behaviour.collapse_transfers / n, behaviour.collapse_exponent);
  return total * std::max({share, behaviour.collapse_floor, 1e-6});
}

double transfer_rate(const SimBehaviour& behaviour) noexcept {
  double rate = behaviour.connection_bytes_per_s;
  if (behaviour.knee_transfers > 0) {
    const double share = behaviour.total_bytes_per_s / behaviour.knee_transfers;
    rate = rate > 0 ? std::min(rate, share) : share;
  }
  return rate;
}

namespace {

/// A refusal by the order of the rates; `at` in [0, 1).
Fate::Answer answer_at(const SimBehaviour& behaviour, double at) {
  using Answer = Fate::Answer;
  const std::array<std::pair<double, Answer>, 5> steps = {{
      // The order is part of what a seed means: another one gives other answers for the same
      // draws.
      {behaviour.throttle_rate, Answer::kSlowDown},
      {behaviour.error_rate, Answer::kInternalError},
      {behaviour.too_many_rate, Answer::kTooManyRequests},
      {behaviour.request_timeout_rate, Answer::kRequestTimeout},
      {behaviour.drop_rate, Answer::kDrop},
  }};
  double below = 0;
  for (const auto& [rate, answer] : steps) {
    below += rate;
    if (at < below) return answer;
  }
  return Answer::kServe;
}

void draw_body_faults(const SimBehaviour& behaviour, Random& random, double cut, Fate& fate) {
  const bool stalls = random.unit() < behaviour.stall_rate;
  const bool corrupts = random.unit() < behaviour.corrupt_rate;
  fate.is_dripping = random.unit() < behaviour.drip_rate;
  fate.has_wrong_range = random.unit() < behaviour.wrong_range_rate;
  fate.has_no_range = random.unit() < behaviour.missing_range_rate;
  fate.has_no_etag = random.unit() < behaviour.missing_etag_rate;
  fate.is_changed = random.unit() < behaviour.changed_etag_rate;
  fate.has_wrong_checksum = random.unit() < behaviour.wrong_checksum_rate;
  if (cut < behaviour.reset_rate) {
    fate.cut = Fate::Cut::kReset;
  } else if (cut < behaviour.reset_rate + behaviour.truncate_rate) {
    fate.cut = Fate::Cut::kTruncate;
  } else if (stalls) {
    fate.cut = Fate::Cut::kStall;
  } else if (corrupts) {
    fate.cut = Fate::Cut::kCorrupt;
  }
}

}  // namespace

Fate draw_fate(const SimBehaviour& behaviour, std::uint64_t seed, std::uint64_t identity,
               std::uint64_t ordinal, Traffic traffic) {
  Random random(mix64(seed ^ 0x9e3779b97f4a7c15ULL) ^ mix64(identity + mix64(ordinal + 1)));
  // Always the same draws in the same order, so that changing one rate leaves the other faults
  // where they were.
  Fate fate;
  const bool is_get = traffic == Traffic::kGet;
  const bool is_put = traffic == Traffic::kPut || traffic == Traffic::kCommit;
  fate.first_byte_us = draw_first_byte_us(behaviour, traffic, random);
  const double slow = random.unit();
  if (is_get && slow < behaviour.slow_first_byte_rate) {
    fate.is_slow_first_byte = true;
    fate.first_byte_us = static_cast<std::uint64_t>(behaviour.slow_first_byte_ms * 1e3);
  } else if (is_put && slow < behaviour.slow_put_rate) {
    fate.is_slow_first_byte = true;
    fate.first_byte_us = static_cast<std::uint64_t>(behaviour.slow_put_ms * 1e3);
  }
  fate.answer = answer_at(behaviour, random.unit());
  // Drawn here though only GETs use it, so that the draws behind it are the same for all kinds.
  const double cut = random.unit();
  fate.cut_fraction = random.unit();
  fate.has_error_in_body =
      random.unit() < behaviour.error_in_body_rate && traffic == Traffic::kCommit;
  if (is_get) draw_body_faults(behaviour, random, cut, fate);
  return fate;
}

// FNV-1a, then mixed: its low bits alone are too regular for rates.
std::uint64_t hash_text(std::string_view text, std::uint64_t hash) noexcept {
  hash ^= 0xcbf29ce484222325ULL;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return mix64(hash);
}

}  // namespace headrace::sim

namespace headrace {

std::vector<std::string> sim_profile_names() { return sim::profile_names(); }

Result<SimBehaviour> sim_behaviour_from_json(std::string_view json, const SimBehaviour& base) {
  return sim::behaviour_from_json(json, base);
}

}  // namespace headrace
