#pragma once
/// \file
/// Finds the columns of one tf.train.Example in its bytes. Pure; nothing is allocated.
///
/// Threads: immutable.
#include <span>
#include <string_view>
#include <vector>

#include "headrace/dataset.h"
#include "shard/dataset/name_table.h"
#include "shard/formats/tfrecord/example_schema.h"

namespace headrace::detail {

class ExampleCutter {
 public:
  /// \pre a layout of Examples, not of records.
  explicit ExampleCutter(ExampleLayout layout);
  ExampleCutter(const ExampleCutter&) = delete;
  ExampleCutter& operator=(const ExampleCutter&) = delete;

  /// Fills `out` (one entry a column) from a payload. Values view `record`; writers look into this
  /// cutter. Errors: kCorrupt (broken bytes; a feature of another kind or count than the index
  /// says, or that it does not know).
  Status cut(std::span<const std::byte> record, std::span<ColumnBytes> out) const;

 private:
  /// The column of a feature, and of its lengths; -1: none.
  struct Target {
    std::int32_t values = -1;
    std::int32_t lengths = -1;
  };
  bool place(const FeatureView& view, const FeatureColumn& column, ColumnBytes& out) const noexcept;
  Status refuse_unknown(std::span<const std::byte> record) const;

  const ExampleLayout layout_;
  // Features of each map (context and Example, lists), and the columns of each.
  const NameTable context_;
  const NameTable lists_;
  std::vector<Target> context_targets_;
  std::vector<Target> list_targets_;
};

}  // namespace headrace::detail
