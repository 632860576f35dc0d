#pragma once
/// \file
/// For tests: how the random ones are repeated.
#include <cstdint>
#include <cstdlib>
#include <string>

namespace headrace {

/// The number in an environment variable; `fallback` when it is not set.
inline std::uint64_t test_number(const char* variable, std::uint64_t fallback) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 0) : fallback;
}

/// HEADRACE_TEST_SEED when set, else fixed.
inline std::uint64_t test_seed() { return test_number("HEADRACE_TEST_SEED", 20'261'121); }

/// Rounds of a model test: HEADRACE_TEST_ROUNDS when set.
inline std::uint64_t test_round_count() { return test_number("HEADRACE_TEST_ROUNDS", 60); }

/// What to print with a failure in a round.
inline std::string seed_and_round(std::uint64_t round) {
  return "HEADRACE_TEST_SEED=" + std::to_string(test_seed()) + " round " + std::to_string(round);
}

}  // namespace headrace
