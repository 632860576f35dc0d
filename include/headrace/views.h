#pragma once
/// \file
/// Views: datasets made of other datasets. They hold no data of their own.
///
/// Place: src/shard/views/. Order, feed and states treat them as any dataset.
///
/// Threads: immutable after open; every const function from any thread.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "headrace/dataset.h"
#include "headrace/status.h"

namespace headrace {

/// Which columns several datasets have as one.
enum class ConcatColumns : std::uint8_t {
  kEqual,   ///< All have the same; of those that are not wanted, the ones that all have alike.
  kCommon,  ///< Those that all have.
  kUnion,   ///< Those that any has; the values are missing in the others.
  kWanted,  ///< Those that are wanted, which all have; no others.
};

struct ConcatOptions {
  ConcatColumns columns = ConcatColumns::kEqual;
  /// With kEqual and kWanted: names of the columns that somebody reads; empty: all.
  std::vector<std::string> wanted = {};
  /// The fingerprint is that of the first part: for mixtures, which may get more parts and look at
  /// each themselves.
  bool is_growing = false;
};

/// The parts one after the other: positions, shards and blocks count on. Keys of part i begin with
/// "<i>/", for route_stores() over the parts' stores. Errors: kInvalidArgument (no parts; columns
/// that differ in type, size or unit, labels of different classes: names the column and the part).
Result<std::shared_ptr<const Dataset>> concat_datasets(
    std::vector<std::shared_ptr<const Dataset>> parts, const ConcatOptions& options = {});

/// How documents are put into sequences.
enum class PackMethod : std::uint8_t {
  /// The documents of a block end to end, cut at every multiple of the length.
  kConcatenate,
  /// Longest first, each into the fullest sequence that still has room for it (best fit
  /// decreasing); only documents longer than a sequence are cut.
  kBestFit,
};
/// "concatenate", "best_fit".
std::string_view pack_method_name(PackMethod method) noexcept;
Result<PackMethod> parse_pack_method(std::string_view name);

struct PackTokensOptions {
  std::uint32_t length = 2048;    ///< Tokens of a sequence, 2 .. 2^24.
  std::string column = "tokens";  ///< One-dimensional token arrays; one document each.
  PackMethod method = PackMethod::kBestFit;
  std::int64_t pad_token = 0;  ///< Fills what no document takes.
  /// Pieces of cut documents that are shorter are left out, and counted. 1: none are.
  std::uint32_t min_piece = 1;
  /// Leave out sequences that are not full. Only with kConcatenate: there it is one a block.
  bool drop_partial = false;
  /// Type of a token where the column does not tell ("bytes"): numpy dtype of 1 to 8 bytes.
  std::string dtype = {};
};

/// What packing did to the tokens.
struct PackReport {
  std::uint64_t documents = 0;
  std::uint64_t document_tokens = 0;
  std::uint64_t sequences = 0;
  std::uint64_t cut_documents = 0;   ///< Documents in more than one piece.
  std::uint64_t padding_tokens = 0;  ///< In sequences, of no document.
  std::uint64_t dropped_tokens = 0;  ///< Of documents, in no sequence.
};

/// Documents packed into sequences of equal length; a sample is one sequence. Columns: "tokens"
/// (`length` of the documents' type), "segment_ids" (int32: 1, 2, ... by document, 0 where there is
/// padding), "positions" (int32: from 0 in each piece).
class PackedDataset : public Dataset {
 public:
  virtual const PackReport& report() const noexcept = 0;
};

/// Documents of one block are packed together, so blocks stay what they are; the result is a
/// function of their lengths, which come from the index: no data is read. O(documents) time, 24
/// bytes a block. Errors: kInvalidArgument (options; no such column, not one of tokens),
/// kUnsupported (lengths that the index does not tell: compressed shards, several columns of
/// varying size), kCorrupt (sizes that hold no whole tokens).
Result<std::shared_ptr<const PackedDataset>> pack_tokens(std::shared_ptr<const Dataset> documents,
                                                         const PackTokensOptions& options);

}  // namespace headrace
