#include "sim/behaviour.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/random.h"

namespace headrace::sim {
namespace {

using Json = nlohmann::json;

struct FieldOf {
  const char* name;
  double SimBehaviour::*member;
  bool is_rate;
};

constexpr std::array<FieldOf, 9> kFields = {{
    {"first_byte_p50_ms", &SimBehaviour::first_byte_p50_ms, false},
    {"first_byte_p99_ms", &SimBehaviour::first_byte_p99_ms, false},
    {"slow_first_byte_rate", &SimBehaviour::slow_first_byte_rate, true},
    {"slow_first_byte_ms", &SimBehaviour::slow_first_byte_ms, false},
    {"connection_bytes_per_s", &SimBehaviour::connection_bytes_per_s, false},
    {"throttle_rate", &SimBehaviour::throttle_rate, true},
    {"error_rate", &SimBehaviour::error_rate, true},
    {"reset_rate", &SimBehaviour::reset_rate, true},
    {"truncate_rate", &SimBehaviour::truncate_rate, true},
}};

// An hour: more is a mistake of units.
constexpr double kMaxTimeMs = 3.6e6;

Status invalid(const std::string& what) { return Status(Code::kInvalidArgument, what); }

// 99 % quantile of the standard normal distribution.
constexpr double kZ99 = 2.3263478740408408;

/// A standard normal by Box and Muller; uses two draws.
double draw_normal(Random& random) {
  const double u = 1.0 - random.unit();  // (0, 1]
  const double v = random.unit();
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * 3.141592653589793 * v);
}

std::uint64_t draw_first_byte_us(const SimBehaviour& behaviour, Random& random) {
  const double normal = draw_normal(random);
  if (behaviour.first_byte_p50_ms <= 0) return 0;
  const double sigma = std::log(behaviour.first_byte_p99_ms / behaviour.first_byte_p50_ms) / kZ99;
  const double ms = behaviour.first_byte_p50_ms * std::exp(sigma * normal);
  return static_cast<std::uint64_t>(std::min(ms, kMaxTimeMs) * 1e3);
}

}  // namespace

Result<SimBehaviour> profile_behaviour(std::string_view name) {
  SimBehaviour behaviour;
  if (name == "none") return behaviour;
  // Sources and reasoning of the numbers: docs/simulator.md.
  if (name == "s3-standard") {
    behaviour.first_byte_p50_ms = 30;
    behaviour.first_byte_p99_ms = 80;
    behaviour.slow_first_byte_rate = 0.001;
    behaviour.slow_first_byte_ms = 1000;
    behaviour.connection_bytes_per_s = 90e6;
    return behaviour;
  }
  if (name == "s3-express") {
    behaviour.first_byte_p50_ms = 4;
    behaviour.first_byte_p99_ms = 9;
    behaviour.connection_bytes_per_s = 166e6;
    return behaviour;
  }
  return invalid("unknown simulator profile \"" + std::string(name) +
                 "\": use none, s3-standard or s3-express");
}

Status validate(const SimBehaviour& behaviour) {
  for (const FieldOf& field : kFields) {
    const double value = behaviour.*field.member;
    const bool is_rate_per_s = field.member == &SimBehaviour::connection_bytes_per_s;
    const double limit = field.is_rate ? 1.0 : is_rate_per_s ? 1e15 : kMaxTimeMs;
    if (!(value >= 0 && value <= limit)) {
      return invalid(std::string("simulator behaviour: ") + field.name + " must be between 0 and " +
                     Json(limit).dump());
    }
  }
  if (behaviour.connection_bytes_per_s > 0 && behaviour.connection_bytes_per_s < 1024) {
    return invalid("simulator behaviour: connection_bytes_per_s must be 0 (none) or at least 1024");
  }
  if (behaviour.first_byte_p99_ms < behaviour.first_byte_p50_ms ||
      (behaviour.first_byte_p50_ms <= 0 && behaviour.first_byte_p99_ms > 0)) {
    return invalid(
        "simulator behaviour: first_byte_p99_ms must be at least first_byte_p50_ms, and 0 when "
        "that "
        "is 0");
  }
  if (behaviour.throttle_rate + behaviour.error_rate > 1 ||
      behaviour.reset_rate + behaviour.truncate_rate > 1) {
    return invalid(
        "simulator behaviour: throttle_rate + error_rate, and reset_rate + truncate_rate, must not "
        "exceed 1");
  }
  return {};
}

Result<SimBehaviour> behaviour_from_json(std::string_view text, const SimBehaviour& current) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return invalid("simulator behaviour: the body must be a JSON object");
  SimBehaviour behaviour = current;
  if (auto profile = json.find("profile"); profile != json.end()) {
    if (!profile->is_string()) return invalid("simulator behaviour: profile must be a string");
    HEADRACE_TRY_ASSIGN(behaviour, profile_behaviour(profile->get_ref<const std::string&>()));
  }
  for (const auto& [name, value] : json.items()) {
    if (name == "profile" || name == "seed") continue;
    const FieldOf* found = nullptr;
    for (const FieldOf& field : kFields) {
      if (name == field.name) found = &field;
    }
    if (found == nullptr) return invalid("simulator behaviour: unknown field \"" + name + "\"");
    if (!value.is_number()) return invalid("simulator behaviour: " + name + " must be a number");
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

bool is_perfect(const SimBehaviour& behaviour) noexcept {
  return behaviour.first_byte_p50_ms <= 0 && behaviour.slow_first_byte_rate <= 0 &&
         behaviour.throttle_rate <= 0 && behaviour.error_rate <= 0 && behaviour.reset_rate <= 0 &&
         behaviour.truncate_rate <= 0;
}

Fate draw_fate(const SimBehaviour& behaviour, std::uint64_t seed, std::uint64_t identity,
               std::uint64_t ordinal, bool is_get) {
  Random random(mix64(seed ^ 0x9e3779b97f4a7c15ULL) ^ mix64(identity + mix64(ordinal + 1)));
  // Always the same draws in the same order, so that changing one rate leaves the other faults
  // where they were.
  Fate fate;
  fate.first_byte_us = draw_first_byte_us(behaviour, random);
  fate.is_slow_first_byte = random.unit() < behaviour.slow_first_byte_rate && is_get;
  if (fate.is_slow_first_byte) {
    fate.first_byte_us = static_cast<std::uint64_t>(behaviour.slow_first_byte_ms * 1e3);
  }
  const double answer = random.unit();
  if (answer < behaviour.throttle_rate) {
    fate.answer = Fate::Answer::kSlowDown;
  } else if (answer < behaviour.throttle_rate + behaviour.error_rate) {
    fate.answer = Fate::Answer::kInternalError;
  }
  const double cut = random.unit();
  fate.cut_fraction = random.unit();
  if (!is_get) return fate;
  if (cut < behaviour.reset_rate) {
    fate.cut = Fate::Cut::kReset;
  } else if (cut < behaviour.reset_rate + behaviour.truncate_rate) {
    fate.cut = Fate::Cut::kTruncate;
  }
  return fate;
}

std::uint64_t hash_text(std::string_view text, std::uint64_t hash) noexcept {
  hash ^= 0xcbf29ce484222325ULL;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return mix64(hash);
}

}  // namespace headrace::sim
