#pragma once
/// \file
/// The `.idx` beside a Megatron `.bin`: dtype, sequences and documents of a stream of tokens. Pure.
///
/// Source: megatron/core/datasets/indexed_dataset.py of NVIDIA/Megatron-LM (class IndexedDataset).
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "headrace/status.h"

namespace headrace::detail {

/// First bytes of an `.idx`.
inline constexpr std::string_view kMegatronMagic{"MMIDIDX\0\0", 9};
/// Bytes in front of the tables.
inline constexpr std::uint64_t kMegatronHeadBytes = 34;

struct MegatronHead {
  std::string_view dtype;  ///< numpy name.
  std::uint64_t token_bytes = 0;
  std::uint64_t sequence_count = 0;
  std::uint64_t document_count = 0;  ///< Entries of the table: one more than documents.
};
/// Errors: kCorrupt (no such magic, dtype), kUnsupported (the older index of fairseq, versions).
Result<MegatronHead> parse_megatron_head(std::span<const std::byte> idx);

/// Where samples begin in a `.bin` of `bin_bytes`, in bytes, and the end of the last: documents
/// when the table of documents covers all sequences, else sequences. Sequences must follow one
/// another and fill the file. Errors: kCorrupt, those of parse_megatron_head().
Result<std::vector<std::uint64_t>> parse_megatron_bounds(std::span<const std::byte> idx,
                                                         std::uint64_t bin_bytes);

}  // namespace headrace::detail
