#include "shard/dataset/detect.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "shard/dataset/lost_index.h"
#include "shard/formats/csv/csv_layout.h"
#include "shard/range_fetcher.h"
#include "shard/scan/read_head.h"
#include "shard/scan/scan_files.h"

namespace headrace::detail {
namespace {

// Kinds of names that are looked into; the largest ones where there are more. Bounds what opening a
// tree of sources costs: two reads each, all at once.
constexpr std::size_t kMostGroups = 16;

std::string_view base_name(std::string_view key) { return key.substr(key.rfind('/') + 1); }

// What names of one kind have in common: all from the first dot that is not at the front on, with
// numbers made equal.
std::string ending_of(std::string_view key) {
  const std::string_view name = base_name(key);
  const std::size_t dot = name.rfind('.');
  std::string ending;
  if (dot == std::string_view::npos || dot == 0) return ending;
  for (const char c : name.substr(dot)) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit) ending += c;
    if (is_digit && !ending.ends_with('0')) ending += '0';
  }
  return ending;
}

bool has_npy_member(std::span<const std::byte> head) noexcept {
  // The first local header of a zip: u16 name length at 26, the name at 30.
  if (head.size() < 30) return false;
  const auto length =
      std::to_integer<std::size_t>(head[26]) | std::to_integer<std::size_t>(head[27]) << 8;
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  return length <= head.size() - 30 && text.substr(30, length).ends_with(".npy");
}

Format format_of_name(std::string_view key) {
  constexpr std::pair<std::string_view, Format> kClaims[] = {
      {".tar", Format::kWebDataset},
      {".tar.gz", Format::kWebDataset},
      {".tgz", Format::kWebDataset},
      {".tar.zst", Format::kWebDataset},
      {".tar.bz2", Format::kWebDataset},
      {".tar.xz", Format::kWebDataset},
      {".parquet", Format::kTable},
      {".arrow", Format::kTable},
      {".tfrecord", Format::kTfRecord},
      {".tfrecords", Format::kTfRecord},
      {".tfrecord.gz", Format::kTfRecord},
      {".jsonl", Format::kText},
      {".jsonl.gz", Format::kText},
      {".jsonl.zst", Format::kText},
      {".ndjson", Format::kText},
      {".ndjson.gz", Format::kText},
      {".npy", Format::kNumpy},
      {".npz", Format::kNumpy},
      {".array_record", Format::kArrayRecord}};
  for (const auto& [ending, format] : kClaims) {
    if (key.ends_with(ending)) return format;
  }
  return csv_delimiter_of(key) ? Format::kCsv : format_of_indexed_name(key);
}

// Formats that a listing does not describe.
bool needs_index_json(Format format) {
  return format == Format::kMds || format == Format::kLitData;
}

struct Group {
  std::vector<std::size_t> members;
  Format format = Format::kAuto;
};

// Everything about the objects of one call.
class Chooser {
 public:
  Chooser(const BuildContext& context, Candidates candidates)
      : context_(context), candidates_(std::move(candidates)) {
    if (context.options.format == Format::kText) candidates_.data = candidates_.lines;
    if (candidates_.data.empty()) {
      candidates_.data = data_among_side_files();
      is_side_ = true;
    } else if (!context.options.keys.empty()) {
      is_side_ = sort_candidates(candidates_.all).data.empty();
    }
    group();
  }

  Result<DataObjects> choose() {
    const Format wanted = context_.options.format;
    if (wanted == Format::kRaw) return all_of(wanted);
    if (wanted != Format::kAuto && !context_.options.keys.empty()) return all_of(wanted);
    if (is_lance() && (wanted == Format::kAuto || wanted == Format::kTable))
      return all_of(Format::kTable);
    if (wanted == Format::kAuto) {
      if (const DataObjects lines = lines_of_mds(); !lines.objects.empty())
        return lost_index(context_, lines, candidates_.all);
    }
    HEADRACE_TRY(look());
    if (wanted != Format::kAuto) return of_format(wanted);
    if (may_miss_lines()) {
      candidates_.data = std::move(candidates_.lines);
      group();
      HEADRACE_TRY(look());
    }
    return detected();
  }

 private:
  // With nothing but side files some of those are the data: JSON lines, if there are any, else all
  // that is not about data.
  std::vector<ObjectInfo> data_among_side_files() const {
    std::vector<ObjectInfo> data;
    const auto keep = [&](const std::vector<ObjectInfo>& objects, auto&& is_kept) {
      if (data.empty())
        std::copy_if(objects.begin(), objects.end(), std::back_inserter(data), is_kept);
    };
    keep(candidates_.lines, [](const ObjectInfo& o) { return o.key.ends_with(".jsonl"); });
    keep(candidates_.all, [](const ObjectInfo& o) { return !is_about_data(base_name(o.key)); });
    keep(candidates_.all, [](const ObjectInfo&) { return true; });
    return data;
  }

  void group() {
    groups_.clear();
    for (std::size_t i = 0; i < candidates_.data.size(); ++i)
      groups_[ending_of(candidates_.data[i].key)].members.push_back(i);
  }

  DataObjects all_of(Format format) { return {format, std::move(candidates_.all)}; }
  const ObjectInfo& object(std::size_t i) const { return candidates_.data[i]; }

  bool is_lance() const {
    return std::any_of(candidates_.all.begin(), candidates_.all.end(), [](const ObjectInfo& o) {
      return o.key.starts_with("_versions/") && o.key.ends_with(".manifest");
    });
  }

  DataObjects lines_of_mds() const {
    DataObjects metas{Format::kMds, {}};
    std::copy_if(candidates_.all.begin(), candidates_.all.end(), std::back_inserter(metas.objects),
                 [](const ObjectInfo& o) { return is_meta_of_lines(o.key); });
    return metas;
  }

  Status look() {
    std::vector<Group*> largest;
    for (auto& [ending, group] : groups_) largest.push_back(&group);
    std::stable_sort(largest.begin(), largest.end(), [](const Group* a, const Group* b) {
      return a->members.size() > b->members.size();
    });
    if (largest.size() > kMostGroups) largest.resize(kMostGroups);
    HEADRACE_TRY_ASSIGN(const auto fetcher,
                        RangeFetcher::create(context_.store, context_.pool, context_.call));
    std::map<std::size_t, Group*> asked;
    for (Group* group : largest) {
      asked[group->members.front()] = group;
      asked[group->members.back()] = group;
    }
    for (const auto& [i, group] : asked) {
      if (object(i).size_bytes == 0) continue;
      fetcher->start({.key = object(i).key,
                      .etag = object(i).etag,
                      .length_bytes = std::min<std::uint64_t>(object(i).size_bytes, kPeekBytes),
                      .allow_short = true,
                      .tag = i});
    }
    while (fetcher->pending() > 0) {
      HEADRACE_TRY_ASSIGN(const auto data, fetcher->next());
      HEADRACE_TRY_ASSIGN(const Format format, format_of_object(data.tag, data.bytes()));
      if (asked[data.tag]->format == Format::kAuto) asked[data.tag]->format = format;
      if (format != Format::kAuto && format != asked[data.tag]->format)
        return mixed(asked[data.tag]->members.front(), asked[data.tag]->format, data.tag, format);
    }
    for (Group* group : largest) {
      if (group->format != Format::kAuto) continue;
      HEADRACE_TRY_ASSIGN(group->format, format_of_unmarked(*group));
    }
    return Status();
  }

  Result<Format> format_of_object(std::size_t i, std::span<const std::byte> bytes) {
    if (sniff_compression(bytes) == Compression::kNone && !looks_like_zlib(bytes))
      return format_of(bytes.first(std::min(bytes.size(), kDetectBytes)));
    auto head = read_head(context_, object(i), kDetectBytes);
    // What begins like a compressed file and is none has no mark that we know.
    if (!head && head.error().code() != Code::kCorrupt) return std::move(head).error();
    return head ? format_of(*head) : Format::kAuto;
  }

  // Flat binaries have no mark of their own; Megatron's have one beside them.
  Result<Format> format_of_unmarked(const Group& group) {
    const ObjectInfo& first = object(group.members.front());
    if (first.key.ends_with(".bin")) {
      const std::string index = first.key.substr(0, first.key.size() - 4) + ".idx";
      const auto beside = std::find_if(candidates_.all.begin(), candidates_.all.end(),
                                       [&](const ObjectInfo& o) { return o.key == index; });
      if (beside != candidates_.all.end()) {
        HEADRACE_TRY_ASSIGN(const auto head, read_head(context_, *beside, kMegatron.size()));
        if (std::string_view(reinterpret_cast<const char*>(head.data()), head.size()) == kMegatron)
          return Format::kTokens;
      }
    }
    return format_of_name(first.key);
  }

  // True when what was found are lines, and more of them may be in files that are side files
  // elsewhere.
  bool may_miss_lines() const {
    return candidates_.lines.size() > candidates_.data.size() &&
           std::any_of(groups_.begin(), groups_.end(),
                       [](const auto& entry) { return entry.second.format == Format::kText; });
  }

  bool is_empty(const Group& group) const {
    return std::all_of(group.members.begin(), group.members.end(),
                       [this](std::size_t i) { return object(i).size_bytes == 0; });
  }

  // Text beside JSON lines is a note about them.
  bool is_note(const Group& group) const {
    return group.format == Format::kAuto && object(group.members.front()).key.ends_with(".txt");
  }

  // Shards of MDS or LitData, unless another format is there as well. Lines may be about them.
  const Group* indexed_group() const {
    const Group* indexed = nullptr;
    for (const auto& [ending, group] : groups_) {
      if (needs_index_json(group.format) &&
          (indexed == nullptr || indexed->format == group.format)) {
        indexed = &group;
      } else if (group.format != Format::kAuto && group.format != Format::kText &&
                 group.format != Format::kCsv) {
        return nullptr;
      }
    }
    return indexed;
  }

  Result<DataObjects> detected() {
    if (const Group* indexed = indexed_group()) {
      HEADRACE_TRY_ASSIGN(const DataObjects shards, of_format(indexed->format));
      return lost_index(context_, shards, candidates_.all);
    }
    const Group* found = nullptr;
    const Group* other = nullptr;
    for (const auto& [ending, group] : groups_) {
      if (found != nullptr && found->format == Format::kText && is_note(group)) continue;
      if (found == nullptr || (found->format == Format::kAuto && group.format != Format::kAuto)) {
        if (found != nullptr && !(group.format == Format::kText && is_note(*found))) other = found;
        found = &group;
      } else if (group.format != found->format) {
        other = &group;
      }
    }
    if (found->format == Format::kAuto) return all_of(Format::kRaw);
    // Side files are only here where there is nothing else; those of no format stay side files.
    const bool is_mixed =
        other != nullptr && (other->format != Format::kAuto || !(is_side_ || is_empty(*other)));
    if (is_mixed) {
      return mixed(found->members.front(), found->format, other->members.front(), other->format);
    }
    return of_format(found->format);
  }

  Result<DataObjects> of_format(Format format) {
    std::vector<std::size_t> members;
    const Group* unmarked = nullptr;
    for (const auto& [ending, group] : groups_) {
      // What is empty may have been of any format: refuse_empty() looks at it.
      if (group.format == format || (group.format == Format::kAuto && is_empty(group)))
        members.insert(members.end(), group.members.begin(), group.members.end());
      if (group.format == Format::kAuto && !is_empty(group)) unmarked = &group;
    }
    // Of formats without a mark every file may be one: none is left out without a word.
    const bool may_be_any =
        context_.options.format == Format::kText || context_.options.format == Format::kTokens ||
        context_.options.format == Format::kTable || context_.options.format == Format::kCsv;
    if (!members.empty() && unmarked != nullptr && may_be_any) {
      return Status(
          Code::kInvalidArgument,
          fmt::format("{}: {} is {}, {} has no mark of it; name the files that are with a pattern "
                      "or a list",
                      context_.store.url(), object(members.front()).key, format_name(format),
                      object(unmarked->members.front()).key));
    }
    if (members.empty()) {
      // Their builders take files without a mark: lines, flat tokens.
      if (format != Format::kWebDataset) return DataObjects{format, std::move(candidates_.data)};
      return Status(Code::kNotFound, fmt::format("{}: no .tar files there, but {}",
                                                 context_.store.url(), object(0).key));
    }
    std::sort(members.begin(), members.end());
    DataObjects out{format, {}};
    for (const std::size_t i : members) out.objects.push_back(std::move(candidates_.data[i]));
    if (format == Format::kTable) add_common_metadata(out.objects);
    return out;
  }

  // Petastorm's, which lies beside the files of the table.
  void add_common_metadata(std::vector<ObjectInfo>& objects) const {
    std::copy_if(candidates_.all.begin(), candidates_.all.end(), std::back_inserter(objects),
                 [](const ObjectInfo& o) { return o.key == "_common_metadata"; });
  }

  static std::string_view shown(Format format) {
    return format == Format::kAuto ? "no format known" : format_name(format);
  }
  Status mixed(std::size_t a, Format a_format, std::size_t b, Format b_format) const {
    const Format named = a_format == Format::kAuto ? b_format : a_format;
    return Status(
        Code::kInvalidArgument,
        fmt::format(
            "{}: holds files of several formats: {} ({}) and {} ({}); say which with "
            "format='{}' or format='raw'{}",
            context_.store.url(), object(a).key, shown(a_format), object(b).key, shown(b_format),
            format_name(named),
            named == Format::kCsv ? ", or manifest= when it is about the other files" : ""));
  }

  static constexpr std::uint64_t kPeekBytes = 4096;
  static constexpr std::string_view kMegatron{"MMIDIDX\0\0", 9};
  const BuildContext& context_;
  Candidates candidates_;
  std::map<std::string, Group> groups_;
  bool is_side_ = false;  // The data are files that are beside data elsewhere.
};

}  // namespace

Format format_of(std::span<const std::byte> head) noexcept {
  if (looks_like_table(head)) return Format::kTable;
  if (looks_like_tfrecord(head)) return Format::kTfRecord;
  if (looks_like_array_record(head)) return Format::kArrayRecord;
  const bool is_zip = head.size() >= 2 && head[0] == std::byte{'P'} && head[1] == std::byte{'K'};
  if (looks_like_numpy(head) && (!is_zip || has_npy_member(head))) return Format::kNumpy;
  if (looks_like_tar(head)) return Format::kWebDataset;
  if (looks_like_mds(head)) return Format::kMds;
  if (looks_like_litdata(head)) return Format::kLitData;
  if (looks_like_json_lines(head) || looks_like_json_array(head)) return Format::kText;
  return Format::kAuto;
}

Result<DataObjects> choose_objects(const BuildContext& context, Candidates candidates) {
  return Chooser(context, std::move(candidates)).choose();
}

}  // namespace headrace::detail
