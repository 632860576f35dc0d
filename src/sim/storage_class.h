#pragma once
/// \file
/// Storage classes of S3 and of Google: their names, and which must be restored before they can be
/// read. Pure.
#include <cstdint>
#include <optional>
#include <string_view>

namespace headrace::sim {

enum class StorageClass : std::uint8_t {
  kStandard,
  kReducedRedundancy,
  kStandardIa,
  kOnezoneIa,
  kIntelligentTiering,
  kGlacierIr,
  kGlacier,
  kDeepArchive,
  kNearline,
  kColdline,
  kArchive,
  kCount,
};

/// As S3 and Google write it.
std::string_view name_of(StorageClass storage_class) noexcept;

/// Empty: the standard one. Nullopt for what neither has.
std::optional<StorageClass> storage_class_of(std::string_view name) noexcept;

/// Whether objects must be restored before they can be read. Google's archive needs no restoring.
bool is_archived(StorageClass storage_class) noexcept;

}  // namespace headrace::sim
