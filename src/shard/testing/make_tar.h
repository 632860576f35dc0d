#pragma once
/// \file
/// Tar archives for the tests of src/shard, block by block.
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace headrace::testing {

/// Sets the checksum of the header block at `header`.
inline void sign_tar_header(char* header) {
  std::memset(header + 148, ' ', 8);
  unsigned sum = 0;
  for (int i = 0; i < 512; ++i) sum += static_cast<unsigned char>(header[i]);
  std::snprintf(header + 148, 8, "%06o", sum);
  header[155] = ' ';
}

inline std::string tar_header(const std::string& name, std::size_t size, char type = '0',
                              const std::string& prefix = "") {
  std::string block(512, '\0');
  block.replace(0, name.size(), name);
  block.replace(100, 7, "0000644");
  char digits[32];
  std::snprintf(digits, sizeof(digits), "%011zo", size);
  block.replace(124, 11, digits, 11);
  block[156] = type;
  block.replace(257, 8,
                std::string("ustar\0"
                            "00",
                            8));
  block.replace(345, prefix.size(), prefix);
  sign_tar_header(block.data());
  return block;
}

/// Header, data and padding.
inline std::string tar_member(const std::string& name, const std::string& data, char type = '0',
                              const std::string& prefix = "") {
  std::string out = tar_header(name, data.size(), type, prefix) + data;
  out.resize((out.size() + 511) / 512 * 512, '\0');
  return out;
}

/// One "<length> <key>=<value>\n".
inline std::string pax_record(const std::string& key, const std::string& value) {
  const std::size_t rest = key.size() + value.size() + 3;
  std::size_t length = rest + 1;
  while (std::to_string(length).size() + rest != length) ++length;
  return std::to_string(length) + " " + key + "=" + value + "\n";
}

inline std::string make_tar(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string out;
  for (const auto& [name, data] : members) out += tar_member(name, data);
  return out + std::string(1024, '\0');
}

}  // namespace headrace::testing
