#pragma once
/// \file
/// Column bytes to Python values: numpy arrays over engine memory for fixed columns, Python objects
/// or Arrow arrays for the others.
///
/// Threads: the caller holds the GIL.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "arrow_column.h"
#include "batch_owner.h"
#include "bind.h"
#include "headrace/dataset.h"
#include "headrace/loader.h"

namespace headrace {

/// DLPack type of a numpy dtype name ("uint16", "float16", "bool", "complex64"); "bfloat16", which
/// numpy lacks, is uint16. nullopt for an unknown name.
std::optional<nb::dlpack::dtype> parse_dtype(std::string_view name);

/// A numpy array over `data` (C order, writable); `owner` keeps the memory alive.
nb::object make_array(std::byte* data, std::span<const std::size_t> shape, nb::dlpack::dtype dtype,
                      nb::handle owner);

/// How the values of one column become Python objects.
class ColumnConverter {
 public:
  /// kBytes is also what an unknown encoding is. See the table in column_converter.cc.
  enum class Kind : std::uint8_t {
    kBytes,
    kStr,
    kText,  ///< A str that a Python function parses.
    kBytesList,
    kArray,         ///< Every value has the column's dtype and shape.
    kFlatArray,     ///< One axis, as long as the bytes go.
    kNullableList,  ///< A byte; 0: a flat array follows; 1: a byte an item (0: None), then the
                    ///< items.
    kParsed,        ///< Bytes that a Python function parses.
    kDynamicArray,  ///< MDS: the header says dtype and shape.
    kTypedArray,    ///< MDS: the header says the shape.
    kMsgpack,       ///< With a Python function for maps, or without.
    kLitDataNumpy,
    kLitDataTensor,
    kLitDataGraph,  ///< A dict of arrays.
    kPickle
  };
  /// `to_arrow` (pyarrow.array, or none) makes what convert_batch() gives for a column that is no
  /// plain array, where Arrow has a form for it.
  explicit ColumnConverter(const OutputColumn& column, nb::object to_arrow = nb::object());

  /// Value of one sample: a copy. None when the sample has no such member. `position` is for the
  /// error message. Raises CorruptError (bytes that the encoding does not allow), UnsupportedError
  /// (pickle).
  nb::object convert(const ColumnBytes& value, std::uint64_t position) const;

  /// Column of `owner`'s batch: an array over the batch's memory for a fixed column, else an Arrow
  /// array over it or a list of values. `capsule` shares the ownership.
  nb::object convert_batch(const BatchColumn& column, const SharedBatch& owner,
                           nb::handle capsule) const;

  const nb::object& name() const noexcept { return name_; }

 private:
  nb::object convert_value(std::span<const std::byte> bytes) const;
  nb::object convert_list(const BatchColumn& column, const Batch& batch) const;
  nb::object convert_arrow(const BatchColumn& column, const SharedBatch& owner) const;
  ArrowForm find_arrow_form() const;
  nb::object convert_array(std::span<const std::byte> bytes) const;
  nb::object convert_nullable_list(std::span<const std::byte> bytes) const;
  [[noreturn]] void raise_corrupt(std::uint64_t position, const std::string& reason) const;

  Kind kind_ = Kind::kBytes;
  nb::object name_;
  std::string encoding_;
  nb::object parse_;                // kText: callable from str; kParsed; kMsgpack.
  nb::dlpack::dtype dtype_{};       // Of the arrays but kDynamicArray.
  std::vector<std::size_t> shape_;  // kArray
  std::uint64_t fixed_size_bytes_ = 0;
  nb::object to_arrow_;
  ArrowForm arrow_form_;  // kNone without to_arrow_.
};

}  // namespace headrace
