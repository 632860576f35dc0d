// The first byte chooses: the footer of a Parquet file, the footer or a message of an Arrow file,
// an index's record of a block, or its layout.

#include "require.h"
#include "shard/formats/table/ipc_stream.h"
#include "shard/formats/table/parquet_footer.h"
#include "shard/formats/table/parquet_pages.h"
#include "shard/formats/table/table_layout.h"
#include "shard/formats/table/table_record.h"

namespace {

using namespace headrace::detail;

// Larger than any input, so that offsets may lie outside of what is there.
constexpr std::uint64_t kFileBytes = std::uint64_t{1} << 33;

void read_parquet(std::span<const std::byte> bytes) {
  const auto length = parquet_footer_bytes(bytes, kFileBytes);
  if (!length || *length > bytes.size()) return;
  auto footer = parse_parquet_footer(bytes.last(*length), kFileBytes);
  if (!footer) return;
  for (const ParquetRowGroup& group : footer->row_groups) {
    require(group.chunks.size() == footer->leaves.size());
    for (const ParquetChunk& chunk : group.chunks)
      require(chunk.begin_bytes + chunk.length_bytes <= kFileBytes - *length);
  }
  const auto leaves = parquet_leaves(footer->head);
  require(leaves && (*leaves).size() == footer->leaves.size());
  const std::string again =
      compose_parquet_footer(footer->head, footer->key_values, footer->leaves, footer->row_groups);
  const auto file = std::as_bytes(std::span(again));
  auto composed = parse_parquet_footer(file.subspan(4), kFileBytes);
  require(composed.has_value() && composed->head == footer->head);
  require(composed->row_count == footer->row_count);
}

void read_ipc(std::span<const std::byte> bytes) {
  const auto length = ipc_footer_bytes(bytes, kFileBytes);
  if (!length || *length > bytes.size()) return;
  auto footer = parse_ipc_footer(bytes.last(*length), kFileBytes);
  if (!footer) return;
  for (const IpcBlock& block : footer->batches) require(block.end_bytes() <= kFileBytes);
}

void read_stream(std::span<const std::byte> bytes) {
  IpcStreamScan scan(bytes.size());
  while (!scan.is_done()) {
    require(scan.offset_bytes() + scan.needed_bytes() <= bytes.size() || bytes.size() < 8);
    if (!scan.feed(bytes.subspan(scan.offset_bytes())).ok()) return;
  }
  for (const IpcStreamMessage& message : scan.take_messages())
    require(message.block.end_bytes() <= bytes.size());
}

void read_record(std::string_view text) {
  const auto record = parse_table_record(text);
  if (!record) return;
  const auto again = parse_table_record(write_table_record(*record));
  require(again.has_value());
  const auto ranges = ranges_of(*record);
  const FetchPlan plan = plan_fetch(ranges);
  for (std::size_t i = 0; i < ranges.size(); ++i)
    require(ranges[i].length_bytes == 0 || plan.targets[i] < plan.buffer_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  switch (data[0] % 6) {
    case 0:
      read_parquet(bytes);
      break;
    case 1:
      read_ipc(bytes);
      break;
    case 2:
      (void)parse_ipc_batch(bytes);
      (void)ipc_workspace_bytes(bytes);
      (void)looks_like_ipc_stream(bytes);
      read_stream(bytes);
      break;
    case 3:
      read_record(text);
      break;
    case 4:
      (void)look_at_pages(bytes, {.physical_type = 6}, static_cast<std::uint8_t>(data[0] / 6 % 8));
      break;
    default:
      (void)parse_table_layout(text);
      break;
  }
  return 0;
}
