#include "sim/storage_class.h"

#include <algorithm>
#include <array>

namespace headrace::sim {
namespace {

// In the order of StorageClass.
constexpr std::array<std::string_view, static_cast<std::size_t>(StorageClass::kCount)> kNames = {
    "STANDARD",
    "REDUCED_REDUNDANCY",
    "STANDARD_IA",
    "ONEZONE_IA",
    "INTELLIGENT_TIERING",
    "GLACIER_IR",
    "GLACIER",
    "DEEP_ARCHIVE",
    "NEARLINE",
    "COLDLINE",
    "ARCHIVE"};

}  // namespace

std::string_view name_of(StorageClass storage_class) noexcept {
  return kNames[static_cast<std::size_t>(storage_class)];
}

std::optional<StorageClass> storage_class_of(std::string_view name) noexcept {
  if (name.empty()) return StorageClass::kStandard;
  const auto at = std::find(kNames.begin(), kNames.end(), name);
  if (at == kNames.end()) return std::nullopt;
  return static_cast<StorageClass>(at - kNames.begin());
}

bool is_archived(StorageClass storage_class) noexcept {
  return storage_class == StorageClass::kGlacier || storage_class == StorageClass::kDeepArchive;
}

}  // namespace headrace::sim
