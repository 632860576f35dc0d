// The choice goes from what is sure to what is likely: options that leave no choice; names that
// only one format has (claims_listing()); side files that tell of shards without marks; the marks
// in the first bytes of two objects a kind of name; the name alone.
//
// Invariants:
// - What is there and might be data is never left out without a word: either a rule says that it is
//   a note, a side file or empty, or the call fails and names one object of each kind. The price of
//   asking is small, that of training on half of the data is not.
// - A mark outweighs a name. Names decide where nothing has a mark, and then the builder checks.
// - Two reads a kind of name, kMostGroups kinds, all in flight at once: opening costs the same for
//   ten objects and for ten million. The exception are files that judge_all() has to see one by
//   one.
// - groups_ holds indexes into candidates_.data: whoever replaces the data groups them again, and
//   all_of() and of_format(), which move objects out, come last.
// - Formats are asked in the order of the one table, so the answer depends on no listing's luck.
#include "shard/dataset/detect.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "headrace/range_fetcher.h"
#include "shard/dataset/format_driver.h"
#include "shard/dataset/lost_index.h"
#include "shard/dataset/name_parts.h"
#include "shard/scan/read_head.h"
#include "shard/scan/scan_files.h"

namespace headrace::detail {
namespace {

// Kinds of names that are looked into; the largest ones where there are more. Bounds what opening a
// tree of sources costs: two reads each, all at once.
constexpr std::size_t kMostGroups = 16;

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

Format format_of_name(std::string_view key) {
  for (const FormatDriver* driver : all_formats())
    if (driver->claims(key)) return driver->id;
  return Format::kAuto;
}

// Formats that a listing does not describe.
bool needs_index_json(Format format) {
  const FormatDriver* driver = driver_of(format);
  return driver != nullptr && driver->index_json != nullptr;
}

// Whether files of notes may be its data.
bool takes_notes(Format format) {
  const FormatDriver* driver = driver_of(format);
  return driver != nullptr && !driver->note_endings.empty();
}

bool may_describe_others(Format format) {
  const FormatDriver* driver = driver_of(format);
  return driver == nullptr || driver->may_describe_others;
}

struct Group {
  std::vector<std::size_t> members;
  Format format = Format::kAuto;
  bool is_marked = false;  // Its content says so, not its name.
};

// Everything about the objects of one call.
class Chooser {
 public:
  Chooser(const BuildContext& context, Candidates candidates)
      : context_(context), candidates_(std::move(candidates)) {
    if (takes_notes(context.options.format)) candidates_.data = candidates_.lines;
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
    if (wanted == fallback_format().id) return all_of(wanted);
    if (wanted != Format::kAuto && !context_.options.keys.empty()) {
      const FormatDriver* driver = driver_of(wanted);
      if (driver != nullptr && driver->may_lack_mark) {
        HEADRACE_TRY(look());
        HEADRACE_TRY(refuse_others(*driver));
      }
      return all_of(wanted);
    }
    for (const FormatDriver* driver : all_formats()) {
      const bool may_be = wanted == Format::kAuto || wanted == driver->id;
      if (may_be && driver->claims_listing != nullptr && driver->claims_listing(candidates_.all))
        return all_of(driver->id);
    }
    if (wanted == Format::kAuto) {
      if (const DataObjects shards = shards_told_by_side_files(); !shards.objects.empty())
        return lost_index(context_, shards, candidates_.all);
    }
    HEADRACE_TRY(look());
    if (wanted != Format::kAuto) return with_beside(of_format(wanted));
    if (may_miss_lines()) {
      candidates_.data = std::move(candidates_.lines);
      group();
      HEADRACE_TRY(look());
    }
    return with_beside(detected());
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
    keep(candidates_.lines, [](const ObjectInfo& o) { return !may_be_note(o.key); });
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

  // Side files of shards that themselves look like any file.
  DataObjects shards_told_by_side_files() const {
    for (const FormatDriver* driver : all_formats()) {
      if (driver->index_json == nullptr || driver->index_json->claims_side_file == nullptr)
        continue;
      DataObjects found{driver->id, {}};
      std::copy_if(
          candidates_.all.begin(), candidates_.all.end(), std::back_inserter(found.objects),
          [driver](const ObjectInfo& o) { return driver->index_json->claims_side_file(o.key); });
      if (!found.objects.empty()) return found;
    }
    return {};
  }

  Status look() {
    std::vector<Group*> largest;
    for (auto& [ending, group] : groups_) largest.push_back(&group);
    std::stable_sort(largest.begin(), largest.end(), [](const Group* a, const Group* b) {
      return a->members.size() > b->members.size();
    });
    if (largest.size() > kMostGroups) largest.resize(kMostGroups);
    HEADRACE_TRY_ASSIGN(const auto fetcher, RangeFetcher::create(context_.store, context_.pool,
                                                                 {.call = context_.call}));
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
      group->is_marked = group->format != Format::kAuto;
      if (group->is_marked) continue;
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
    if (head && sniff_compression(bytes) != Compression::kNone) compressed_.insert(i);
    return head ? format_of(*head) : Format::kAuto;
  }

  // Builders that take files without a mark would read those of another format as if they were
  // their own.
  Status refuse_others(const FormatDriver& wanted) const {
    const auto refuse = [&](std::size_t i, std::string_view what) {
      return Status(Code::kInvalidArgument,
                    fmt::format("{}: {} is {}, not {}; name the files that are with a pattern or a "
                                "list",
                                context_.store.url(), object(i).key, what, wanted.name));
    };
    for (const auto& [ending, group] : groups_) {
      if (group.is_marked && group.format != wanted.id)
        return refuse(group.members.front(), format_name(group.format));
    }
    if (wanted.is_never_compressed && !compressed_.empty())
      return refuse(*compressed_.begin(), "compressed");
    return Status();
  }

  // Some files without a mark have one beside them.
  Result<Format> format_of_unmarked(const Group& group) {
    const ObjectInfo& first = object(group.members.front());
    for (const FormatDriver* driver : all_formats()) {
      if (driver->side_key == nullptr) continue;
      const std::string side_key = driver->side_key(first.key);
      const auto beside = std::find_if(candidates_.all.begin(), candidates_.all.end(),
                                       [&](const ObjectInfo& o) { return o.key == side_key; });
      if (side_key.empty() || beside == candidates_.all.end()) continue;
      HEADRACE_TRY_ASSIGN(const auto head, read_head(context_, *beside, driver->side_mark.size()));
      if (std::string_view(reinterpret_cast<const char*>(head.data()), head.size()) ==
          driver->side_mark)
        return driver->id;
    }
    return format_of_name(first.key);
  }

  // True when what was found are lines, and more of them may be in files that are side files
  // elsewhere.
  bool may_miss_lines() const {
    return candidates_.lines.size() > candidates_.data.size() &&
           std::any_of(groups_.begin(), groups_.end(),
                       [](const auto& entry) { return takes_notes(entry.second.format); });
  }

  bool is_empty(const Group& group) const {
    return std::all_of(group.members.begin(), group.members.end(),
                       [this](std::size_t i) { return object(i).size_bytes == 0; });
  }

  // Text beside lines is a note about them.
  bool is_note(const Group& group) const {
    return group.format == Format::kAuto && may_be_note(object(group.members.front()).key);
  }

  // Shards of MDS or LitData, unless another format is there as well. Lines may be about them.
  const Group* indexed_group() const {
    const Group* indexed = nullptr;
    for (const auto& [ending, group] : groups_) {
      if (needs_index_json(group.format) &&
          (indexed == nullptr || indexed->format == group.format)) {
        indexed = &group;
      } else if (!may_describe_others(group.format)) {
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
      if (found != nullptr && takes_notes(found->format) && is_note(group)) continue;
      if (found == nullptr || (found->format == Format::kAuto && group.format != Format::kAuto)) {
        if (found != nullptr && !(takes_notes(group.format) && is_note(*found))) other = found;
        found = &group;
      } else if (group.format != found->format) {
        other = &group;
      }
    }
    if (found->format == Format::kAuto) {
      HEADRACE_TRY(refuse_unsure());
      return all_of(fallback_format().id);
    }
    // Side files are only here where there is nothing else; those of no format stay side files.
    const bool is_mixed =
        other != nullptr && (other->format != Format::kAuto || !(is_side_ || is_empty(*other)));
    if (is_mixed) {
      return mixed(found->members.front(), found->format, other->members.front(), other->format);
    }
    return of_format(found->format);
  }

  // Without any mark each object is a sample, unless they may as well be something else.
  Status refuse_unsure() const {
    for (const FormatDriver* driver : all_formats()) {
      if (driver->may_be_listing == nullptr || !driver->may_be_listing(candidates_.data)) continue;
      const auto largest = std::max_element(
          candidates_.data.begin(), candidates_.data.end(),
          [](const auto& a, const auto& b) { return a.size_bytes < b.size_bytes; });
      return Status(Code::kInvalidArgument,
                    fmt::format("{}: nothing in {} tells what it is: {}, or one sample a file "
                                "(format='raw')? Say which",
                                context_.store.url(), largest->key, driver->unsure_hint));
    }
    return {};
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
    const FormatDriver* wanted = driver_of(context_.options.format);
    const bool may_be_any = wanted != nullptr && wanted->may_lack_mark;
    if (!members.empty() && unmarked != nullptr && may_be_any) {
      return Status(
          Code::kInvalidArgument,
          fmt::format("{}: {} is {}, {} has no mark of it; name the files that are with a pattern "
                      "or a list",
                      context_.store.url(), object(members.front()).key, format_name(format),
                      object(unmarked->members.front()).key));
    }
    const FormatDriver* driver = driver_of(format);
    if (members.empty()) {
      // Most builders take files without a mark: lines, flat tokens.
      if (driver == nullptr || driver->marked_kind.empty()) {
        if (driver != nullptr && driver->may_lack_mark) HEADRACE_TRY(refuse_others(*driver));
        return DataObjects{format, std::move(candidates_.data)};
      }
      return Status(Code::kNotFound,
                    fmt::format("{}: no {} files there, but {}", context_.store.url(),
                                driver->marked_kind, object(0).key));
    }
    std::sort(members.begin(), members.end());
    DataObjects out{format, {}};
    for (const std::size_t i : members) out.objects.push_back(std::move(candidates_.data[i]));
    if (driver != nullptr && !driver->companion_key.empty()) {
      std::copy_if(candidates_.all.begin(), candidates_.all.end(), std::back_inserter(out.objects),
                   [driver](const ObjectInfo& o) { return o.key == driver->companion_key; });
    }
    return out;
  }

  // Adds the files that hold data of the same format, although they lie beside data as a rule.
  // Objects that were named are all there are, in their order.
  Result<DataObjects> with_beside(Result<DataObjects> chosen) {
    if (!chosen || !context_.options.keys.empty()) return chosen;
    DataObjects found = *std::move(chosen);
    const FormatDriver* driver = driver_of(found.format);
    if (driver == nullptr || driver->judge_beside == nullptr || found.objects.empty()) return found;
    const std::string first = found.objects.front().key;
    // Plain text that was asked for has no mark: what has one is another thing.
    const bool is_marked =
        driver->claims(first) || std::any_of(groups_.begin(), groups_.end(), [&](const auto& g) {
          return g.second.is_marked && g.second.format == found.format;
        });
    std::set<std::string_view> known;
    for (const ObjectInfo& object : found.objects) known.insert(object.key);
    std::vector<ObjectInfo> beside;
    std::copy_if(candidates_.all.begin(), candidates_.all.end(), std::back_inserter(beside),
                 [&](const ObjectInfo& o) {
                   return o.size_bytes > 0 && driver->may_be_beside(base_name(o.key)) &&
                          !known.contains(o.key);
                 });
    HEADRACE_TRY_ASSIGN(const auto kinds, judge_all(beside, *driver));
    for (std::size_t i = 0; i < beside.size(); ++i) {
      if (kinds[i] == Beside::kNote || (kinds[i] == Beside::kUnclear && !is_marked)) continue;
      if (kinds[i] == Beside::kUnclear || !is_marked)
        return may_be_either(beside[i].key, first, is_marked);
      found.has_beside = true;
      found.objects.push_back(std::move(beside[i]));
    }
    std::sort(found.objects.begin(), found.objects.end(),
              [](const ObjectInfo& a, const ObjectInfo& b) { return a.key < b.key; });
    return found;
  }

  Result<std::vector<Beside>> judge_all(const std::vector<ObjectInfo>& objects,
                                        const FormatDriver& driver) const {
    HEADRACE_TRY_ASSIGN(const auto fetcher, RangeFetcher::create(context_.store, context_.pool,
                                                                 {.call = context_.call}));
    for (std::size_t i = 0; i < objects.size(); ++i) {
      fetcher->start({.key = objects[i].key,
                      .etag = objects[i].etag,
                      .length_bytes = std::min<std::uint64_t>(objects[i].size_bytes, kBesideBytes),
                      .allow_short = true,
                      .tag = i});
    }
    std::vector<Beside> kinds(objects.size(), Beside::kNote);
    while (fetcher->pending() > 0) {
      HEADRACE_TRY_ASSIGN(const auto data, fetcher->next());
      kinds[data.tag] =
          driver.judge_beside(data.bytes(), objects[data.tag].size_bytes <= kBesideBytes);
    }
    return kinds;
  }

  Status may_be_either(std::string_view beside, std::string_view first, bool is_one) const {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: {} is {}; name the files that are samples with a pattern or a "
                              "list",
                              context_.store.url(), beside,
                              is_one ? fmt::format("one JSON object: a sample, as in {}, or a note "
                                                   "about the samples",
                                                   first)
                                     : fmt::format("JSON, {} has no mark of it", first)));
  }

  static std::string_view shown(Format format) {
    return format == Format::kAuto ? "no format known" : format_name(format);
  }
  Status mixed(std::size_t a, Format a_format, std::size_t b, Format b_format) const {
    const Format named = a_format == Format::kAuto ? b_format : a_format;
    const FormatDriver* driver = driver_of(named);
    return Status(
        Code::kInvalidArgument,
        fmt::format("{}: holds files of several formats: {} ({}) and {} ({}); say which with "
                    "format='{}' or format='raw'{}",
                    context_.store.url(), object(a).key, shown(a_format), object(b).key,
                    shown(b_format), format_name(named),
                    driver == nullptr ? std::string_view() : driver->mixed_hint));
  }

  static constexpr std::uint64_t kPeekBytes = 4096;
  const BuildContext& context_;
  Candidates candidates_;
  std::map<std::string, Group> groups_;
  std::set<std::size_t> compressed_;  // Of the objects that were looked into.
  bool is_side_ = false;              // The data are files that are beside data elsewhere.
};

}  // namespace

Format format_of(std::span<const std::byte> head) noexcept {
  for (const FormatDriver* driver : all_formats())
    if (driver->looks_like != nullptr && driver->looks_like(head)) return driver->id;
  return Format::kAuto;
}

Result<DataObjects> choose_objects(const BuildContext& context, Candidates candidates) {
  return Chooser(context, std::move(candidates)).choose();
}

}  // namespace headrace::detail
