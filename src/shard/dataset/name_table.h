#pragma once
/// \file
/// NameTable: finds which of a few names a text is; what cut() asks for every field of every
/// sample.
///
/// Threads: immutable once filled.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headrace::detail {

class NameTable {
 public:
  /// Name i of `names` has the value i; of equal names the first counts.
  explicit NameTable(const std::vector<std::string>& names)
      : slots_(std::bit_ceil(names.size() * 2 + 1)) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      std::size_t at = slot_of(names[i]);
      while (slots_[at].value >= 0) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = {names[i], static_cast<std::int32_t>(i)};
    }
  }

  /// Index of `name`, or -1.
  std::int32_t find(std::string_view name) const noexcept {
    std::size_t at = slot_of(name);
    for (; slots_[at].value >= 0; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].name == name) return slots_[at].value;
    }
    return -1;
  }

 private:
  struct Slot {
    std::string name;
    std::int32_t value = -1;
  };
  // Names of fields are short, and differ in length, at their ends or in the middle.
  std::size_t slot_of(std::string_view name) const noexcept {
    const auto at = [name](std::size_t i) {
      return static_cast<std::uint64_t>(static_cast<unsigned char>(name[i]));
    };
    std::uint64_t mixed = name.size() << 24;
    if (!name.empty()) mixed |= at(0) << 16 | at(name.size() / 2) << 8 | at(name.size() - 1);
    return static_cast<std::size_t>((mixed * 0x9e3779b97f4a7c15U) >> 40) & (slots_.size() - 1);
  }

  std::vector<Slot> slots_;
};

}  // namespace headrace::detail
