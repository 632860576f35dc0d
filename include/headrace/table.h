#pragma once
/// \file
/// Tables (Parquet, Arrow IPC, Lance): the seam between the engine, which fetches and cuts, and the
/// package that unpacks (pyarrow, through the bindings).
///
/// Place: implemented by src/bindings/table.cc, used by src/shard/formats/table/. Columns cross
/// through the Arrow C data interface; the structs below are its ABI, copied from the specification
/// (https://arrow.apache.org/docs/format/CDataInterface.html), so that no Arrow library is needed
/// to build.
///
/// Threads: a TableUnpacker is called from any thread, several at once, without the GIL.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "headrace/status.h"

// NOLINTBEGIN: names and shapes are the specification's.
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4
extern "C" {
struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;
  void (*release)(struct ArrowSchema*);
  void* private_data;
};
struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  struct ArrowArray** children;
  struct ArrowArray* dictionary;
  void (*release)(struct ArrowArray*);
  void* private_data;
};
}
#endif
// NOLINTEND

namespace headrace {

/// What an unpacker is asked: see docs/formats.md, "Tables", for each kind.
struct TableRequest {
  /// "parquet", "ipc", "lance"; describe() also "prune" (Parquet row groups by their statistics).
  std::string_view kind;
  std::string_view spec;            ///< JSON.
  std::span<const std::byte> head;  ///< Parquet: a footer as a small file. IPC: the schema message.
  std::span<const std::byte> body;  ///< What was fetched of the block. Lives for the call only.
  /// unpack(): about what all columns take, for the size of batches.
  std::uint64_t unpacked_bytes = 0;
  /// unpack(): batches have at most so many rows.
  std::uint64_t most_rows = ~std::uint64_t{0};
};

/// Receives what is unpacked, batch by batch.
class TableSink {
 public:
  virtual ~TableSink() = default;
  /// Columns [first_column, first_column + array.n_children) of the spec, of the rows that follow
  /// those of the last batch of these columns. Schema and array (a struct) live for the call only.
  /// Called without the GIL. An error ends unpacking.
  virtual Status take(std::size_t first_column, const ArrowSchema& schema,
                      const ArrowArray& array) = 0;
};

/// Knows the packages that unpack tables.
class TableUnpacker {
 public:
  virtual ~TableUnpacker() = default;
  /// What a table is, as JSON. Control plane: while an index is built. Errors: kUnsupported (no
  /// pyarrow, a type that cannot be delivered), kCorrupt, kInvalidArgument (columns, predicates).
  virtual Result<std::string> describe(const TableRequest& request) = 0;
  /// Unpacks the columns of the spec batch by batch, so that no more than a batch of some columns
  /// lies in the package's own memory at once. Errors: kCorrupt, kUnsupported, kCancelled (Python
  /// is ending), those of `sink`.
  virtual Status unpack(const TableRequest& request, TableSink& sink) = 0;
};

/// Sets the unpacker of the process; called once, when the extension module is loaded.
void set_table_unpacker(std::shared_ptr<TableUnpacker> unpacker);
/// Errors: kUnsupported when none is set (a program without Python).
Result<std::shared_ptr<TableUnpacker>> table_unpacker();

}  // namespace headrace
