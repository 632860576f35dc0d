#pragma once
/// \file
/// Reading the footers of all files of a table, many at once, while its index is built.
///
/// Threads: one owner.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "headrace/range_fetcher.h"
#include "shard/dataset/build.h"
#include "shard/formats/table/ipc_stream.h"
#include "shard/formats/table/table_layout.h"
#include "shard/formats/table/table_plan.h"
#include "shard/formats/table/table_record.h"

namespace headrace::detail {

/// Rows of one file that become one block.
struct TablePart {
  std::uint64_t row_count = 0;
  std::uint64_t stored_bytes = 0;
  std::uint64_t unpacked_bytes = 0;
  TableRecord record;
};

/// Footers of Parquet or Arrow files, one kind in one table.
class TableFiles {
 public:
  /// `common`: footer of `_common_metadata` as describe_table() takes it; empty: none.
  /// `partitions`: columns of these names may be asked for and be in no file. All must outlive
  /// this.
  TableFiles(const BuildContext& context, const std::vector<ObjectInfo>& objects,
             const std::string& common, const std::vector<std::string>& partitions)
      : context_(context),
        objects_(objects),
        common_(common),
        partitions_(partitions),
        files_(objects.size()) {}

  /// Reads everything; leaves out broken files as the context says. Errors: kCorrupt, kUnsupported,
  /// kInvalidArgument, kChanged, those of the store; each names the file.
  Status read_all();

  TableKind kind() const noexcept { return kind_; }
  /// Heads in the order of the first file that has them; columns of all files (equal ones).
  std::vector<TableHead> take_heads() { return std::move(heads_); }
  const std::vector<Column>& columns() const noexcept { return columns_; }
  /// True: it was left out.
  bool is_broken(std::size_t file) const { return files_[file].is_broken; }
  const std::vector<TablePart>& parts(std::size_t file) const { return files_[file].parts; }

 private:
  struct Head {
    TableHead head;
    std::vector<Column> columns;
  };
  struct File {
    std::uint64_t footer_bytes = 0;
    const Head* head = nullptr;
    std::vector<TablePart> parts;
    // Until all batches are known:
    IpcFooter ipc;
    std::vector<IpcBatch> batches;  // Each record batch of `ipc`.
    std::unique_ptr<IpcStreamScan> stream;
    Status no_tail;  // Why the end of the file is none of a file of rows.
    std::size_t reads_left = 0;
    bool is_broken = false;
  };

  void start(std::size_t file, std::uint64_t piece, std::uint64_t offset_bytes,
             std::uint64_t length_bytes);
  Status take(const RangeData& data);
  Status settle(std::size_t file, Status status);
  Status take_tail(std::size_t file, const RangeData& data);
  Status take_footer(std::size_t file, std::span<const std::byte> footer);
  Status take_parquet(std::size_t file, std::span<const std::byte> footer);
  Status take_ipc(std::size_t file, std::span<const std::byte> footer);
  Status take_message(std::size_t file, std::uint64_t piece, std::span<const std::byte> bytes);
  Status agree_on(TableKind kind);
  Status refuse_where() const;
  Status take_stream(std::size_t file, const RangeData& data);
  Status take_schema(std::size_t file, std::span<const std::byte> message);
  void finish_ipc(File& file);
  Result<const Head*> head_of(const std::string& bytes, std::string_view key_values,
                              const TableQuestion& question);
  Result<TableDescription> describe(TableQuestion question) const;
  Status number_heads();

  const BuildContext& context_;
  const std::vector<ObjectInfo>& objects_;
  const std::string& common_;
  const std::vector<std::string>& partitions_;
  std::unique_ptr<RangeFetcher> fetcher_;
  TableKind kind_ = TableKind::kParquet;
  bool is_kind_known_ = false;
  // By TableHead::bytes and what else describe() looks at.
  std::map<std::pair<std::string, std::string>, std::unique_ptr<Head>> known_;
  std::vector<File> files_;
  std::vector<TableHead> heads_;
  std::vector<Column> columns_;
};

}  // namespace headrace::detail
