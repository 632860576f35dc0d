// The first file decides what the dataset is: with an .idx beside it every file must have one,
// without one none is looked for. A dataset that mixed both would have samples of two kinds. In
// the same way the first .idx decides the dtype; one that differs is refused, because a column has
// one dtype.
//
// Small .idx files are read 64 at a time, with the versions that the listing gave; large ones one
// by one, since each may take gigabytes. Which .idx were read goes into the layout: they are part
// of what the dataset depends on.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "headrace/range_fetcher.h"
#include "shard/formats/mds/mds_encoding.h"
#include "shard/formats/tokens/idx_layout.h"
#include "shard/formats/tokens/megatron.h"
#include "shard/formats/tokens/tokens_driver.h"
#include "shard/index/index_file.h"

namespace headrace::detail {
namespace {

// 300 million sequences.
constexpr std::uint64_t kMostIdxBytes = std::uint64_t{4} << 30;
// An .idx up to this is read together with those of other files.
constexpr std::uint64_t kSmallIdxBytes = std::uint64_t{1} << 20;
constexpr std::size_t kFilesAtOnce = 64;
// What numpy writes with tofile() for a vocabulary below 65,536: the usual file.
constexpr std::string_view kDefaultDtype = "uint16";

class TokensBuilder {
 public:
  TokensBuilder(const BuildContext& context, const std::vector<ObjectInfo>& objects)
      : context_(context), objects_(objects) {
    for (const ObjectInfo& object : context.side_files) beside_[object.key] = &object;
  }

  Result<std::string> run() {
    HEADRACE_TRY(choose_kind());
    HEADRACE_TRY_ASSIGN(const auto fetcher, RangeFetcher::create(context_.store, context_.pool,
                                                                 {.call = context_.call}));
    for (std::size_t begin = 0; begin < objects_.size(); begin += kFilesAtOnce) {
      const std::size_t end = std::min(objects_.size(), begin + kFilesAtOnce);
      HEADRACE_TRY_ASSIGN(auto small, read_small_idx(*fetcher, begin, end));
      for (std::size_t i = begin; i < end; ++i) {
        HEADRACE_TRY(context_.leave_out(objects_[i], add(i, std::move(small[i - begin]))));
        context_.report(i + 1, objects_.size());
      }
    }
    IndexSource source;
    if (!objects_.empty()) source = {objects_[0].key, objects_[0].etag, objects_[0].size_bytes};
    return writer_.finish({.format = Format::kTokens,
                           .columns = {column()},
                           .source = std::move(source),
                           .block_bytes = context_.options.block_bytes,
                           .layout = format_idx_layout(idx_files_),
                           .broken = context_.left_out()});
  }

 private:
  std::uint64_t per_sample() const { return context_.options.tokens_per_sample; }

  Result<std::string> read_idx(const std::string& key) {
    ObjectInfo info;
    HEADRACE_TRY_ASSIGN(auto idx, read_object(context_.store, context_.pool, key, kMostIdxBytes,
                                              context_.call, &info));
    idx_files_.push_back({key, info.etag, idx.size()});
    return idx;
  }

  // The .idx of objects [begin, end), as far as they are known to be small; else nothing.
  Result<std::vector<std::string>> read_small_idx(RangeFetcher& fetcher, std::size_t begin,
                                                  std::size_t end) {
    std::vector<RangeRead> reads(end - begin);
    for (std::size_t i = begin; i < end; ++i) {
      // The first was read to choose the kind.
      const ObjectInfo* idx = i == 0 ? nullptr : small_idx(objects_[i].key);
      if (idx == nullptr) continue;
      reads[i - begin].key = idx->key;
      reads[i - begin].etag = idx->etag;
      reads[i - begin].length_bytes = idx->size_bytes;
    }
    return fetch_all(fetcher, std::move(reads));
  }
  const ObjectInfo* small_idx(const std::string& key) const {
    if (!has_idx_ || !key.ends_with(".bin")) return nullptr;
    const auto found = beside_.find(idx_key(key));
    if (found == beside_.end()) return nullptr;
    const bool is_small = found->second->size_bytes <= context_.read_bytes(kSmallIdxBytes);
    return is_small ? found->second : nullptr;
  }

  // The first file decides: with an index beside it all must have one, and else none is looked for.
  Status choose_kind() {
    if (per_sample() >> 32 != 0) {
      return Status(Code::kInvalidArgument,
                    fmt::format("tokens_per_sample={}: must be below 2^32", per_sample()));
    }
    if (!objects_.empty() && objects_[0].key.ends_with(".bin")) {
      auto idx = read_idx(idx_key(objects_[0].key));
      has_idx_ = idx.has_value();
      if (has_idx_) {
        first_idx_ = *std::move(idx);
        return Status();
      }
      // S3 calls a missing object denied when the caller may not list.
      if (idx.error().code() != Code::kNotFound && idx.error().code() != Code::kDenied)
        return std::move(idx).error();
    }
    const std::string& asked = context_.options.token_dtype;
    dtype_ = asked.empty() ? kDefaultDtype : std::string_view(asked);
    const auto size = dtype_size_bytes(dtype_);
    if (!size) {
      return Status(Code::kInvalidArgument,
                    fmt::format("token_dtype='{}': must be a numpy dtype such as 'uint16'", asked));
    }
    token_bytes_ = *size;
    if (per_sample() != 0) return Status();
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: a file of tokens without .idx has no samples of its own; say "
                              "their length with tokens_per_sample=",
                              objects_.empty() ? context_.store.url()
                                               : context_.store.object_url(objects_.front().key)));
  }

  // `idx`: from read_small_idx().
  Status add(std::size_t number, std::string idx) {
    const ObjectInfo& object = objects_[number];
    if (has_idx_) {
      if (!object.key.ends_with(".bin"))
        return Status(Code::kInvalidArgument, "is no .bin, unlike the files before it");
      if (number == 0) {
        idx = std::move(first_idx_);
      } else if (!idx.empty()) {
        const ObjectInfo& info = *beside_.at(idx_key(object.key));
        idx_files_.push_back({info.key, info.etag, info.size_bytes});
      } else {
        HEADRACE_TRY_ASSIGN(idx, read_idx(idx_key(object.key)));
      }
      HEADRACE_TRY(take_head(idx));
    }
    if (object.size_bytes == 0 && (!has_idx_ || sequence_count_ > 0)) {
      return Status(Code::kCorrupt,
                    "has no bytes: was its upload cut off? Write it again, or remove it");
    }
    if (object.size_bytes % token_bytes_ != 0) {
      return Status(Code::kCorrupt, fmt::format("{} bytes are not a number of tokens of {} bytes",
                                                object.size_bytes, token_bytes_));
    }
    ShardRecord record;
    record.stored_bytes = record.raw_bytes = object.size_bytes;
    record.first_object = writer_.object_count();
    if (per_sample() != 0) {
      const std::uint64_t sample_bytes = per_sample() * token_bytes_;
      if (sample_bytes > kMostFixedBytes) {
        return Status(Code::kInvalidArgument,
                      fmt::format("tokens_per_sample={}: samples of {} bytes; up to {} are read",
                                  per_sample(), sample_bytes, kMostFixedBytes));
      }
      record.sample_count = object.size_bytes / sample_bytes;
      record.bounds = {.base = 0, .stride = sample_bytes, .first_group = kNoGroups};
    } else {
      HEADRACE_TRY_ASSIGN(const auto bounds,
                          parse_megatron_bounds(std::as_bytes(std::span(idx)), object.size_bytes));
      record.sample_count = bounds.size() - 1;
      record.bounds = writer_.bounds().append(bounds);
    }
    if (record.sample_count > kMostShardSamples) {
      return Status(Code::kInvalidArgument,
                    fmt::format("{} samples in one file; up to {} are read: raise "
                                "tokens_per_sample, or split it",
                                record.sample_count, kMostShardSamples));
    }
    context_.add_whole();
    writer_.add_object(object.key, object.etag, object.size_bytes);
    writer_.add_shard(record);
    return Status();
  }

  Status take_head(const std::string& idx) {
    auto head = parse_megatron_head(std::as_bytes(std::span(idx)));
    if (!head) return std::move(head).error().annotate("its .idx");
    if (token_bytes_ != 0 && head->dtype != dtype_) {
      return Status(Code::kUnsupported,
                    fmt::format("holds {}, the files before it {}", head->dtype, dtype_));
    }
    dtype_ = head->dtype;
    token_bytes_ = head->token_bytes;
    sequence_count_ = head->sequence_count;
    return Status();
  }

  Column column() const {
    Column column;
    column.name = "tokens";
    column.encoding = fmt::format("array:{}", dtype_);
    if (per_sample() == 0) return column;
    column.dtype = dtype_;
    column.shape = {per_sample()};
    column.fixed_size_bytes = per_sample() * token_bytes_;
    return column;
  }

  const BuildContext& context_;
  const std::vector<ObjectInfo>& objects_;
  std::map<std::string_view, const ObjectInfo*> beside_;  // Side files by their keys.
  bool has_idx_ = false;
  std::string first_idx_;
  std::vector<IndexSource> idx_files_;
  std::string_view dtype_;
  std::uint64_t token_bytes_ = 0;
  std::uint64_t sequence_count_ = 0;  // Of the file, by its .idx.
  IndexWriter writer_;
};

}  // namespace

Result<std::string> build_tokens_index(const BuildContext& context,
                                       const std::vector<ObjectInfo>& objects) {
  return TokensBuilder(context, objects).run();
}

}  // namespace headrace::detail
