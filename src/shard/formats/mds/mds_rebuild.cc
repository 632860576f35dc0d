// Makes the index.json of a folder of MDS shards anew: every shard repeats what the index says of
// its columns, and where its samples are.
#include <fmt/format.h>
#include <snappy.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/endian.h"
#include "base/strings.h"
#include "headrace/range_fetcher.h"
#include "headrace/rebuild.h"
#include "shard/codec/digest.h"
#include "shard/codec/inflate.h"
#include "shard/codec/stream_inflater.h"
#include "shard/dataset/build.h"
#include "shard/dataset/index_json.h"
#include "shard/dataset/listing.h"
#include "shard/formats/mds/mds_index.h"
#include "shard/formats/mds/mds_names.h"
#include "shard/formats/mds/mds_shard.h"

namespace headrace::detail {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMostShardBytes = 0xffff'ffffULL;
// Front of a shard that is read at first: the table of 16,000 samples.
constexpr std::uint64_t kFrontBytes = std::uint64_t{64} << 10;
// Shards whose fronts are read at once.
constexpr std::size_t kBatch = 64;
constexpr std::size_t kInflateStepBytes = std::size_t{1} << 20;

constexpr std::pair<std::string_view, Compression> kCodings[] = {{"zstd", Compression::kZstd},
                                                                 {"gz", Compression::kGzip},
                                                                 {"bz2", Compression::kBzip2},
                                                                 {"br", Compression::kBrotli},
                                                                 {"snappy", Compression::kSnappy}};

struct Source {
  const ObjectInfo* plain = nullptr;
  const ObjectInfo* zipped = nullptr;
  std::string_view coding;  // Of `zipped`: its ending.
  Compression compression = Compression::kNone;
};

// What the front of a shard says.
struct Front {
  std::uint64_t sample_count = 0;
  Json config;
};

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

Status corrupt(std::string_view what) {
  return Status(
      Code::kCorrupt,
      fmt::format("{}: its upload or its writer may have been cut off; write it again, or "
                  "name the shards that are whole with --key",
                  what));
}

// Bytes of the table and the configuration, or those that have to be read to know.
Result<std::uint64_t> front_bytes(std::span<const std::byte> head, std::uint64_t size_bytes) {
  if (head.size() < 8) return corrupt(fmt::format("has {} bytes, no MDS shard", size_bytes));
  const std::uint64_t table = mds_table_bytes(load_le<std::uint32_t>(head.data()));
  const std::uint64_t first = load_le<std::uint32_t>(head.data() + 4);
  if (first < table || first > size_bytes)
    return corrupt(fmt::format("has {} bytes, its front says more", size_bytes));
  return first;
}

// \pre front: front_bytes() of it.
Result<Front> parse_front(std::span<const std::byte> front, std::uint64_t size_bytes) {
  Front out;
  out.sample_count = load_le<std::uint32_t>(front.data());
  const std::uint64_t table = mds_table_bytes(out.sample_count);
  std::vector<std::uint64_t> offsets;
  append_mds_offsets(front.first(table), 0, offsets);
  if (const Status status = check_mds_offsets(offsets, size_bytes); !status.ok())
    return corrupt(status.message());
  const auto text = front.subspan(table);
  const auto* begin = reinterpret_cast<const char*>(text.data());
  out.config = Json::parse(begin, begin + text.size(), nullptr, false);
  const bool is_config = out.config.is_object() && out.config.value("format", "") == "mds" &&
                         out.config.value("version", 0) == 2;
  for (const char* name : {"column_encodings", "column_names", "column_sizes", "compression",
                           "hashes", "size_limit"}) {
    if (!is_config || !out.config.contains(name)) {
      return Status(Code::kUnsupported,
                    fmt::format("its configuration lacks {}: it was not written by MDSWriter, so "
                                "that only its writer knows its columns",
                                name));
    }
  }
  return out;
}

Result<std::string> inflate_whole(Compression compression, const std::string& stored) {
  std::string raw;
  if (compression == Compression::kSnappy) {
    std::size_t size = 0;
    if (!snappy::GetUncompressedLength(stored.data(), stored.size(), &size) ||
        size > kMostShardBytes)
      return corrupt("is no snappy block");
    raw.resize(size);
    HEADRACE_TRY(inflate(compression, bytes_of(stored), std::as_writable_bytes(std::span(raw))));
    return raw;
  }
  HEADRACE_TRY_ASSIGN(const auto inflater, StreamInflater::create(compression));
  auto in = bytes_of(stored);
  while (true) {
    const std::size_t before = raw.size();
    raw.resize(before + kInflateStepBytes);
    HEADRACE_TRY_ASSIGN(const StreamInflater::Step step,
                        inflater->step(in, std::as_writable_bytes(std::span(raw)).subspan(before)));
    raw.resize(before + step.produced_bytes);
    in = in.subspan(step.consumed_bytes);
    if (raw.size() > kMostShardBytes) return corrupt("inflates to 4 GiB or more");
    if (step.produced_bytes < kInflateStepBytes && in.empty()) break;
  }
  if (!inflater->is_complete()) return corrupt("is a compressed file that is cut off");
  return raw;
}

Result<Json> file_entry(std::string_view basename, std::uint64_t size_bytes, const Json& names,
                        const std::string* content) {
  Json hashes = Json::object();
  for (const Json& name : names) {
    const std::string text = name.is_string() ? name.get<std::string>() : std::string();
    if (!is_known_digest(text))
      return Status(Code::kUnsupported, fmt::format("hash '{}' is not known", text));
    hashes[text] = hex_digest(text, bytes_of(*content));
  }
  return Json{{"basename", basename}, {"bytes", size_bytes}, {"hashes", std::move(hashes)}};
}

class Rebuilder {
 public:
  explicit Rebuilder(const BuildContext& context) : context_(context) {}

  Result<std::string> run() {
    HEADRACE_TRY(refuse_sound_index());
    HEADRACE_TRY_ASSIGN(Candidates candidates, list_candidates(context_));
    objects_ = std::move(candidates.all);
    HEADRACE_TRY(find_sources());
    Json shards = Json::array();
    std::vector<std::pair<std::string, const Source*>> batch;
    for (const auto& [name, source] : sources_) {
      batch.emplace_back(name, &source);
      if (batch.size() < kBatch && shards.size() + batch.size() < sources_.size()) continue;
      HEADRACE_TRY(describe(batch, shards));
      batch.clear();
      context_.report(shards.size(), sources_.size());
    }
    std::string text = Json{{"shards", std::move(shards)}, {"version", 2}}.dump();
    // Shards of one dataset have the same columns, and so on: what reads it says so.
    if (auto index = parse_mds_index(text, true); !index) return std::move(index).error();
    return text;
  }

 private:
  const std::string& url() const { return context_.store.url(); }

  Status refuse_sound_index() const {
    auto json = read_object(context_.store, context_.pool, std::string(kIndexJsonName),
                            kMostIndexJsonBytes, context_.call);
    if (!json && json.error().code() == Code::kNotFound) return Status();
    if (!json) return std::move(json).error();
    const FormatDriver* owner = owner_of_index_json(*json);
    const bool is_sound =
        owner != nullptr && (owner->id != Format::kMds || parse_mds_index(*json, true).has_value());
    if (!is_sound) return Status();
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: is sound; remove it if it should be made anew",
                              context_.store.object_url(kIndexJsonName)));
  }

  Status find_sources() {
    std::set<std::string_view> folders;
    for (const ObjectInfo& object : objects_) {
      if (!is_mds_name(object.key)) continue;
      const std::size_t slash = object.key.rfind('/');
      if (slash != std::string::npos && context_.options.keys.empty()) {
        folders.insert(std::string_view(object.key).substr(0, slash));
      } else {
        HEADRACE_TRY(add(object));
      }
    }
    if (sources_.empty()) {
      return Status(Code::kNotFound,
                    folders.empty()
                        ? fmt::format("{}: no MDS shards there", url())
                        : fmt::format("{}: no MDS shards right there, but in {} folders below: "
                                      "index each, such as {}/{}",
                                      url(), folders.size(), url(), *folders.begin()));
    }
    return context_.options.keys.empty() ? refuse_gaps() : Status();
  }

  Status add(const ObjectInfo& object) {
    const std::string_view key = object.key;
    if (key.ends_with(".mds")) {
      sources_[object.key].plain = &object;
      return Status();
    }
    for (const auto& [coding, compression] : kCodings) {
      if (!key.ends_with(fmt::format(".mds.{}", coding))) continue;
      Source& source = sources_[std::string(key.substr(0, key.size() - coding.size() - 1))];
      source.zipped = &object;
      source.coding = coding;
      source.compression = compression;
    }
    return Status();
  }

  // Writers count their shards: one that is missing would be missing without a word.
  Status refuse_gaps() const {
    std::uint64_t next = 0;
    for (const auto& [name, source] : sources_) {
      if (!name.starts_with("shard.") || name.size() < 11) return Status();
      const auto number = parse_decimal<std::uint64_t>(
          std::string_view(name).substr(6, name.size() - 6 - std::string_view(".mds").size()));
      if (!number) return Status();
      if (*number != next) {
        return Status(Code::kNotFound,
                      fmt::format("{}/shard.{:05}.mds: not there, but {} is: put it there, or name "
                                  "the shards that make the dataset with --key",
                                  url(), next, name));
      }
      ++next;
    }
    return Status();
  }

  Status describe(const std::vector<std::pair<std::string, const Source*>>& batch, Json& shards) {
    HEADRACE_TRY_ASSIGN(const auto fronts, read_fronts(batch));
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const auto& [name, source] = batch[i];
      const ObjectInfo& stored = source->zipped != nullptr ? *source->zipped : *source->plain;
      auto entry = source->zipped != nullptr ? describe_zipped(name, *source)
                                             : describe_plain(name, *source, fronts[i]);
      if (!entry) return std::move(entry).error().annotate(context_.store.object_url(stored.key));
      shards.push_back(*std::move(entry));
    }
    return Status();
  }

  Result<std::vector<std::string>> read_fronts(
      const std::vector<std::pair<std::string, const Source*>>& batch) const {
    HEADRACE_TRY_ASSIGN(const auto fetcher, RangeFetcher::create(context_.store, context_.pool,
                                                                 {.call = context_.call}));
    std::vector<RangeRead> reads(batch.size());
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const Source& source = *batch[i].second;
      if (source.zipped != nullptr) continue;
      reads[i].key = source.plain->key;
      reads[i].etag = source.plain->etag;
      reads[i].length_bytes = std::min(source.plain->size_bytes, context_.read_bytes(kFrontBytes));
    }
    return fetch_all(*fetcher, std::move(reads));
  }

  Result<std::string> read_whole(const ObjectInfo& object) const {
    return read_object(context_.store, context_.pool, object.key, kMostShardBytes, context_.call);
  }

  Result<Json> describe_plain(const std::string& name, const Source& source, std::string front) {
    const std::uint64_t size = source.plain->size_bytes;
    HEADRACE_TRY_ASSIGN(const std::uint64_t bytes, front_bytes(bytes_of(front), size));
    std::string whole;
    // The whole shard then, rather than a second piece of it: its hashes may need it anyway.
    if (bytes > front.size()) {
      HEADRACE_TRY_ASSIGN(whole, read_whole(*source.plain));
      if (whole.size() != size) return Status(Code::kChanged, "has changed");
      front = whole;
    }
    HEADRACE_TRY_ASSIGN(Front parsed, parse_front(bytes_of(front).first(bytes), size));
    const Json& hashes = parsed.config["hashes"];
    if (!hashes.empty() && whole.empty()) {
      HEADRACE_TRY_ASSIGN(whole, read_whole(*source.plain));
    }
    HEADRACE_TRY_ASSIGN(Json raw, file_entry(name, size, hashes, &whole));
    return entry_of(std::move(parsed), nullptr, std::move(raw), nullptr);
  }

  Result<Json> describe_zipped(const std::string& name, const Source& source) {
    HEADRACE_TRY_ASSIGN(const std::string stored, read_whole(*source.zipped));
    HEADRACE_TRY_ASSIGN(const std::string raw, inflate_whole(source.compression, stored));
    HEADRACE_TRY_ASSIGN(const std::uint64_t bytes, front_bytes(bytes_of(raw), raw.size()));
    HEADRACE_TRY_ASSIGN(Front parsed, parse_front(bytes_of(raw).first(bytes), raw.size()));
    const Json& hashes = parsed.config["hashes"];
    HEADRACE_TRY_ASSIGN(Json raw_file, file_entry(name, raw.size(), hashes, &raw));
    HEADRACE_TRY_ASSIGN(Json zip_file,
                        file_entry(source.zipped->key, stored.size(), hashes, &stored));
    Json compression = parsed.config["compression"];
    if (!compression.is_string()) compression = source.coding;
    return entry_of(std::move(parsed), std::move(compression), std::move(raw_file),
                    std::move(zip_file));
  }

  // Of the configuration only what readers know.
  static Json entry_of(Front front, Json compression, Json raw, Json zip) {
    Json entry;
    for (const char* name :
         {"column_encodings", "column_names", "column_sizes", "hashes", "size_limit"})
      entry[name] = std::move(front.config[name]);
    entry["compression"] = std::move(compression);
    entry["format"] = "mds";
    entry["version"] = 2;
    entry["samples"] = front.sample_count;
    entry["raw_data"] = std::move(raw);
    entry["zip_data"] = std::move(zip);
    return entry;
  }

  const BuildContext& context_;
  std::vector<ObjectInfo> objects_;
  std::map<std::string, Source> sources_;  // By the name of the plain shard.
};

}  // namespace
}  // namespace headrace::detail

namespace headrace {

Result<std::string> rebuild_mds_index(Store& store, SlabPool& pool, const DatasetOptions& options,
                                      const CallOptions& call) {
  const detail::BuildContext context{store, pool, options, call};
  return detail::Rebuilder(context).run();
}

}  // namespace headrace
