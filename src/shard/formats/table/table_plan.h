#pragma once
/// \file
/// Asking the process's TableUnpacker what a table is, and reading its answer.
///
/// Threads: any.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/dataset.h"
#include "headrace/table.h"

namespace headrace::detail {

/// Answer of TableUnpacker::describe().
struct TableDescription {
  std::vector<Column> columns;
  std::string spec;                      ///< For unpack().
  std::vector<std::uint32_t> leaves;     ///< Parquet: leaves to read.
  std::uint64_t version = 0;             ///< Lance.
  std::uint64_t row_bytes = 0;           ///< Lance: about what a row takes in memory.
  std::vector<std::uint64_t> fragments;  ///< Lance: rows of each.
  /// Columns without any value here, so that their types are the writer's guess.
  std::vector<std::string> unknown;
};

/// What is known of a table before it is described.
struct TableQuestion {
  std::string_view kind = {};
  /// Parquet: a footer file of the schema alone. Arrow files: the schema message.
  std::span<const std::byte> head = {};
  std::span<const std::byte> annotated =
      {};                        ///< Parquet: `head` with the file's key-value metadata.
  std::string_view common = {};  ///< Parquet: the same of `_common_metadata`, in hex; empty: none.
  std::span<const std::string> columns = {};  ///< Names to deliver; empty: all.
  /// Arrow files: where these are the names of all columns, their order in the answer.
  std::span<const std::string> order = {};
  /// Arrow files: what columns without any value are to be delivered as.
  std::span<const Column> likes = {};
  std::string_view url = {};  ///< Lance.
};
/// Errors: those of describe(), kInternal (an answer that is none).
Result<TableDescription> describe_table(const TableQuestion& question);

/// Which row groups of a Parquet footer (a whole small file) may hold rows that match `where`
/// (DatasetOptions::row_groups_where). Errors: kInvalidArgument (predicate), kUnsupported.
Result<std::vector<bool>> prune_row_groups(std::span<const std::byte> footer_file,
                                           std::string_view where, std::size_t group_count);

}  // namespace headrace::detail
