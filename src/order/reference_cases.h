#pragma once
/// \file
/// For tests: cases of the reference packages (../shared/reference/orders), and lists as they write
/// them.
#include <gtest/gtest.h>
#include <openssl/sha.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace headrace::order_test {

using nlohmann::json;

inline double hex_double(const json& text) {
  return std::strtod(text.get<std::string>().c_str(), nullptr);
}

inline std::string sha256_of(std::span<const std::int64_t> values) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(values.data()), values.size_bytes(), digest);
  std::string text;
  for (const unsigned char byte : digest) {
    constexpr char kHex[] = "0123456789abcdef";
    text += kHex[byte >> 4];
    text += kHex[byte & 15];
  }
  return text;
}

/// `expected` is {"values": [...]}, {"count", "first", "sha256"}, or a plain list.
inline void expect_ids(const json& expected, std::span<const std::int64_t> actual) {
  const json& values = expected.is_array()           ? expected
                       : expected.contains("values") ? expected["values"]
                                                     : expected["first"];
  const std::size_t count = expected.is_object() && expected.contains("count")
                                ? expected["count"].get<std::size_t>()
                                : values.size();
  ASSERT_EQ(actual.size(), count);
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(actual[i], values[i].get<std::int64_t>()) << "at " << i;
  if (expected.is_object() && expected.contains("sha256")) {
    ASSERT_EQ(sha256_of(actual), expected["sha256"]);
  }
}

inline std::filesystem::path reference_file(const std::string& name) {
  return std::filesystem::path(HEADRACE_SOURCE_DIR) / "../shared/reference/orders" / name;
}

}  // namespace headrace::order_test

/// Declares `variable`, the cases of a file; skips the test where there is none.
#define HEADRACE_REFERENCE_CASES(variable, name)                                  \
  const auto variable##_path = ::headrace::order_test::reference_file(name);      \
  if (!std::filesystem::exists(variable##_path)) GTEST_SKIP() << "no " << (name); \
  std::ifstream variable##_file(variable##_path);                                 \
  const ::headrace::order_test::json variable =                                   \
      ::headrace::order_test::json::parse(variable##_file).at("cases")
