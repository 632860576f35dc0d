#pragma once
/// \file
/// SampleFormat: how one format writes samples one after the other: the bytes of a sample, what
/// stands before and after them in a shard, and what an index says. One implementation a format.
///
/// Threads: one owner.
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "headrace/pack.h"
#include "pack/cell_type.h"

namespace headrace::pack_detail {

/// One column as it is written.
struct TargetColumn {
  std::string name;
  CellType type;
  std::string encoding;  ///< As PackColumn::encoding.
  std::size_t cell = 0;  ///< Its place among the cells of a sample.
};

class SampleFormat {
 public:
  virtual ~SampleFormat() = default;

  /// Appends a sample. `cells` has the bytes of each column, in the order of the columns; one that
  /// is absent has data() == nullptr. Errors: kInvalidArgument (a value is missing, or none that
  /// the format can hold), kUnsupported, kCorrupt; `out` is then cut back by the caller.
  virtual Status append(std::span<const std::span<const std::byte>> cells, std::uint64_t number,
                        std::vector<std::byte>& out) = 0;
  /// The sample that was appended last stays in the shard.
  virtual void commit() {}
  /// Another shard begins.
  virtual void begin_shard() {}
  /// What stands before the samples; `ends[i]` is the end of sample i, from the first one's begin.
  virtual std::string head(std::span<const std::uint64_t> ends) const = 0;
  /// What stands after them.
  virtual std::string tail() const { return {}; }
  /// Size of head() and tail() for `count` samples.
  virtual std::uint64_t frame_bytes(std::uint64_t count) const = 0;
  /// What readers count where `count` were committed to the shard.
  virtual std::uint64_t sample_count(std::uint64_t count) const { return count; }
  /// Columns in the order of the shard.
  virtual const std::vector<TargetColumn>& columns() const = 0;
  /// What the index repeats for all shards.
  virtual nlohmann::json config() const { return nlohmann::json::object(); }
};

using Columns = std::vector<TargetColumn>;
/// Errors of all: kUnsupported (a column that the format cannot hold), kInvalidArgument (names).
Result<std::unique_ptr<SampleFormat>> make_mds_format(Columns columns, const ShardFormat& format);
Result<std::unique_ptr<SampleFormat>> make_tar_format(Columns columns);
Result<std::unique_ptr<SampleFormat>> make_tfrecord_format(Columns columns);
Result<std::unique_ptr<SampleFormat>> make_litdata_format(Columns columns,
                                                          const ShardFormat& format);

/// "column 'x': " in front of a message.
Status in_column(const TargetColumn& column, Status status);
inline void append_bytes(std::vector<std::byte>& out, std::span<const std::byte> bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}
inline void append_text(std::vector<std::byte>& out, std::string_view text) {
  append_bytes(out, std::as_bytes(std::span(text.data(), text.size())));
}
void append_u32(std::vector<std::byte>& out, std::uint64_t value);
/// u32 count, u32 offsets[count + 1], `config`: the head of MDS shards and LitData chunks.
std::string offsets_head(std::span<const std::uint64_t> ends, std::string_view config);

}  // namespace headrace::pack_detail
