// Invariants:
// - What read() gives is what decode() would write: a series is named by all that decides it, and
//   the cache proves each value by its sum.
#include "feed/finish/decoded_values.h"

#include <algorithm>

#include "base/strings.h"
#include "headrace/log.h"
#include "headrace/second_look.h"

namespace headrace::feed {
namespace {

/// Another one as soon as the same identity names other values, or a series others.
constexpr std::string_view kSeriesVersion = "decoded 3";
/// Names of series that are remembered; a name is some 200 bytes.
constexpr std::size_t kMostSeries = 8192;
/// Of a block of which so many were looked for in vain, and none found, only every so-manyth value
/// is looked for: it may be about to be written.
constexpr std::uint32_t kMostMisses = 2;
constexpr std::uint32_t kLookedFor = 8;
/// So many reads later it is asked again whether they are worth it: at the beginning of an epoch
/// they share the disk with the windows that are read then.
constexpr std::uint64_t kJudgedReads = 512;
/// Pages of files before the values, for each so many of them. Source: tier/disk_values.h.
constexpr std::uint64_t kValuesAFile = 128;
constexpr std::uint64_t kFileHeadBytes = 4096;

void add_field(std::string& text, std::string_view field) {
  text += std::to_string(field.size());
  text += ':';
  text += field;
}

ValueSeries series_of_size(std::uint64_t value_bytes, std::uint32_t count) noexcept {
  return {.key = {}, .version = {}, .value_bytes = value_bytes, .count = count};
}

std::uint64_t file_bytes_of(std::uint64_t value_bytes, std::uint64_t count) noexcept {
  return count * series_of_size(value_bytes, 1).length_bytes() +
         (count / kValuesAFile + 1) * kFileHeadBytes;
}

std::size_t common_beginning(std::string_view a, std::string_view b) noexcept {
  const auto differs = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(differs.first - a.begin());
}

}  // namespace

DecodedValues::DecodedValues(Parts parts)
    : parts_(std::move(parts)),
      capacity_bytes_(parts_.cache != nullptr ? parts_.cache->capacity_bytes() : 0) {
  if (parts_.cache == nullptr || parts_.mode == CacheDecoded::kOff) return;
  columns_.resize(parts_.decoders.size());
  needed_bytes_ = parts_.dataset->stored_bytes();
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    columns_[c] = column_of(c);
    if (columns_[c] == nullptr) continue;
    needed_bytes_ += file_bytes_of(columns_[c]->value_bytes, parts_.dataset->sample_count());
  }
}

std::unique_ptr<DecodedValues::Column> DecodedValues::column_of(std::size_t index) const {
  const ValueDecoder* const decoder = parts_.decoders[index].get();
  if (decoder == nullptr) return nullptr;
  const OutputColumn& output = parts_.schema[index];
  std::string identity = decoder->identity();
  if (identity.empty() || output.is_ragged()) {
    if (process_log().wants(LogLevel::kInfo))
      process_log().write(
          LogLevel::kInfo, "loader",
          "column '" + output.name +
              "' is decoded in each epoch: only values that nothing random decides, "
              "of one size and dear to make are kept in the cache");
    return nullptr;
  }
  auto column = std::make_unique<Column>();
  column->name = output.name;
  column->stored_name = parts_.dataset->columns()[parts_.indices[index]].name;
  column->identity = std::move(identity);
  column->value_bytes = output.fixed_size_bytes;
  return column;
}

// --- making ---

Status DecodedValues::make(const Wanted& wanted, std::span<std::byte> out) {
  Column* const column = columns_.empty() ? nullptr : columns_[wanted.column].get();
  if (column == nullptr) return decode(wanted, out);
  const CacheVerdict verdict = verdict_of(*column);
  const bool is_measured = verdict == CacheVerdict::kUnknown;
  if (!is_measured && verdict != CacheVerdict::kKept) return decode(wanted, out);
  const std::uint32_t block = parts_.dataset->block_of(wanted.position);
  const auto index =
      static_cast<std::uint32_t>(wanted.position - parts_.dataset->block(block).first_sample);
  const std::shared_ptr<Series> series = series_of(wanted.column, block);
  const bool is_there = series != nullptr && read(*column, *series, index, out);
  // As long as nobody knows how long decoding takes, what is there is decoded all the same.
  if (is_there && !is_measured) return {};
  const TimePoint began = parts_.clock->now();
  HEADRACE_TRY(decode(wanted, out));
  column->decoding.add(parts_.clock->now() - began);
  if (series != nullptr && !is_there && adds_values_.load(std::memory_order_relaxed))
    parts_.cache->keep(series->view(), index, out);
  return {};
}

Status DecodedValues::decode(const Wanted& wanted, std::span<std::byte> out) {
  decoded_.add();
  return parts_.decoders[wanted.column]->decode(wanted.stored, wanted.key, out);
}

bool DecodedValues::read(Column& column, Series& series, std::uint32_t index,
                         std::span<std::byte> out) {
  const bool is_missing = series.hits.load(std::memory_order_relaxed) == 0 &&
                          series.misses.load(std::memory_order_relaxed) >= kMostMisses;
  if (is_missing && index % kLookedFor != 0) return false;
  const TimePoint began = parts_.clock->now();
  if (!parts_.cache->read(series.view(), index, out)) {
    series.misses.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  series.hits.fetch_add(1, std::memory_order_relaxed);
  cached_.add();
  const TimePoint::duration took = parts_.clock->now() - began;
  column.reading.add(took);
  if (column.lately.add(took) % kJudgedReads == 0) judge(column);
  return true;
}

// --- choosing ---

CacheVerdict DecodedValues::verdict_of(Column& column) {
  if (parts_.mode == CacheDecoded::kAlways) return CacheVerdict::kKept;
  const CacheVerdict verdict = column.verdict.load(std::memory_order_relaxed);
  return verdict == CacheVerdict::kUnknown ? judge(column) : verdict;
}

CacheVerdict DecodedValues::judge(Column& column) {
  if (parts_.mode == CacheDecoded::kAlways) return CacheVerdict::kKept;
  const CacheCosts costs{.decode_s = column.decoding.seconds(),
                         .read_s = column.lately.seconds(),
                         .value_bytes = column.value_bytes,
                         .needed_bytes = needed_bytes_,
                         .capacity_bytes = capacity_bytes_};
  column.lately.reset();
  const CacheVerdict verdict = judge_cache(costs);
  column.verdict.store(verdict, std::memory_order_relaxed);
  const std::uint32_t bit = 1U << static_cast<std::uint32_t>(verdict);
  const bool is_told = (column.told.fetch_or(bit, std::memory_order_relaxed) & bit) != 0;
  if (verdict != CacheVerdict::kUnknown && !is_told && process_log().wants(LogLevel::kInfo))
    process_log().write(LogLevel::kInfo, "loader",
                        "column '" + column.name + "' " + explain_cache(costs, verdict));
  return verdict;
}

void DecodedValues::begin_epoch(Next next) {
  ++epochs_begun_;
  // Who has come back once will come back again.
  const bool goes_on = next == Next::kOne || (next == Next::kUnknown && epochs_begun_ > 1);
  adds_values_.store(parts_.mode == CacheDecoded::kAlways || goes_on, std::memory_order_relaxed);
  for (const auto& column : columns_) {
    if (column == nullptr) continue;
    column->lately.reset();
    column->verdict.store(CacheVerdict::kUnknown, std::memory_order_relaxed);
  }
  MutexLock lock(mutex_);
  series_.clear();
}

void DecodedValues::end_epoch() {
  if (!columns_.empty()) parts_.cache->settle();
}

// --- names ---

bool DecodedValues::name_series(std::size_t column, std::uint32_t block, Kept& out) const {
  const std::uint32_t count = parts_.dataset->block(block).sample_count;
  std::vector<Extent> extents;
  parts_.dataset->append_extents(block, 0, count, extents);
  if (extents.empty()) return false;
  const std::string_view first = extents.front().key;
  std::string all;
  add_field(all, kSeriesVersion);
  add_field(all, columns_[column]->stored_name);
  add_field(all, columns_[column]->identity);
  for (const Extent& extent : extents) {
    if (extent.etag.empty()) return false;
    // Below what it has in common with the first: of a mixture, keys begin with a source's number.
    add_field(all, extent.key.substr(common_beginning(extent.key, first)));
    add_field(all, extent.etag);
    add_field(all, std::to_string(extent.offset_bytes));
    add_field(all, std::to_string(extent.length_bytes));
  }
  add_field(all, std::to_string(count));
  std::string layout;
  parts_.dataset->append_layout(block, layout);
  add_field(all, layout);
  const std::uint64_t digest = SecondLook::digest_of(std::as_bytes(std::span(all)));
  out.key = std::string(first) + "#" + columns_[column]->name;
  out.version = std::string(extents.front().etag) + " " + std::to_string(digest);
  out.length_bytes = series_of_size(columns_[column]->value_bytes, count).length_bytes();
  return true;
}

std::shared_ptr<DecodedValues::Series> DecodedValues::series_of(std::size_t column,
                                                                std::uint32_t block) {
  const std::pair at(column, block);
  {
    MutexLock lock(mutex_);
    if (const auto known = series_.find(at); known != series_.end()) return known->second;
  }
  Kept name;
  std::shared_ptr<Series> series;
  if (name_series(column, block, name)) {
    series = std::make_shared<Series>();
    series->key = std::move(name.key);
    series->version = std::move(name.version);
    series->value_bytes = columns_[column]->value_bytes;
    series->count = parts_.dataset->block(block).sample_count;
  }
  MutexLock lock(mutex_);
  if (series_.size() >= kMostSeries) series_.clear();
  return series_.emplace(at, std::move(series)).first->second;
}

void DecodedValues::append_kept(std::uint32_t block, std::deque<Kept>& out) const {
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    Kept kept;
    if (columns_[c] != nullptr && name_series(c, block, kept)) out.push_back(std::move(kept));
  }
}

void DecodedValues::append_metrics(MetricList& out) const {
  std::uint64_t kept = 0;
  double decode_s = 0, read_s = 0;
  for (const auto& column : columns_) {
    if (column == nullptr) continue;
    const bool is_kept = parts_.mode == CacheDecoded::kAlways ||
                         column->verdict.load(std::memory_order_relaxed) == CacheVerdict::kKept;
    kept += is_kept ? 1 : 0;
    decode_s = std::max(decode_s, column->decoding.seconds().value_or(0));
    read_s = std::max(read_s, column->reading.seconds().value_or(0));
  }
  append_counter(out, "loader.decoded_values", "values", decoded_.value());
  append_counter(out, "loader.cached_values", "values", cached_.value());
  append_gauge(out, "loader.cached_columns", "columns", static_cast<double>(kept));
  append_gauge(out, "loader.decode_value_us", "us", decode_s * 1e6);
  append_gauge(out, "loader.cached_value_us", "us", read_s * 1e6);
}

}  // namespace headrace::feed
