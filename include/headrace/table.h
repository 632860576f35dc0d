#pragma once
/// \file
/// Tables (Parquet, Arrow IPC, Lance): the seam between the engine, which fetches and cuts, and the
/// package that decodes (pyarrow, through the bindings).
///
/// Place: implemented by src/bindings/table.cc, used by src/shard/table/. Columns cross through the
/// Arrow C data interface; the structs below are its ABI, copied from the specification
/// (https://arrow.apache.org/docs/format/CDataInterface.html and CStreamInterface.html), so that no
/// Arrow library is needed to build.
///
/// Threads: a TableDecoder is called from any thread, several at once, without the GIL.
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
#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE
extern "C" {
struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
  int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);
  const char* (*get_last_error)(struct ArrowArrayStream*);
  void (*release)(struct ArrowArrayStream*);
  void* private_data;
};
}
#endif
// NOLINTEND

namespace headrace {

/// Owns one struct of the Arrow C interface: releases it when destroyed. Move-only.
template <class T>
class ArrowOwned {
 public:
  ArrowOwned() noexcept = default;
  ArrowOwned(ArrowOwned&& o) noexcept : value_(std::exchange(o.value_, T{})) {}
  ArrowOwned& operator=(ArrowOwned&& o) noexcept {
    std::swap(value_, o.value_);
    return *this;
  }
  ~ArrowOwned() {
    if (value_.release != nullptr) value_.release(&value_);
  }
  /// Where a producer writes. \pre empty.
  T* out() noexcept { return &value_; }
  T* get() noexcept { return &value_; }
  const T& operator*() const noexcept { return value_; }
  const T* operator->() const noexcept { return &value_; }
  explicit operator bool() const noexcept { return value_.release != nullptr; }

 private:
  T value_{};
};

/// What a decoder is asked: see docs/formats.md, "Tables", for each kind.
struct TableRequest {
  /// "parquet", "ipc", "lance"; describe() also "prune" (Parquet row groups by their statistics).
  std::string_view kind;
  std::string_view spec;            ///< JSON.
  std::span<const std::byte> head;  ///< Parquet: a footer as a small file. IPC: the schema message.
  std::span<const std::byte> body;  ///< What was fetched of the block. Lives for the call only.
};

/// Knows the packages that decode tables.
class TableDecoder {
 public:
  virtual ~TableDecoder() = default;
  /// What a table is, as JSON. Control plane: while an index is built. Errors: kUnsupported (no
  /// pyarrow, a type that cannot be delivered), kCorrupt, kInvalidArgument (columns, predicates).
  virtual Result<std::string> describe(const TableRequest& request) = 0;
  /// Record batches with exactly the columns of the spec, decoded; nothing in them refers to
  /// `body` or to Python objects. Errors: kCorrupt, kUnsupported, kCancelled (Python is ending).
  virtual Result<ArrowOwned<ArrowArrayStream>> decode(const TableRequest& request) = 0;
};

/// Sets the decoder of the process; called once, when the extension module is loaded.
void set_table_decoder(std::shared_ptr<TableDecoder> decoder);
/// Errors: kUnsupported when none is set (a program without Python).
Result<std::shared_ptr<TableDecoder>> table_decoder();

}  // namespace headrace
