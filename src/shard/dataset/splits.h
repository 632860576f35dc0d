#pragma once
/// \file
/// Splits of a dataset by the names of its files, as Hugging Face reads a folder
/// (huggingface.co/docs/datasets/repository_structure): `data/NAME-00000-of-00005.*`, else folders,
/// else files whose name has a keyword (train, test, validation, ...) as a word. Pure.
///
/// Threads: any.
#include <string>
#include <string_view>
#include <vector>

#include "shard/dataset/build.h"
#include "shard/dataset/listing.h"

namespace headrace::detail {

/// DatasetOptions::split that takes all splits as one dataset.
inline constexpr std::string_view kAllSplits = "all";

/// "validation" for "val", "valid" and "dev", "test" for "eval", ...; other names as they are.
std::string_view canonical_split(std::string_view name) noexcept;

/// What names say of splits.
class SplitTable {
 public:
  explicit SplitTable(const Candidates& candidates);

  struct Split {
    std::string name;
    std::size_t file_count = 0;
  };
  /// In the order train, validation, test, then others by name. Empty: the names say nothing.
  const std::vector<Split>& splits() const noexcept { return splits_; }
  bool has(std::string_view name) const noexcept;
  /// True when the names leave no doubt: they are those of folders, or every file has one.
  bool is_sure() const noexcept { return rule_ != Rule::kFiles || unnamed_count_ == 0; }

  /// Removes what is of other splits than `name`, and files that are of none and no part of a
  /// format.
  void keep(std::string_view name, Candidates& candidates) const;

 private:
  enum class Rule { kNone, kSharded, kFolders, kFiles };
  std::vector<std::string> names_of(std::string_view key, Rule rule) const;

  Rule rule_ = Rule::kNone;
  std::vector<Split> splits_;
  std::size_t unnamed_count_ = 0;
};

/// True when options choose one split.
inline bool has_chosen_split(const DatasetOptions& options) noexcept {
  return !options.split.empty() && options.split != kAllSplits;
}

/// Leaves of `candidates` those of options.split. Errors: kNotFound (no such split: lists those
/// that are there).
Status choose_split(const BuildContext& context, Candidates& candidates);

/// kInvalidArgument, listing them, when there are several splits and none was chosen.
Status refuse_several(const BuildContext& context, const SplitTable& table);

}  // namespace headrace::detail
