#pragma once
/// \file
/// What the index of raw files says besides their keys: labels from folders, or the fields of a
/// manifest. Pure.
///
/// Threads: functions.
#include <optional>
#include <string>
#include <string_view>

#include "headrace/dataset.h"
#include "shard/index/hri.h"

namespace headrace::detail {

/// Layout of an index with the column "label".
inline constexpr std::string_view kFolderLabels = R"({"labels":"folder"})";

/// Layout of an index made from `manifest`, whose rows a cutter of `row_layout` cuts
/// (row_cutter.h). The version of the manifest is in it: an index is stale where that changed.
std::string manifest_layout(const IndexSource& manifest, std::string_view row_layout);
/// The manifest of such a layout; nullopt for any other.
std::optional<IndexSource> manifest_of(std::string_view layout);
/// The row_layout of a layout; empty: records have no columns. Errors: kCorrupt.
Result<std::string> row_layout_of(std::string_view layout);

/// First folder of a key; empty when it lies in none.
inline std::string_view first_folder(std::string_view key) noexcept {
  const std::size_t slash = key.find('/');
  return slash == std::string_view::npos ? std::string_view() : key.substr(0, slash);
}

}  // namespace headrace::detail
