// The index says what to fetch and how much memory that becomes; the rows come of a package that
// knows the format (table_unpacker()), or of our own reader of Arrow's IPC.
//
// Invariants:
// - A block's bytes lie as plan_fetch() of its record puts them, gaps included. append_extents()
//   and everything that reads the bytes make that plan anew of the same record, and so agree.
// - A record comes from the index, which anybody may have written: record_of() checks it against
//   the heads each time, and a bad one gives no extents, no workspace, and an error where it is
//   unpacked.
// - Memory is charged before it is used: raw_bytes for the columns, unpack_workspace_bytes() for
//   what the package takes besides, once as a guess and once the bytes are there exactly. What a
//   compressed block may grow to beyond its charge is bounded by check_inflated().
// - Parquet is handed over as a footer of our own whose chunks point into the fetched bytes: the
//   package sees the chosen columns and row groups and nothing else, and seeks nowhere else.
// - Partition values are no bytes of the file: they come last among the columns, as constants of
//   the object's name.
#include <fmt/format.h>

#include <charconv>

#include "base/check.h"
#include "base/endian.h"
#include "shard/dataset/indexed_dataset.h"
#include "shard/formats/table/ipc_table.h"
#include "shard/formats/table/parquet_pages.h"
#include "shard/formats/table/table_driver.h"
#include "shard/formats/table/table_layout.h"
#include "shard/formats/table/table_record.h"
#include "shard/formats/table/unpacked_table.h"

namespace headrace::detail {
namespace {

// Compressed Arrow buffers: texts rarely shrink to less than a 20th; small batches do no harm.
constexpr std::uint64_t kMostInflation = 32;
constexpr std::uint64_t kAlwaysInflatedBytes = std::uint64_t{16} << 20;

// What pyarrow takes for a batch (repetition and definition levels, values that grow, casts) and
// for its readers; measured: 5 MiB for batches of 1 MiB of nested lists.
constexpr std::uint64_t kParquetWorkspaceBytes = std::uint64_t{8} << 20;
// Default of pyarrow and of most writers.
constexpr std::uint64_t kUsualPageBytes = std::uint64_t{1} << 20;
// Values of one column in one batch, however long those of its dictionary are.
constexpr std::uint64_t kMostBatchBytes = std::uint64_t{4} << 20;
// Lance reads by itself; see unpack() in headrace/data/tables/lance.py for what it is allowed.
constexpr std::uint64_t kLanceWorkspaceBytes = std::uint64_t{32} << 20;

// A shard of the index is a block: row groups of one file (record batches, rows of a Lance table).
class TableDataset final : public IndexedDataset {
 public:
  TableDataset(DatasetParts parts, TableLayout layout)
      : IndexedDataset(std::move(parts)), layout_(std::move(layout)) {}

  bool is_unpacked(std::uint32_t) const override { return true; }

  std::uint64_t append_extents(std::uint32_t block, std::uint32_t, std::uint32_t,
                               std::vector<Extent>& out) const override {
    // A record that is damaged gives no extents; unpack() then says why.
    const auto record = record_of(block);
    if (!record) return 0;
    const IndexObject object = view().object(shard_of(block).first_object);
    const FetchPlan plan = plan_fetch(ranges_of(*record));
    for (const TableRead& read : plan.reads)
      out.push_back(
          {object.key, object.etag, read.offset_bytes, read.length_bytes, read.target_bytes});
    return plan.buffer_bytes;
  }

  // Its record, which names row groups: what lies between two of them is read as well.
  void append_layout(std::uint32_t block, std::string& out) const override {
    out += view().key_of(block_at(block).first_sample);
  }

  Status decompress(std::uint32_t, std::span<const std::byte>,
                    std::span<std::byte>) const override {
    return Status(Code::kInternal, "blocks of tables are unpacked, not decompressed");
  }

  // Pages have checksums of their own, which are checked where they are unpacked.
  Status verify(std::uint32_t, std::span<const std::byte>) const override { return Status(); }

  Result<std::shared_ptr<const UnpackedBlock>> unpack(std::uint32_t block,
                                                      std::span<const std::byte> stored,
                                                      SlabArena& arena) const override {
    auto table = unpack_block(block, stored, arena);
    if (table && (*table)->row_count() == block_at(block).sample_count)
      return std::shared_ptr<const UnpackedBlock>(*std::move(table));
    Status status = table ? Status(Code::kCorrupt,
                                   fmt::format("unpacked {} rows, the index says {}",
                                               (*table)->row_count(), block_at(block).sample_count))
                          : std::move(table).error();
    return std::move(status).annotate(fmt::format(
        "unpacking {}/{}, rows {}..{}", url(), object_of(block).key, block_at(block).first_sample,
        block_at(block).first_sample + block_at(block).sample_count));
  }

  std::uint64_t unpack_workspace_bytes(std::uint32_t block,
                                       std::span<const std::byte> stored) const override {
    if (layout_.kind == TableKind::kLance) return kLanceWorkspaceBytes;
    auto record = record_of(block);
    if (!record) return 0;  // Damage is found when the block is unpacked.
    if (layout_.kind == TableKind::kParquet)
      return parquet_needs(*record, plan_fetch(ranges_of(*record)), stored).workspace_bytes;
    if (!stored.empty()) {
      const auto exact = ipc_workspace_bytes(messages_of(*record, stored).bytes());
      return exact ? *exact : 0;
    }
    std::uint64_t longest = 0;
    for (const TableRange& message : record->messages)
      longest = std::max(longest, message.length_bytes);
    return 2 * longest;
  }

  Status cut(const BlockBytes& bytes, std::uint32_t index,
             std::span<ColumnBytes> out) const override {
    HEADRACE_DCHECK(out.size() == columns().size());
    if (bytes.unpacked == nullptr) return corrupt_sample(bytes.block, index, "was not unpacked");
    Status status = static_cast<const UnpackedTable*>(bytes.unpacked)->cut(index, out);
    if (status.ok()) return status;
    return corrupt_sample(bytes.block, index, status.message());
  }

 private:
  IndexObject object_of(std::uint32_t block) const {
    return view().object(shard_of(block).first_object);
  }

  Result<TableRecord> record_of(std::uint32_t block) const {
    HEADRACE_TRY_ASSIGN(TableRecord record,
                        parse_table_record(view().key_of(block_at(block).first_sample)));
    if (record.head >= layout_.heads.size())
      return Status(Code::kCorrupt, "dataset index: a block of a table without its head");
    const TableHead& head = layout_.heads[record.head];
    for (const ParquetRowGroup& group : record.row_groups) {
      if (group.chunks.size() != head.chosen.size())
        return Status(Code::kCorrupt, "dataset index: a row group without its chunks");
    }
    return record;
  }

  Result<std::shared_ptr<const UnpackedTable>> unpack_block(std::uint32_t block,
                                                            std::span<const std::byte> stored,
                                                            SlabArena& arena) const {
    HEADRACE_TRY_ASSIGN(const TableRecord record, record_of(block));
    const TableHead& head = layout_.heads[record.head];
    const FetchPlan plan = plan_fetch(ranges_of(record));
    if (stored.size() < plan.buffer_bytes)
      return Status(Code::kInternal, "a block with fewer bytes than its ranges");
    TableBuilder builder(columns(), constants_of(block), arena);
    if (!layout_.partitions.empty() && columns().size() == layout_.partitions.size()) {
      // Nothing of the files is asked for but how many rows they have.
      ArrowArray rows{};
      rows.length = block_at(block).sample_count;
      HEADRACE_TRY(builder.take(0, ArrowSchema{}, rows));
      return builder.finish();
    }
    if (layout_.kind == TableKind::kIpc) {
      const Messages messages = messages_of(record, stored);
      HEADRACE_TRY(check_inflated(messages.bytes(), block_at(block).raw_bytes));
      HEADRACE_TRY(
          unpack_ipc(head.spec, std::as_bytes(std::span(head.bytes)), messages.bytes(), builder));
      return builder.finish();
    }
    HEADRACE_TRY_ASSIGN(const auto unpacker, table_unpacker());
    TableRequest request{.kind = table_kind_name(layout_.kind),
                         .spec = head.spec,
                         .head = {},
                         .body = stored,
                         .unpacked_bytes = block_at(block).raw_bytes};
    std::string prefix;
    if (layout_.kind == TableKind::kParquet) {
      prefix = footer_of(record, head, plan);
      request.most_rows = parquet_needs(record, plan, stored).most_rows;
    } else {
      std::byte rows[16];
      store_le<std::uint64_t>(rows, record.first_row);
      store_le<std::uint64_t>(rows + 8, block_at(block).sample_count);
      prefix.assign(reinterpret_cast<const char*>(rows), sizeof(rows));
    }
    request.head = std::as_bytes(std::span(prefix));
    HEADRACE_TRY(unpacker->unpack(request, builder));
    return builder.finish();
  }

  // The messages of an Arrow file in the order that a stream has them.
  struct Messages {
    std::span<const std::byte> as_read;
    std::string joined;  // Where they do not lie so already.
    std::span<const std::byte> bytes() const {
      return joined.empty() ? as_read : std::as_bytes(std::span(joined));
    }
  };
  static Messages messages_of(const TableRecord& record, std::span<const std::byte> stored) {
    const FetchPlan plan = plan_fetch(ranges_of(record));
    Messages out;
    if (plan.targets.empty() || stored.size() < plan.buffer_bytes) return out;
    std::uint64_t end = plan.targets.front();
    bool is_one = true;
    for (std::size_t i = 0; i < plan.targets.size(); ++i) {
      is_one = is_one && plan.targets[i] == end;
      end = plan.targets[i] + record.messages[i].length_bytes;
    }
    if (is_one) {
      out.as_read = stored.subspan(plan.targets.front(), end - plan.targets.front());
      return out;
    }
    for (std::size_t i = 0; i < plan.targets.size(); ++i) {
      out.joined.append(reinterpret_cast<const char*>(stored.data()) + plan.targets[i],
                        record.messages[i].length_bytes);
    }
    return out;
  }

  // What unpacking a block of Parquet takes besides the columns, and how many rows at once.
  struct ParquetNeeds {
    std::uint64_t workspace_bytes = kParquetWorkspaceBytes;
    std::uint64_t most_rows = ~std::uint64_t{0};
  };
  ParquetNeeds parquet_needs(const TableRecord& record, const FetchPlan& plan,
                             std::span<const std::byte> stored) const {
    const TableHead& head = layout_.heads[record.head];
    ParquetNeeds needs;
    std::uint64_t most = 0;
    std::size_t target = 0;
    for (const ParquetRowGroup& group : record.row_groups) {
      for (std::size_t c = 0; c < group.chunks.size(); ++c, ++target) {
        const ParquetChunk& chunk = group.chunks[c];
        // Before the bytes are there: pages as writers cut them unless told otherwise.
        ParquetPages pages{.largest_bytes = std::min(chunk.uncompressed_bytes, kUsualPageBytes)};
        if (stored.size() >= plan.buffer_bytes && !stored.empty()) {
          pages = look_at_pages(stored.subspan(plan.targets[target], chunk.length_bytes),
                                head.leaves[head.chosen[c]], chunk.codec);
        }
        // A page as it was inflated, and its values twice: as they were read, and as they grow.
        most = std::max(most, 3 * pages.largest_bytes + 2 * pages.dictionary_bytes);
        const std::uint64_t row_bytes = pages.longest_value_bytes *
                                        std::max<std::uint64_t>(chunk.value_count, 1) /
                                        std::max<std::uint64_t>(group.row_count, 1);
        if (row_bytes > 0) {
          needs.most_rows =
              std::min(needs.most_rows, std::max<std::uint64_t>(1, kMostBatchBytes / row_bytes));
        }
      }
    }
    needs.workspace_bytes += most;
    return needs;
  }

  // What was charged is a guess for compressed texts and lists: this bounds how far it is off.
  static Status check_inflated(std::span<const std::byte> messages, std::uint64_t charged_bytes) {
    std::uint64_t inflated = 0;
    for (auto rest = messages; !rest.empty();) {
      HEADRACE_TRY_ASSIGN(const IpcMessage message, next_ipc_message(rest));
      inflated += message.inflated_bytes;
    }
    const std::uint64_t most =
        std::max(charged_bytes, kMostInflation * messages.size() + kAlwaysInflatedBytes);
    if (inflated <= most) return Status();
    return Status(
        Code::kUnsupported,
        fmt::format("{} compressed bytes inflate to {}, of which at most {} are unpacked at once; "
                    "write the file with smaller record batches or less compression",
                    messages.size(), inflated, most));
  }

  // A footer whose chunks lie in what was fetched.
  static std::string footer_of(const TableRecord& record, const TableHead& head,
                               const FetchPlan& plan) {
    std::vector<ParquetRowGroup> groups;
    std::size_t target = 0;
    for (const ParquetRowGroup& chosen : record.row_groups) {
      ParquetRowGroup& group = groups.emplace_back();
      group.row_count = chosen.row_count;
      group.chunks.resize(head.leaves.size());
      for (std::size_t c = 0; c < head.chosen.size(); ++c) {
        ParquetChunk& chunk = group.chunks[head.chosen[c]];
        chunk = chosen.chunks[c];
        chunk.begin_bytes = plan.targets[target++];
      }
    }
    return compose_parquet_footer(head.bytes, {}, head.leaves, groups);
  }

  std::vector<ConstantCell> constants_of(std::uint32_t block) const {
    std::vector<ConstantCell> cells(layout_.partitions.size());
    const std::string_view key = object_of(block).key;
    const std::size_t first = columns().size() - cells.size();
    for (std::size_t i = 0; i < cells.size(); ++i) {
      cells[i].present = partition_value(key, layout_.partitions[i], cells[i].value);
      if (columns()[first + i].fixed_size_bytes == sizeof(std::int64_t)) {
        std::int64_t number = 0;
        const std::string& text = cells[i].value;
        std::from_chars(text.data(), text.data() + text.size(), number);
        cells[i].value.assign(reinterpret_cast<const char*>(&number), sizeof(number));
      }
    }
    return cells;
  }

  const TableLayout layout_;
};

}  // namespace

Result<std::shared_ptr<const Dataset>> make_table_dataset(DatasetParts parts,
                                                          const DatasetOptions& options) {
  HEADRACE_TRY_ASSIGN(TableLayout layout, parse_table_layout(parts.view.layout()));
  HEADRACE_TRY(check_table_kind(layout.kind, options.kind).annotate(parts.url));
  if (parts.view.columns().size() < layout.partitions.size())
    return Status(Code::kCorrupt, "dataset index: fewer columns than partitions");
  for (const ShardRecord& shard : parts.view.shards()) {
    if (shard.sample_count > 0 && shard.compression != Compression::kUnpacked)
      return Status(Code::kCorrupt, parts.url + ": its index is not of unpacked rows");
  }
  return std::shared_ptr<const Dataset>(
      std::make_shared<TableDataset>(std::move(parts), std::move(layout)));
}

}  // namespace headrace::detail
