#pragma once
/// \file
/// Whether two stores hold the same objects, whatever their URLs are written like. Pure, but for
/// links of directories.
#include <optional>
#include <string>
#include <string_view>

#include "headrace/store.h"

namespace headrace::copy_detail {

/// How the keys of two stores that share objects translate into each other: the same store, or
/// prefixes or directories one of which is in the other.
class Overlap {
 public:
  Overlap(const Store& from, const Store& to);
  bool is_any() const noexcept { return is_any_; }
  /// Every key is the same object in both.
  bool is_same_root() const noexcept { return is_any_ && from_extra_.empty() && to_extra_.empty(); }
  /// The source's key of what the target calls `to_key`; nullopt when the source does not hold it.
  std::optional<std::string> source_key(std::string_view to_key) const;
  std::optional<std::string> target_key(std::string_view from_key) const;

 private:
  bool is_any_ = false;
  std::string from_extra_, to_extra_;  // What keys of the other side have more; one is empty.
};

}  // namespace headrace::copy_detail
