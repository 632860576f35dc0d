// Which index a dataset is opened with: the one stored beside it, one that an earlier open of the
// same objects kept (cache), or one made now.
//
// Invariants:
// - An index is taken only when it is of what was asked for and of what is there: its source and
//   side files have the version that they had, it was shaped by the same options, and it lacks no
//   more shards than the caller allows. All that does not fit is as if it were not there: it costs
//   the time to make another, never an error. Errors of the store are errors all the same, but for
//   kDenied, which S3 says of what is missing.
// - A cached index is found by its manifest: the objects with their versions and the options that
//   shape it. What shapes an index and is not in there would give one caller another's index.
// - Everything that leaves here has gone through check(): no byte of an index is believed before.
// - Nothing is refused, kept or published on account of bytes that have come once. Bits flip on the
//   wire, so what blames bytes is made again of bytes that have come twice the same
//   (made_surely()), and an index that lacks shards is kept only then.
// - An index that lacks shards names them. One that does not would be taken for the whole.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "base/start_thread.h"
#include "shard/dataset/build.h"
#include "shard/dataset/detect.h"
#include "shard/dataset/empty_shard.h"
#include "shard/dataset/format_driver.h"
#include "shard/dataset/index_json.h"
#include "shard/dataset/index_log.h"
#include "shard/dataset/indexed_dataset.h"
#include "shard/dataset/listing.h"
#include "shard/dataset/lost_index.h"
#include "shard/dataset/splits.h"
#include "shard/index/index_file.h"
#include "shard/index/partial.h"
#include "shard/scan/read_head.h"
#include "shard/sure_store.h"

namespace headrace {
namespace detail {
namespace {

// A billion samples of varying size take 1 to 2 GiB; more has to be split into several datasets.
constexpr std::uint64_t kMostIndexBytes = std::uint64_t{16} << 30;
// A stored index up to this is fetched at every open; a larger one is kept in the cache.
constexpr std::uint64_t kReadAtOnceBytes = std::uint64_t{4} << 20;

// An index that was found fit.
struct OpenIndex {
  IndexBytes bytes;
  IndexView view;  // Of `bytes`; stays valid when they move.
};

Result<OpenIndex> check(IndexBytes bytes) {
  OpenIndex index{std::move(bytes), {}};
  HEADRACE_TRY_ASSIGN(index.view, IndexView::parse(index.bytes.bytes(), true, index.bytes.pages()));
  return index;
}

class Opener {
 public:
  explicit Opener(const BuildContext& context) : context_(context) {}

  Result<std::shared_ptr<const Dataset>> open() {
    if (context_.options.use_stored_index && !has_chosen_objects()) {
      HEADRACE_TRY_ASSIGN(auto stored, stored_index());
      if (stored) {
        origin_ = IndexOrigin::kStored;
        return finish(*std::move(stored));
      }
    }
    HEADRACE_TRY_ASSIGN(auto bytes, fresh_index(true));
    return finish(std::move(bytes));
  }

  /// Of the index that open() found.
  IndexOrigin origin() const noexcept { return origin_; }
  /// One beside the dataset would have been taken, and can be written.
  bool is_storable() const {
    return context_.options.use_stored_index && !has_chosen_objects() &&
           context_.store.traits().can_write;
  }

  /// Index made anew, or (`use_cache`) the one that an earlier open made of the same objects.
  Result<OpenIndex> fresh_index(bool use_cache) {
    const FormatDriver* wanted = wanted_driver();
    if (may_have_index_json() && !has_chosen_objects()) {
      ObjectInfo info;
      auto json = read_object(context_.store, context_.pool, std::string(kIndexJsonName),
                              kMostIndexJsonBytes, context_.call, &info);
      if (json) {
        const FormatDriver* owner = owner_of_index_json(*json);
        if (owner == nullptr) HEADRACE_TRY(check_index_json(context_.store, *json));
        if (wanted != nullptr) owner = wanted;
        if (owner != nullptr) return index_of_json(*json, *owner, info, use_cache);
      } else if (json.error().code() == Code::kExhausted) {
        return large_index(std::move(json).error(), use_cache);
      } else if (json.error().code() != Code::kNotFound) {
        return std::move(json).error();
      }
    }
    if (wanted != nullptr && wanted->index_json != nullptr) {
      return Status(Code::kNotFound, fmt::format("{}: no {} dataset there (no {}{})", url(),
                                                 wanted->index_json->title, kIndexJsonName,
                                                 wanted->index_json->hint));
    }
    return listed_index(use_cache);
  }

 private:
  const std::string& url() const { return context_.store.url(); }

  /// nullptr where the format is to be found.
  const FormatDriver* wanted_driver() const { return driver_of(context_.options.format); }

  bool may_have_index_json() const {
    const FormatDriver* wanted = wanted_driver();
    return wanted == nullptr ? context_.options.format == Format::kAuto
                             : wanted->index_json != nullptr;
  }

  // Not all that lies there: an index of all is not of these.
  bool has_chosen_objects() const {
    return !context_.options.keys.empty() || has_chosen_split(context_.options);
  }

  // Whether nobody said which of several splits is meant.
  bool must_be_one() const {
    const DatasetOptions& options = context_.options;
    return options.split.empty() && options.keys.empty() && options.manifest.empty() &&
           (options.format != fallback_format().id || !options.labels.empty());
  }

  std::string source_manifest(Format format, const IndexSource& source) const {
    const bool is_shaped = shapes_index(context_.options, format);
    return fmt::format("{} {} {} {}", format_name(format), source.etag, source.size_bytes,
                       is_shaped ? manifest_of({}, context_.options) : "");
  }

  Result<OpenIndex> index_of_json(const std::string& json, const FormatDriver& owner,
                                  const ObjectInfo& info, bool use_cache) {
    const IndexSource source{std::string(kIndexJsonName), info.etag,
                             info.size_bytes != 0 ? info.size_bytes : json.size()};
    const std::string manifest = source_manifest(owner.id, source);
    if (use_cache) {
      HEADRACE_TRY_ASSIGN(auto cached, fitting_index(manifest));
      if (cached) return *std::move(cached);
    }
    return keep(owner.index_json->build(context_, json, source), manifest, use_cache);
  }

  // An index.json above kMostIndexJsonBytes.
  Result<OpenIndex> large_index(Status why, bool use_cache) {
    HEADRACE_TRY_ASSIGN(ObjectInfo info,
                        context_.store.head(std::string(kIndexJsonName), context_.call));
    if (info.size_bytes <= kMostIndexJsonBytes) return why.clone();
    info.key = kIndexJsonName;
    HEADRACE_TRY_ASSIGN(const FormatDriver* owner, large_owner(info));
    const IndexSource source{info.key, info.etag, info.size_bytes};
    const std::string manifest = source_manifest(owner->id, source);
    if (use_cache) {
      HEADRACE_TRY_ASSIGN(auto cached, fitting_index(manifest));
      if (cached) return *std::move(cached);
    }
    return keep(owner->index_json->build_large(context_, info, source), manifest, use_cache);
  }

  Result<const FormatDriver*> large_owner(const ObjectInfo& info) const {
    if (const FormatDriver* wanted = wanted_driver()) return wanted;
    HEADRACE_TRY_ASSIGN(const auto head, read_head(context_, info));
    const FormatDriver* owner =
        owner_of_index_json_head({reinterpret_cast<const char*>(head.data()), head.size()});
    if (owner != nullptr) return owner;
    // Whose it is stands further on: the first that reads such files says what is wrong with it.
    const auto formats = all_formats();
    return *std::find_if(formats.begin(), formats.end(),
                         [](const FormatDriver* driver) { return driver->index_json != nullptr; });
  }

  Result<OpenIndex> listed_index(bool use_cache) {
    HEADRACE_TRY_ASSIGN(Candidates candidates, list_candidates(context_));
    if (has_chosen_split(context_.options)) HEADRACE_TRY(choose_split(context_, candidates));
    HEADRACE_TRY_ASSIGN(const std::string manifest, listed_manifest(candidates.all, use_cache));
    if (use_cache) {
      HEADRACE_TRY_ASSIGN(auto cached, fitting_index(manifest));
      if (cached) return *std::move(cached);
    }
    std::vector<ObjectInfo> side_files;
    std::copy_if(candidates.all.begin(), candidates.all.end(), std::back_inserter(side_files),
                 [](const ObjectInfo& object) { return has_side_ending(object.key); });
    const auto splits = must_be_one() ? std::make_optional<SplitTable>(candidates) : std::nullopt;
    if (splits && splits->is_sure()) HEADRACE_TRY(refuse_several(context_, *splits));
    HEADRACE_TRY_ASSIGN(DataObjects data, choose_objects(context_, std::move(candidates)));
    // Any word may be in the names of files that are samples themselves.
    if (splits && data.format != fallback_format().id)
      HEADRACE_TRY(refuse_several(context_, *splits));
    if (splits && data.has_beside)
      HEADRACE_TRY(
          refuse_several(context_, SplitTable({.all = {}, .data = {}, .lines = data.objects})));
    HEADRACE_TRY(leave_out_empty(context_, data));
    if (data.objects.empty() && !context_.broken->empty())
      return context_.broken->error(context_.store);
    const FormatDriver* driver = driver_of(data.format);
    if (driver == nullptr || driver->build == nullptr) return unknown_format(url(), data.format);
    std::erase_if(side_files, [driver](const ObjectInfo& object) {
      return !ends_with_any(object.key, driver->side_endings);
    });
    BuildContext context = context_;
    context.side_files = side_files;
    return keep(driver->build(context, data.objects), manifest, use_cache);
  }

  // Files beside objects that were asked for by their keys shape the index as well.
  Result<std::string> listed_manifest(std::vector<ObjectInfo> objects, bool use_cache) {
    std::vector<std::string> keys;
    if (use_cache && !context_.options.index_cache_dir.empty()) {
      for (const std::string& key : context_.options.keys) add_side_keys(key, keys);
    }
    if (!keys.empty()) {
      HEADRACE_TRY_ASSIGN(auto beside, look_up(context_, keys, false));
      std::move(beside.begin(), beside.end(), std::back_inserter(objects));
    }
    return manifest_of(objects, context_.options);
  }

  void add_side_keys(const std::string& key, std::vector<std::string>& keys) const {
    const Format wanted = context_.options.format;
    for (const FormatDriver* driver : all_formats()) {
      if (driver->side_key == nullptr || (wanted != Format::kAuto && wanted != driver->id))
        continue;
      if (std::string side_key = driver->side_key(key); !side_key.empty())
        keys.push_back(std::move(side_key));
    }
  }

  // The index beside the dataset, if there is one that is readable, of the wanted format and made
  // of what is there now.
  Result<std::optional<OpenIndex>> stored_index() {
    // What such an index is made of as a rule is known before the index is: asked for at the same
    // time, it costs no round trip of its own.
    std::optional<Result<ObjectInfo>> json_source;
    const Format wanted = context_.options.format;
    std::jthread asking;
    if (may_have_index_json()) {
      start_thread(asking, [&] {
        json_source = context_.store.head(std::string(kIndexJsonName), context_.call);
      });
    }
    auto index = read_stored();
    if (asking.joinable()) asking.join();
    if (!index) return std::move(index).error();
    if (!*index || (wanted != Format::kAuto && wanted != (*index)->view.format()) ||
        !is_shaped_as_asked((*index)->view)) {
      return std::optional<OpenIndex>();
    }
    const IndexSource& source = (*index)->view.source();
    if (!source.key.empty()) {
      const bool is_asked = json_source && source.key == kIndexJsonName;
      auto now =
          is_asked ? *std::move(json_source) : context_.store.head(source.key, context_.call);
      if (!now && now.error().code() != Code::kNotFound) return std::move(now).error();
      if (!now || now->size_bytes != source.size_bytes || now->etag != source.etag)
        return std::optional<OpenIndex>();
    }
    HEADRACE_TRY_ASSIGN(const bool is_current, has_current_side_files((*index)->view));
    HEADRACE_TRY_ASSIGN(const bool is_whole_enough, may_lack((*index)->view.broken()));
    if (!is_current || !is_whole_enough) return std::optional<OpenIndex>();
    return *std::move(index);
  }

  // Whether an index without these shards is what is asked for: that they may be missing was said,
  // and each is as it was. One that was written again is to be read.
  Result<bool> may_lack(const std::vector<BrokenShard>& broken) {
    if (broken.empty()) return true;
    if (context_.options.on_broken_shard != OnBrokenShard::kLeaveOut) return false;
    std::vector<std::string> keys;
    for (const BrokenShard& shard : broken) keys.push_back(shard.key);
    HEADRACE_TRY_ASSIGN(const auto now, look_up(context_, keys, false));
    std::vector<BrokenShard> there;
    std::copy_if(broken.begin(), broken.end(), std::back_inserter(there),
                 [](const BrokenShard& shard) { return shard.code != Code::kNotFound; });
    return std::equal(now.begin(), now.end(), there.begin(), there.end(),
                      [](const ObjectInfo& a, const BrokenShard& b) {
                        return a.key == b.key && a.etag == b.etag && a.size_bytes == b.size_bytes;
                      });
  }

  bool is_shaped_as_asked(const IndexView& view) const {
    const FormatDriver& driver = *driver_of(view.format());
    return driver.is_as_asked == nullptr ? !shapes_index(context_.options, view.format())
                                         : driver.is_as_asked(context_.options, view.layout());
  }

  // False when a side file that the index was made with is another by now.
  Result<bool> has_current_side_files(const IndexView& view) {
    const FormatDriver& driver = *driver_of(view.format());
    if (driver.side_sources == nullptr || view.layout().empty()) return true;
    auto made_with = driver.side_sources(view.layout());
    if (!made_with) return false;
    std::vector<std::string> keys;
    for (const IndexSource& file : *made_with) keys.push_back(file.key);
    HEADRACE_TRY_ASSIGN(const auto now, look_up(context_, keys, false));
    return std::equal(now.begin(), now.end(), made_with->begin(), made_with->end(),
                      [](const ObjectInfo& a, const IndexSource& b) {
                        return a.key == b.key && a.etag == b.etag && a.size_bytes == b.size_bytes;
                      });
  }

  // What lies beside the dataset: a local file, or one that was fetched before.
  Result<std::optional<OpenIndex>> read_stored() {
    const std::string directory = context_.store.local_directory();
    if (!directory.empty()) return index_in_file(fmt::format("{}/{}", directory, kIndexName));
    auto bytes = read_object(context_.store, context_.pool, std::string(kIndexName),
                             kReadAtOnceBytes, context_.call);
    // S3 calls a missing object denied when the caller may not list; what is really denied fails
    // again below.
    if (!bytes &&
        (bytes.error().code() == Code::kNotFound || bytes.error().code() == Code::kDenied)) {
      return std::optional<OpenIndex>();
    }
    if (!bytes && bytes.error().code() == Code::kExhausted) return read_large_stored();
    if (!bytes) return std::move(bytes).error();
    auto index = check(IndexBytes(*std::move(bytes)));
    if (!index) return std::optional<OpenIndex>();
    return std::optional<OpenIndex>(*std::move(index));
  }

  Result<std::optional<OpenIndex>> read_large_stored() {
    HEADRACE_TRY_ASSIGN(const ObjectInfo info,
                        context_.store.head(std::string(kIndexName), context_.call));
    const std::string name = fmt::format("stored {} {}", info.etag, info.size_bytes);
    if (auto cached = cached_index(name)) return std::optional<OpenIndex>(*std::move(cached));
    HEADRACE_TRY_ASSIGN(auto bytes,
                        read_object(context_.store, context_.pool, std::string(kIndexName),
                                    kMostIndexBytes, context_.call));
    if (!IndexView::verify_sums(std::as_bytes(std::span(bytes))).ok())
      return std::optional<OpenIndex>();
    HEADRACE_TRY_ASSIGN(auto index, publish(std::move(bytes), name, true));
    return std::optional<OpenIndex>(std::move(index));
  }

  // A cached one that may_lack() what it lacks.
  Result<std::optional<OpenIndex>> fitting_index(const std::string& manifest) {
    auto cached = cached_index(manifest);
    if (!cached) return cached;
    HEADRACE_TRY_ASSIGN(const bool is_whole_enough, may_lack(cached->view.broken()));
    return is_whole_enough ? std::move(cached) : std::nullopt;
  }

  std::optional<OpenIndex> cached_index(const std::string& manifest) {
    if (context_.options.index_cache_dir.empty()) return std::nullopt;
    auto cached =
        index_in_file(cached_index_path(context_.options.index_cache_dir, url(), manifest));
    if (cached) origin_ = IndexOrigin::kCached;
    return cached;
  }

  // A damaged index, or one of another version, is as if it were not there: it only costs the time
  // to make another.
  static std::optional<OpenIndex> index_in_file(const std::string& path) {
    auto bytes = IndexBytes::read(path);
    if (!bytes) return std::nullopt;
    auto index = check(*std::move(bytes));
    if (!index) return std::nullopt;
    return *std::move(index);
  }

  // A built index, if it lacks no more than it may.
  Result<OpenIndex> keep(Result<std::string> built, const std::string& manifest, bool use_cache) {
    const BrokenShards& broken = *context_.broken;
    const bool may_lack_some = context_.options.on_broken_shard == OnBrokenShard::kLeaveOut;
    const bool is_about_broken = built || blames_shard(built.error().code());
    if (!broken.empty() && is_about_broken && (!may_lack_some || broken.whole_count() == 0))
      return broken.error(context_.store);
    if (!built) return std::move(built).error();
    if (!broken.empty()) {
      HEADRACE_TRY_ASSIGN(OpenIndex index, check(IndexBytes(*built)));
      // An index that does not say what it lacks would be taken for the whole.
      if (index.view.broken().size() != broken.size()) return broken.error(context_.store);
      // It may only lack it for now, until bytes have come twice the same.
      if (!context_.is_sure) return index;
    }
    return publish(*std::move(built), manifest, use_cache);
  }

  // A cache that cannot be written is no reason to fail.
  Result<OpenIndex> publish(std::string bytes, const std::string& manifest, bool use_cache) {
    PartialIndex::remove(context_.options.index_cache_dir, url());
    if (use_cache && !context_.options.index_cache_dir.empty()) {
      const std::string path = cached_index_path(context_.options.index_cache_dir, url(), manifest);
      if (publish_file(path, bytes).ok()) {
        if (auto kept = index_in_file(path)) return *std::move(kept);
      }
    }
    return check(IndexBytes(std::move(bytes)));
  }

  Result<std::shared_ptr<const Dataset>> finish(OpenIndex index) {
    DatasetParts parts{
        .url = url(), .bytes = std::move(index.bytes), .view = std::move(index.view), .blocks = {}};
    if (!context_.options.allow_unsafe) HEADRACE_TRY(refuse_unsafe(parts.view));
    HEADRACE_TRY_ASSIGN(parts.blocks, make_blocks(parts.view, context_.options.block_bytes));
    if (parts.bytes.pages() != nullptr) HEADRACE_TRY(parts.bytes.pages()->status());
    return make_dataset(std::move(parts), context_.options);
  }

  // An index may have been built where they were allowed.
  Status refuse_unsafe(const IndexView& view) const {
    const FormatDriver& driver = *driver_of(view.format());
    if (driver.refuse_unsafe == nullptr) return Status();
    Status status = driver.refuse_unsafe(view.columns());
    return status.ok() ? Status() : std::move(status).annotate(url());
  }

  const BuildContext& context_;
  IndexOrigin origin_ = IndexOrigin::kBuilt;
};

// What bytes may be blamed for: besides what makes no sense, a name, a version or a kind that they
// only seem to say.
bool may_be_flipped(Code code) noexcept {
  return code == Code::kCorrupt || code == Code::kUnsupported || code == Code::kNotFound;
}

// What an Opener makes of the store. Where it blames bytes, a bit that flipped on the wire may have
// made them so: it is made again of bytes that have come twice the same, and what is wrong with
// those is the data's fault. The same error twice would prove nothing: other bytes may cause it.
template <class T, class Make>
Result<T> made_surely(BuildContext context, const Make& make) {
  BrokenShards broken;
  context.broken = &broken;
  context.is_sure = context.store.traits().is_local;
  Result<T> made = make(context);
  const bool is_doubtful = !broken.empty() || (!made && may_be_flipped(made.error().code()));
  if (!is_doubtful || context.is_sure) return made;
  SureStore sure(context.store);
  BrokenShards surely_broken;
  return make(BuildContext{sure, context.pool, context.options, context.call, context.side_files,
                           &surely_broken, true});
}

}  // namespace

std::uint64_t BuildContext::read_bytes(std::uint64_t aim_bytes) const noexcept {
  // An eighth of the pool, so that several reads are in flight whatever its size; slabs are charged
  // up to 5/4.
  const std::uint64_t share = pool.limit_bytes() / 8 / 4096 * 4096;
  return std::max<std::uint64_t>(4096, std::min(aim_bytes, share));
}

namespace {

// The options with the format that others of them imply.
Result<DatasetOptions> complete(DatasetOptions options) {
  const bool has_labels = !options.labels.empty();
  const bool has_manifest = !options.manifest.empty();
  const auto refused = [](std::string what) {
    return Status(Code::kInvalidArgument, std::move(what));
  };
  if (has_labels && options.labels != "folder")
    return refused(fmt::format("labels='{}': must be 'folder'", options.labels));
  if (has_manifest && (has_labels || !options.keys.empty()))
    return refused(
        "manifest= names the files and what goes with them: leave out labels= and keys=");
  if (!has_labels && !has_manifest) return options;
  if (options.format == Format::kAuto) options.format = fallback_format().id;
  const FormatDriver* driver = driver_of(options.format);
  if (driver != nullptr && driver->reads.labels) return options;
  return refused(fmt::format("{}= belongs to raw files, not to format='{}'",
                             has_labels ? "labels" : "manifest", format_name(options.format)));
}

}  // namespace
}  // namespace detail

Result<std::shared_ptr<const Dataset>> Dataset::open(Store& store, SlabPool& pool,
                                                     const DatasetOptions& given,
                                                     const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(DatasetOptions options, detail::complete(given));
  detail::IndexLog log(store.url(), system_clock());
  options.progress = log.listen(std::move(options.progress));
  const detail::BuildContext context{store, pool, options, call};
  return detail::made_surely<std::shared_ptr<const Dataset>>(
      context, [&log](const detail::BuildContext& c) {
        detail::Opener opener(c);
        auto dataset = opener.open();
        if (dataset) log.opened(**dataset, opener.origin(), opener.is_storable());
        return dataset;
      });
}

Result<std::string> build_index(Store& store, SlabPool& pool, const DatasetOptions& given,
                                const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(DatasetOptions options, detail::complete(given));
  detail::IndexLog log(store.url(), system_clock());
  options.progress = log.listen(std::move(options.progress));
  const detail::BuildContext context{store, pool, options, call};
  HEADRACE_TRY_ASSIGN(const auto index, detail::made_surely<detail::OpenIndex>(
                                            context, [](const detail::BuildContext& c) {
                                              return detail::Opener(c).fresh_index(false);
                                            }));
  const auto bytes = index.bytes.bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace headrace
