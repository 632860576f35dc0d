#pragma once
/// \file
/// DALI's index of a tar (`wds2idx`, v1.1 and v1.2), where it says the same as a scan would. Pure.
///
/// Source: the rules of DALI's wds2idx in docs/formats.md, and its files in the reference cases.
///
/// Threads: functions.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/status.h"

namespace headrace::detail {

/// One member that an index names.
struct DaliMember {
  std::string name;    ///< Empty in v1.1.
  std::string suffix;  ///< In lower case.
  std::uint64_t data_begin = 0;
  std::uint64_t data_bytes = 0;
};

struct DaliIndex {
  /// Begin of each sample (its first header), and the end of the last.
  std::vector<std::uint64_t> bounds;
  std::vector<std::string> suffixes;  ///< Of all samples, in lower case.
  DaliMember first;                   ///< Of the first sample.
  DaliMember last;                    ///< Of the last.
};

/// Parses the index of a tar of `size_bytes`. Errors: kCorrupt (not such an index; members outside
/// the tar), kUnsupported (another version; members that do not follow one another with one header
/// each, or that webdataset groups in another way): a scan has to find the samples. Without names
/// (v1.1) how webdataset groups them is not known: cutting a sample checks that.
Result<DaliIndex> parse_dali_index(std::string_view text, std::uint64_t size_bytes);

}  // namespace headrace::detail
