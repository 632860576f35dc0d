#pragma once
/// \file
/// DecodedValues: makes the values of decoded columns, by their decoders or out of a cache that has
/// kept them (docs/design/0059).
///
/// Kept are the values of columns of a fixed size whose decoders name all that decides them
/// (ValueDecoder::identity()): a block's values of a column are one ValueSeries, named by the
/// versions and ranges that the block consists of and by that identity. What is not there, or
/// damaged, is decoded; its stored bytes are at hand in either case, so nothing here can fail that
/// would not fail without a cache.
///
/// Threads: make() any, several at once; the others the loader's caller.
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "feed/finish/cache_choice.h"
#include "headrace/dataset.h"
#include "headrace/decode.h"
#include "headrace/loader.h"
#include "headrace/value_cache.h"
#include "insight/counter.h"

namespace headrace::feed {

class DecodedValues {
 public:
  struct Parts {
    std::shared_ptr<const Dataset> dataset;
    std::shared_ptr<ValueCache> cache;  ///< nullptr: nothing is kept.
    Clock* clock = nullptr;
    CacheDecoded mode = CacheDecoded::kAuto;
    /// As in Selection.
    std::vector<std::size_t> indices;
    std::vector<std::shared_ptr<const ValueDecoder>> decoders;
    BatchSchema schema;
  };
  explicit DecodedValues(Parts parts);

  /// A value to be made.
  struct Wanted {
    std::size_t column = 0;
    std::uint64_t position = 0;  ///< Of its sample in the dataset.
    std::uint64_t key = 0;       ///< As ValueDecoder::decode().
    std::span<const std::byte> stored;
  };
  /// As ValueDecoder::decode().
  Status make(const Wanted& wanted, std::span<std::byte> out);

  /// Whether another epoch follows.
  enum class Next : std::uint8_t { kNone, kOne, kUnknown };
  /// An epoch begins: what is kept is chosen anew.
  void begin_epoch(Next next);
  /// All values of the epoch were made.
  void end_epoch();

  /// Values of a block, as a range that a cache may be told of.
  struct Kept {
    std::string key, version;
    std::uint64_t length_bytes = 0;
  };
  /// Adds those of a block that may be kept.
  void append_kept(std::uint32_t block, std::deque<Kept>& out) const;
  void append_metrics(MetricList& out) const;

 private:
  /// The values of a column of a block.
  struct Series {
    std::string key, version;
    std::uint64_t value_bytes = 0;
    std::uint32_t count = 0;
    std::atomic<std::uint32_t> hits{0}, misses{0};  // Hints, so relaxed.
    ValueSeries view() const noexcept {
      return {.key = key, .version = version, .value_bytes = value_bytes, .count = count};
    }
  };
  /// A column whose values may be kept.
  struct Column {
    std::string name;
    std::string stored_name;  ///< Of what it is decoded from.
    std::string identity;
    std::uint64_t value_bytes = 0;
    MeanTime decoding, reading;
    MeanTime lately;  ///< Of the reads since it was last judged.
    // These say nothing of other memory, so relaxed.
    std::atomic<CacheVerdict> verdict{CacheVerdict::kUnknown};
    std::atomic<std::uint32_t> told{0};  ///< Bits of verdicts that were logged.
  };

  std::unique_ptr<Column> column_of(std::size_t index) const;
  /// False where an object of the block has no version, or there is none.
  bool name_series(std::size_t column, std::uint32_t block, Kept& out) const;
  /// Null where name_series() has no name.
  std::shared_ptr<Series> series_of(std::size_t column, std::uint32_t block);
  bool read(Column& column, Series& series, std::uint32_t index, std::span<std::byte> out);
  Status decode(const Wanted& wanted, std::span<std::byte> out);
  CacheVerdict verdict_of(Column& column);
  CacheVerdict judge(Column& column);

  const Parts parts_;
  const std::uint64_t capacity_bytes_;
  /// One a column of the batches; null where nothing is kept.
  std::vector<std::unique_ptr<Column>> columns_;
  std::uint64_t needed_bytes_ = 0;  ///< Of a cache that keeps all that is stored and all values.
  /// Whether values are kept that are not there yet. Relaxed: from some value on.
  std::atomic<bool> adds_values_{false};
  std::uint64_t epochs_begun_ = 0;
  Counter decoded_, cached_;

  Mutex mutex_;
  std::map<std::pair<std::size_t, std::uint32_t>, std::shared_ptr<Series>> series_
      HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace::feed
