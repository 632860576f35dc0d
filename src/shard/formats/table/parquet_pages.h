#pragma once
/// \file
/// The pages of a Parquet column chunk, as far as they tell what unpacking takes. Pure.
///
/// Source: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
/// (PageHeader).
///
/// Threads: a function and values.
#include <cstdint>
#include <span>

#include "shard/formats/table/parquet_footer.h"

namespace headrace::detail {

struct ParquetPages {
  std::uint64_t largest_bytes = 0;     ///< Of the data pages, once inflated.
  std::uint64_t dictionary_bytes = 0;  ///< Of the dictionary page, once inflated.
  /// No value of a BYTE_ARRAY that the dictionary holds is longer; 0: there is no dictionary.
  std::uint64_t longest_value_bytes = 0;
};

/// Looks at the headers of all pages, and into a dictionary of byte arrays. `chunk`: the bytes of a
/// chunk as they lie in the file. What cannot be read ends the search: whoever unpacks the chunk
/// says what is wrong.
ParquetPages look_at_pages(std::span<const std::byte> chunk, const ParquetLeaf& leaf,
                           std::uint8_t codec);

}  // namespace headrace::detail
