#pragma once
/// \file
/// Arrow IPC files (also inside other files): where their record batches lie, and unpacking them.
///
/// Place: used by the table builder and by LitData chunks with Arrow rows. Parsing is pure;
/// describe and unpack call the process's TableUnpacker.
///
/// Source of the format: https://arrow.apache.org/docs/format/Columnar.html ("IPC File Format"),
/// and its flatbuffers File.fbs and Message.fbs.
///
/// Threads: any.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "headrace/dataset.h"
#include "shard/formats/table/unpacked_table.h"

namespace headrace::detail {

/// One encapsulated message, offsets from the begin of the IPC file.
struct IpcBlock {
  std::uint64_t offset_bytes = 0;
  std::uint64_t metadata_bytes = 0;  ///< Prefix and padding included.
  std::uint64_t body_bytes = 0;
  std::uint64_t end_bytes() const noexcept { return offset_bytes + metadata_bytes + body_bytes; }
};
struct IpcFooter {
  std::vector<IpcBlock> dictionaries;
  std::vector<IpcBlock> batches;
  /// The schema message is [8, schema_end_bytes) of the file: up to the first block (or the
  /// footer).
  std::uint64_t schema_end_bytes = 0;
};

/// What an IPC file ends with: i32 footer length, "ARROW1".
inline constexpr std::uint64_t kIpcTailBytes = 10;
inline constexpr std::uint64_t kIpcHeadBytes = 8;  ///< "ARROW1", two bytes of padding.

/// Bytes of the footer with its tail, from the last kIpcTailBytes of a file of `file_bytes`.
/// Errors: kCorrupt.
Result<std::uint64_t> ipc_footer_bytes(std::span<const std::byte> tail, std::uint64_t file_bytes);
/// `footer`: the last ipc_footer_bytes() of the file. Every block lies inside the file before the
/// footer. Errors: kCorrupt, kUnsupported (metadata before V5).
Result<IpcFooter> parse_ipc_footer(std::span<const std::byte> footer, std::uint64_t file_bytes);
struct IpcBatch {
  std::uint64_t row_count = 0;
  bool is_compressed = false;
};
/// A record batch, from its metadata (the first IpcBlock::metadata_bytes of the block). Errors:
/// kCorrupt (not a record batch).
Result<IpcBatch> parse_ipc_batch(std::span<const std::byte> metadata);
/// The first message of several that follow one another.
struct IpcMessage {
  std::span<const std::byte> bytes;
  bool is_dictionary = false;
  std::uint64_t inflated_bytes = 0;  ///< Of all its buffers; 0 when it is not compressed.
};
/// Takes it off `stream`, which is not empty. Errors: kCorrupt.
Result<IpcMessage> next_ipc_message(std::span<const std::byte>& stream);
/// Memory outside of the arena that unpack_ipc() needs for `messages`. Errors: kCorrupt.
Result<std::uint64_t> ipc_workspace_bytes(std::span<const std::byte> messages);

/// What describe() says of a table.
struct TablePlan {
  std::string spec;  ///< For unpack(): JSON.
  std::vector<Column> columns;
  std::vector<std::string> unknown = {};  ///< TableDescription::unknown.
};

/// Columns of an IPC file. `schema`: bytes [8, schema_end_bytes). `order`: where these are the
/// names of all columns, their order in the plan, else that of the schema. `likes`: what columns
/// without any value are to be delivered as. Errors: kUnsupported (no
/// pyarrow; types), kCorrupt.
Result<TablePlan> describe_ipc(std::span<const std::byte> schema,
                               std::span<const std::string> order,
                               std::span<const Column> likes = {});
/// Unpacks record batches, few at a time: `messages` are the bytes of all dictionaries, then of the
/// batches, in the order of the footer. Errors: kCorrupt, kUnsupported, those of the builder.
Status unpack_ipc(std::string_view spec, std::span<const std::byte> schema,
                  std::span<const std::byte> messages, TableBuilder& builder);

}  // namespace headrace::detail
