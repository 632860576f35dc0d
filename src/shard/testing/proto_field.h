#pragma once
/// \file
/// Fields of protocol buffers, for tests and benchmarks that make TFRecord's examples.
#include <cstdint>
#include <string>

namespace headrace::testing {

inline std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
  return out;
}
inline std::string field(int number, const std::string& bytes) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 2) + varint(bytes.size()) + bytes;
}

}  // namespace headrace::testing
