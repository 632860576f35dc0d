#pragma once
/// \file
/// A manifest of raw files: records (JSON lines, separated values) that name a file each and say
/// more about it.
///
/// Threads: the calling one.
#include <string>
#include <string_view>
#include <vector>

#include "shard/dataset/build.h"

namespace headrace::detail {

/// A manifest beyond this is not read: the index would hold it.
inline constexpr std::uint64_t kMostManifestBytes = std::uint64_t{4} << 30;

struct Manifest {
  std::string text;
  std::vector<Column> columns;  ///< Of a record, without the name of the file.
  std::string row_layout;       ///< For make_row_reader().
  struct Row {
    std::string key;         ///< Of the file, below the root.
    std::string_view bytes;  ///< The record; of `text`.
  };
  std::vector<Row> rows;
};

/// What a manifest with this key says. A record names its file in "file_name", "file" or "path",
/// the first of these that there is, relative to the manifest. Errors: kInvalidArgument (no such
/// field, another kind of file by its name, no record), kCorrupt (names the record), kUnsupported
/// (a field named as a column of all raw files).
Result<Manifest> parse_manifest(std::string_view key, std::string text);

}  // namespace headrace::detail
