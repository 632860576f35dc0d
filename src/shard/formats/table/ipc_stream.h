#pragma once
/// \file
/// IpcStreamScan: finds the messages of an Arrow IPC stream (no footer, no magic), hopping over
/// their bodies. Pure.
///
/// Source of the format: https://arrow.apache.org/docs/format/Columnar.html ("IPC Streaming
/// Format").
///
/// Threads: one owner.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shard/formats/table/ipc_table.h"

namespace headrace::detail {

/// A dictionary or a record batch, in the order of the file.
struct IpcStreamMessage {
  IpcBlock block;
  bool is_dictionary = false;
  IpcBatch batch = {};  ///< Of a record batch.
};

class IpcStreamScan {
 public:
  explicit IpcStreamScan(std::uint64_t file_bytes) : file_bytes_(file_bytes) {}

  bool is_done() const noexcept { return is_done_; }
  /// Where bytes are wanted, and at least how many. Inside the file unless done.
  std::uint64_t offset_bytes() const noexcept { return offset_; }
  std::uint64_t needed_bytes() const noexcept { return needed_; }
  /// Takes needed_bytes() or more, from offset_bytes() on. Errors: kCorrupt (also a stream that
  /// does not end with its mark: it may have been cut off between two messages), kUnsupported.
  Status feed(std::span<const std::byte> bytes);

  /// Once done: the schema message, and the others.
  const std::string& schema() const noexcept { return schema_; }
  std::vector<IpcStreamMessage> take_messages() { return std::move(messages_); }

 private:
  Status take_message(std::span<const std::byte> bytes);
  Status end_stream();

  const std::uint64_t file_bytes_;
  std::uint64_t offset_ = 0;
  std::uint64_t needed_ = 8;
  bool is_done_ = false;
  std::string schema_;
  std::vector<IpcStreamMessage> messages_;
};

/// True when `head` begins a stream: a whole schema message's first fields.
bool looks_like_ipc_stream(std::span<const std::byte> head) noexcept;

}  // namespace headrace::detail
