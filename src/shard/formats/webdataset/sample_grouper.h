#pragma once
/// \file
/// Groups the members of one tar into samples by the rules of WebDataset. Pure.
///
/// Place: fed by the scan of build_webdataset_index(), member after member.
///
/// Threads: one owner.
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "headrace/status.h"
#include "shard/formats/webdataset/tar.h"

namespace headrace::detail {

/// A dataset with more different fields than this has dots in its sample names rather than fields.
inline constexpr std::size_t kMostSuffixes = 1024;

class SampleGrouper {
 public:
  /// Takes the next member, whose first header is at `offset` of the file. Members that are no part
  /// of a sample neither end nor extend the current one. Errors: kCorrupt (a field twice in a
  /// sample), kUnsupported (more than kMostSuffixes; a name that is not UTF-8).
  Status add(const TarMember& member, std::uint64_t offset);
  /// The file ends at `size_bytes`. Call once, last.
  void finish(std::uint64_t size_bytes);

  std::uint64_t sample_count() const noexcept { return bounds_.size() / 2; }
  /// Begin and end of each sample, in turn.
  const std::vector<std::uint64_t>& bounds() const noexcept { return bounds_; }
  /// True when some sample does not begin where the one before ends.
  bool has_gaps() const noexcept;
  /// The different suffixes, in lower case, in order of appearance.
  const std::vector<std::string>& suffixes() const noexcept { return suffixes_; }

 private:
  Status add_suffix(std::string_view suffix, std::string_view member_name);

  std::vector<std::uint64_t> bounds_;
  std::string key_;
  std::vector<std::string> suffixes_;
  std::vector<std::uint64_t> last_sample_;  // Of each suffix: the sample that has it, plus one.
  std::unordered_map<std::string, std::size_t> index_of_;
};

}  // namespace headrace::detail
