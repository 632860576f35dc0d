#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "shard/build.h"
#include "shard/index/index_file.h"
#include "shard/indexed_dataset.h"
#include "shard/listing.h"
#include "shard/mds/mds_encoding.h"

namespace headrace {
namespace detail {
namespace {

// A billion samples of varying size take 1 to 2 GiB; more has to be split into several datasets.
constexpr std::uint64_t kMostIndexBytes = std::uint64_t{16} << 30;

class Opener {
 public:
  explicit Opener(const BuildContext& context) : context_(context) {}

  Result<std::shared_ptr<const Dataset>> open() {
    if (context_.options.use_stored_index) {
      HEADRACE_TRY_ASSIGN(auto stored, stored_index());
      if (stored) return finish(*std::move(stored));
    }
    HEADRACE_TRY_ASSIGN(auto bytes, fresh_index(true));
    return finish(std::move(bytes));
  }

  /// Index made anew, or (`use_cache`) the one that an earlier open made of the same objects.
  Result<IndexBytes> fresh_index(bool use_cache) {
    const Format wanted = context_.options.format;
    if (wanted == Format::kAuto || wanted == Format::kMds) {
      ObjectInfo info;
      auto json = read_object(context_.store, context_.pool, std::string(kMdsIndexName),
                              kMostIndexJsonBytes, context_.call, &info);
      if (json) {
        const IndexJsonKind kind =
            wanted == Format::kMds ? IndexJsonKind::kMds : kind_of_index_json(*json);
        if (kind == IndexJsonKind::kLitData) {
          return Status(
              Code::kUnsupported,
              fmt::format("{}: is a LitData dataset, which this version does not read", url()));
        }
        if (kind == IndexJsonKind::kMds) return mds_index(*json, info, use_cache);
      } else if (json.error().code() != Code::kNotFound) {
        return std::move(json).error();
      } else if (wanted == Format::kMds) {
        return Status(Code::kNotFound,
                      fmt::format("{}: no MDS dataset there (no {})", url(), kMdsIndexName));
      }
    }
    return listed_index(use_cache);
  }

 private:
  const std::string& url() const { return context_.store.url(); }

  Result<IndexBytes> mds_index(const std::string& json, const ObjectInfo& info, bool use_cache) {
    const IndexSource source{std::string(kMdsIndexName), info.etag,
                             info.size_bytes != 0 ? info.size_bytes : json.size()};
    const std::string manifest = fmt::format("mds {} {}", source.etag, source.size_bytes);
    if (use_cache) {
      if (auto cached = cached_index(manifest)) return *std::move(cached);
    }
    auto index = parse_mds_index(json, context_.options.allow_unsafe);
    if (!index) return std::move(index).error().annotate(url());
    HEADRACE_TRY_ASSIGN(auto bytes, build_mds_index(context_, *index, source));
    return keep(std::move(bytes), manifest, use_cache);
  }

  Result<IndexBytes> listed_index(bool use_cache) {
    auto listing = list_all(context_.store, "", context_.call);
    if (!listing) {
      if (listing.error().code() != Code::kNotFound) return std::move(listing).error();
      return Status(Code::kNotFound,
                    fmt::format("{}: no dataset there ({})", url(), listing.error().message()));
    }
    HEADRACE_TRY_ASSIGN(const DataObjects data,
                        choose_objects(*std::move(listing), context_.options.format, url()));
    const std::string manifest = manifest_of(data);
    if (use_cache) {
      if (auto cached = cached_index(manifest)) return *std::move(cached);
    }
    if (data.format == Format::kRaw)
      return keep(build_raw_index(context_, data.objects), manifest, use_cache);
    HEADRACE_TRY_ASSIGN(auto bytes, build_webdataset_index(context_, data.objects));
    return keep(std::move(bytes), manifest, use_cache);
  }

  // The index beside the dataset, if there is one that is readable, of the wanted format and made
  // of what is there now.
  Result<std::optional<IndexBytes>> stored_index() {
    // What an MDS index is made of is known before the index is: asked for at the same time, it
    // costs no round trip of its own.
    std::optional<Result<ObjectInfo>> mds_source;
    const Format wanted = context_.options.format;
    std::jthread asking;
    if (wanted == Format::kAuto || wanted == Format::kMds) {
      asking = std::jthread(
          [&] { mds_source = context_.store.head(std::string(kMdsIndexName), context_.call); });
    }
    auto bytes = read_object(context_.store, context_.pool, std::string(kIndexName),
                             kMostIndexBytes, context_.call);
    if (asking.joinable()) asking.join();
    if (!bytes) {
      // S3 calls a missing object denied when the caller may not list; what is really denied fails
      // again below.
      if (bytes.error().code() == Code::kNotFound || bytes.error().code() == Code::kDenied) {
        return std::optional<IndexBytes>();
      }
      return std::move(bytes).error();
    }
    IndexBytes index(*std::move(bytes));
    auto view = IndexView::parse(index.bytes());
    // A damaged or newer index only costs the time to make another.
    if (!view) return std::optional<IndexBytes>();
    if (wanted != Format::kAuto && wanted != view->format()) return std::optional<IndexBytes>();
    const IndexSource& source = view->source();
    if (!source.key.empty()) {
      const bool is_asked = mds_source && source.key == kMdsIndexName;
      auto now = is_asked ? *std::move(mds_source) : context_.store.head(source.key, context_.call);
      if (!now && now.error().code() != Code::kNotFound) return std::move(now).error();
      if (!now || now->size_bytes != source.size_bytes || now->etag != source.etag)
        return std::optional<IndexBytes>();
    }
    return std::optional<IndexBytes>(std::move(index));
  }

  std::optional<IndexBytes> cached_index(const std::string& manifest) {
    if (context_.options.index_cache_dir.empty()) return std::nullopt;
    auto mapped =
        IndexBytes::map(cached_index_path(context_.options.index_cache_dir, url(), manifest));
    if (!mapped || !IndexView::parse(mapped->bytes())) return std::nullopt;
    return *std::move(mapped);
  }

  // Publishes a built index; a cache that cannot be written is no reason to fail.
  IndexBytes keep(std::string bytes, const std::string& manifest, bool use_cache) {
    if (use_cache && !context_.options.index_cache_dir.empty()) {
      const std::string path = cached_index_path(context_.options.index_cache_dir, url(), manifest);
      if (publish_file(path, bytes).ok()) {
        if (auto mapped = IndexBytes::map(path)) return *std::move(mapped);
      }
    }
    return IndexBytes(std::move(bytes));
  }

  Result<std::shared_ptr<const Dataset>> finish(IndexBytes bytes) {
    DatasetParts parts{.url = url(), .bytes = std::move(bytes), .view = {}, .blocks = {}};
    HEADRACE_TRY_ASSIGN(parts.view, IndexView::parse(parts.bytes.bytes(), false));
    if (!context_.options.allow_unsafe) HEADRACE_TRY(refuse_pickles(parts.view));
    HEADRACE_TRY_ASSIGN(parts.blocks, make_blocks(parts.view, context_.options.block_bytes));
    return make_dataset(std::move(parts));
  }

  // An index may have been built where pickles were allowed.
  Status refuse_pickles(const IndexView& view) const {
    if (view.format() != Format::kMds) return Status();
    for (Column column : view.columns()) {
      if (Status status = describe_mds_column(column, false); !status.ok())
        return std::move(status).annotate(url());
    }
    return Status();
  }

  const BuildContext& context_;
};

}  // namespace

std::uint64_t BuildContext::read_bytes(std::uint64_t aim_bytes) const noexcept {
  // An eighth of the pool, so that several reads are in flight whatever its size; slabs are charged
  // up to 5/4.
  const std::uint64_t share = pool.limit_bytes() / 8 / 4096 * 4096;
  return std::max<std::uint64_t>(4096, std::min(aim_bytes, share));
}

}  // namespace detail

Result<std::shared_ptr<const Dataset>> Dataset::open(Store& store, SlabPool& pool,
                                                     const DatasetOptions& options,
                                                     const CallOptions& call) {
  const detail::BuildContext context{store, pool, options, call};
  return detail::Opener(context).open();
}

Result<std::string> build_index(Store& store, SlabPool& pool, const DatasetOptions& options,
                                const CallOptions& call) {
  const detail::BuildContext context{store, pool, options, call};
  HEADRACE_TRY_ASSIGN(const auto index, detail::Opener(context).fresh_index(false));
  const auto bytes = index.bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace headrace
