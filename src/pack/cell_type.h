#pragma once
/// \file
/// CellType: what the bytes of a column mean, as far as a writer must know to write them in another
/// format. Pure.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/dataset.h"
#include "headrace/status.h"

namespace headrace::pack_detail {

/// A type of numbers.
struct Dtype {
  enum class Kind : std::uint8_t { kSigned, kUnsigned, kFloat, kBool };
  std::string_view name;  ///< numpy's.
  std::string_view npy;   ///< Of a .npy header: "<f4".
  Kind kind = Kind::kSigned;
  std::uint32_t size_bytes = 0;
  std::uint32_t litdata_id = 0;
  std::uint8_t mds_byte = 0;  ///< First byte of an MDS "ndarray"; 0: MDS has none.

  bool is_integer() const noexcept { return kind != Kind::kFloat; }
  /// \pre is_integer(). Errors: kUnsupported (above 2^63 - 1).
  Result<std::int64_t> integer_at(const std::byte* at) const;
  /// \pre !is_integer().
  double real_at(const std::byte* at) const;
};
/// nullptr: none of ours (complex numbers, dates).
const Dtype* find_dtype(std::string_view numpy_name) noexcept;

/// An array of numbers in C order, little-endian.
struct ArrayView {
  std::vector<std::uint64_t> shape;
  std::span<const std::byte> data;
  const Dtype* dtype = nullptr;
  std::uint64_t count() const noexcept { return data.size() / dtype->size_bytes; }
};

struct CellType {
  enum class Kind : std::uint8_t {
    kBytes,     ///< Handed on as they are.
    kStr,       ///< UTF-8.
    kJson,      ///< UTF-8, one JSON value.
    kNumber,    ///< One `dtype`.
    kArray,     ///< `dtype`, C order, of `shape`.
    kFlat,      ///< As many `dtype` as there are.
    kMds,       ///< MDS "ndarray": with type and shape in front.
    kMdsTyped,  ///< MDS "ndarray:DTYPE": with the shape in front.
    kAsciiInt   ///< Decimal text: a number of type int64.
  };
  Kind kind = Kind::kBytes;
  const Dtype* dtype = nullptr;
  std::vector<std::uint64_t> shape;
  std::string encoding;  ///< Name of kBytes: "bytes", "jpeg", ...

  bool is_array() const noexcept {
    return kind == Kind::kArray || kind == Kind::kFlat || kind == Kind::kMds ||
           kind == Kind::kMdsTyped;
  }
  /// \pre is_array(). Errors: kCorrupt (the bytes do not fit).
  Result<ArrayView> array_of(std::span<const std::byte> cell) const;
};

/// A decimal number of kAsciiInt; spaces and line ends around it are allowed, as Python's int()
/// does. Errors: kCorrupt.
Result<std::int64_t> parse_cell_integer(std::span<const std::byte> cell);

/// Errors: kUnsupported (an encoding that is not understood: lists, pickles, other packages' own).
Result<CellType> cell_type_of(const Column& column);

/// What members of a tar with this suffix are by webdataset's own decoders: "str", "int", "json";
/// "bytes" for all others.
std::string_view encoding_of_suffix(std::string_view suffix) noexcept;

}  // namespace headrace::pack_detail
