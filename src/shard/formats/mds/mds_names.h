#pragma once
/// \file
/// Which names files of an MDS dataset have. Pure.
///
/// Threads: functions.
#include <string_view>

namespace headrace::detail {

/// True for the name of a shard ("shard.00000.mds.zstd").
bool is_mds_name(std::string_view key) noexcept;

/// True for a file that says where the lines of a json, csv, tsv or xsv shard of MDS are
/// ("shard.00000.json.meta"). The lines themselves look like those of any file.
bool is_meta_of_lines(std::string_view key) noexcept;

}  // namespace headrace::detail
