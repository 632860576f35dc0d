#pragma once
/// \file
/// Which columns the tf.train.Examples of a dataset have: collected while records pass at index
/// time, kept as the index's layout. Pure.
///
/// Threads: one owner.
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/dataset.h"
#include "headrace/status.h"
#include "wire/example.h"

namespace headrace::detail {

/// More features than this are no schema.
inline constexpr std::size_t kMostFeatures = 4096;

/// What is known about one feature.
struct FeatureFacts {
  FeatureKind kind = FeatureKind::kNone;
  std::uint64_t least = 0;  ///< Fewest values of a sample; of a list: fewest Features.
  std::uint64_t most = 0;
  std::uint64_t step_least = 0;  ///< Of a list: fewest values of one Feature.
  std::uint64_t step_most = 0;
  bool has_steps = false;  ///< Of a list: some sample has a Feature.
  bool is_mixed = false;   ///< Values of different kinds were seen: no column.

  void merge(const FeatureFacts& other) noexcept;
};

/// How many values a column has in each sample.
struct FeatureColumn {
  enum class Part : std::uint8_t {
    kValues,
    kLengths  ///< Values of each Feature of a list whose Features differ.
  };
  std::string feature;  ///< Key in its map.
  bool is_list = false;
  Part part = Part::kValues;
  FeatureKind kind = FeatureKind::kNone;
  std::int64_t count = -1;       ///< Values of every sample (of a list: Features); -1: varies.
  std::int64_t step_count = -1;  ///< Of a list: values of every Feature; -1: varies.
};

/// Schema of a dataset as its layout keeps it.
struct ExampleLayout {
  bool is_records = true;  ///< One column "record" with the payload.
  /// False when a record may hold features that are no column (some were left out).
  bool is_complete = true;
  /// Some records have lists: the names of columns say which map they are from.
  bool is_sequence = false;
  std::vector<FeatureColumn> columns;
};

class ExampleSchema {
 public:
  /// Takes a record. Returns false, and is unchanged, when it is no Example; `why` says how.
  bool add(std::span<const std::byte> record, std::string& why);
  /// A record was passed over: what has the same number of values in all others may not in it.
  void mark_unseen() noexcept { has_unseen_ = true; }
  /// Takes what another schema saw. Errors: kUnsupported (more than kMostFeatures).
  Status merge(const ExampleSchema& other);
  bool is_empty() const noexcept { return context_.empty() && lists_.empty(); }

  /// Text for PartialIndex; from_text() of anything else: kCorrupt.
  std::string to_text() const;
  static Result<ExampleSchema> from_text(std::string_view text);

  /// Columns in order of their names. `chosen` (empty: all) are names of columns. Errors:
  /// kInvalidArgument (an unknown name: says which there are), kUnsupported (a feature with two
  /// kinds, two features that make one column).
  Result<ExampleLayout> layout(const std::vector<std::string>& chosen) const;

 private:
  using Facts = std::map<std::string, FeatureFacts, std::less<>>;
  static void merge_into(Facts& facts, const std::string& name, const FeatureFacts& more);

  Facts context_;
  Facts lists_;
  bool has_unseen_ = false;
};

/// The column of every entry of a layout; "record" for a layout of records.
std::vector<Column> example_columns(const ExampleLayout& layout);
std::string layout_to_json(const ExampleLayout& layout);
/// Errors: kCorrupt.
Result<ExampleLayout> parse_example_layout(std::string_view json);

}  // namespace headrace::detail
