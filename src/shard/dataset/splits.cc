// Rules are tried from the surest to the weakest, and the first that finds any name decides for
// all files: Hugging Face's layout data/NAME-00000-of-00005, then folders, then words in file
// names. They are never mixed, since a folder "train" with a file "test-cases.json" in it has one
// split. The words and what they mean are those of datasets/data_files.py, so that a folder that
// `load_dataset` reads has the same splits here.
#include "shard/dataset/splits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "shard/dataset/format_driver.h"
#include "shard/dataset/name_parts.h"

namespace headrace::detail {
namespace {

// Of datasets.data_files: SPLIT_KEYWORDS, in the order in which a file is asked.
constexpr std::pair<std::string_view, std::string_view> kKeywords[] = {
    {"train", "train"},      {"training", "train"}, {"validation", "validation"},
    {"valid", "validation"}, {"dev", "validation"}, {"val", "validation"},
    {"test", "test"},        {"testing", "test"},   {"eval", "test"},
    {"evaluation", "test"}};
constexpr std::array<std::string_view, 3> kOrder = {"train", "validation", "test"};

constexpr bool is_separator(char c) noexcept {
  return c == '-' || c == '.' || c == '_' || c == ' ' || (c >= '0' && c <= '9');
}

// `word` stands in `text` between separators; its begin is one, its end only where `at_end`.
bool has_word(std::string_view text, std::string_view word, bool at_end) noexcept {
  for (std::size_t at = text.find(word); at != std::string_view::npos;
       at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    const bool begins = at == 0 || is_separator(text[at - 1]);
    const bool ends = end == text.size() ? at_end : is_separator(text[end]);
    if (begins && ends) return true;
  }
  return false;
}

void add(std::vector<std::string>& names, std::string_view name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
}

void add_words(std::string_view text, bool at_end, std::vector<std::string>& names) {
  for (const auto& [word, split] : kKeywords)
    if (has_word(text, word, at_end)) add(names, split);
}

bool are_digits(std::string_view text) noexcept {
  return text.size() == 5 && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// NAME of "data/NAME-00000-of-00005.ext"; else empty.
std::string_view sharded_split(std::string_view key) noexcept {
  constexpr std::string_view kFolder = "data/", kOf = "-of-";
  if (!key.starts_with(kFolder) || key.find('/', kFolder.size()) != std::string_view::npos)
    return {};
  const std::string_view name = key.substr(kFolder.size());
  for (std::size_t of = name.find(kOf); of != std::string_view::npos; of = name.find(kOf, of + 1)) {
    // NAME has a character at least, then "-00000" before and "00000." after the "-of-".
    if (of < 7 || name.size() < of + 4 + 5 + 1) continue;
    if (name[of - 6] == '-' && are_digits(name.substr(of - 5, 5)) &&
        are_digits(name.substr(of + 4, 5)) && name.find('.', of + 9) != std::string_view::npos)
      return name.substr(0, of - 6);
  }
  return {};
}

std::size_t rank_of(std::string_view split) noexcept {
  return static_cast<std::size_t>(std::find(kOrder.begin(), kOrder.end(), split) - kOrder.begin());
}

// Those that may hold samples: data files and JSON lines, else all that is no note.
std::vector<std::string_view> files_of(const Candidates& candidates) {
  std::vector<std::string_view> files;
  for (const ObjectInfo& object : candidates.lines)
    if (!may_be_note(object.key)) files.push_back(object.key);
  if (!files.empty()) return files;
  for (const ObjectInfo& object : candidates.all)
    if (!is_about_data(base_name(object.key))) files.push_back(object.key);
  return files;
}

// With the files that lie beside data as a rule, of which all of a split may be.
Candidates with_beside(Candidates candidates) {
  std::set<std::string> known;
  for (const ObjectInfo& object : candidates.lines) known.insert(object.key);
  const auto may_be_beside = [](std::string_view key) {
    const auto formats = all_formats();
    return std::any_of(formats.begin(), formats.end(), [key](const FormatDriver* driver) {
      return driver->may_be_beside != nullptr && driver->may_be_beside(base_name(key));
    });
  };
  std::copy_if(candidates.all.begin(), candidates.all.end(), std::back_inserter(candidates.lines),
               [&](const ObjectInfo& object) {
                 return !known.contains(object.key) && may_be_beside(object.key);
               });
  return candidates;
}

std::string shown(const std::vector<SplitTable::Split>& splits) {
  std::string text;
  for (const SplitTable::Split& split : splits) {
    text += fmt::format("{}{} ({} file{})", text.empty() ? "" : ", ", split.name, split.file_count,
                        split.file_count == 1 ? "" : "s");
  }
  return text;
}

}  // namespace

std::string_view canonical_split(std::string_view name) noexcept {
  for (const auto& [word, split] : kKeywords)
    if (word == name) return split;
  return name;
}

SplitTable::SplitTable(const Candidates& candidates) {
  const auto files = files_of(candidates);
  for (const Rule rule : {Rule::kSharded, Rule::kFolders, Rule::kFiles}) {
    std::map<std::string, std::size_t> counts;
    unnamed_count_ = 0;
    for (const std::string_view key : files) {
      const auto names = names_of(key, rule);
      if (names.empty()) ++unnamed_count_;
      for (const std::string& name : names) ++counts[name];
    }
    if (counts.empty()) continue;
    rule_ = rule;
    for (auto& [name, count] : counts) splits_.push_back({name, count});
    std::stable_sort(splits_.begin(), splits_.end(), [](const Split& a, const Split& b) {
      return rank_of(a.name) < rank_of(b.name);
    });
    return;
  }
}

bool SplitTable::has(std::string_view name) const noexcept {
  return std::any_of(splits_.begin(), splits_.end(),
                     [name](const Split& split) { return split.name == name; });
}

std::vector<std::string> SplitTable::names_of(std::string_view key, Rule rule) const {
  std::vector<std::string> names;
  if (rule == Rule::kSharded) {
    if (const std::string_view name = sharded_split(key); !name.empty()) add(names, name);
  } else if (rule == Rule::kFiles) {
    add_words(base_name(key), false, names);
  } else if (rule == Rule::kFolders) {
    for (std::size_t slash = key.find('/'); slash != std::string_view::npos;
         slash = key.find('/')) {
      add_words(key.substr(0, slash), true, names);
      key.remove_prefix(slash + 1);
    }
  }
  return names;
}

void SplitTable::keep(std::string_view name, Candidates& candidates) const {
  const auto is_other = [&](const ObjectInfo& object) {
    const auto names = names_of(object.key, rule_);
    // Names that begin so are parts of formats ("_common_metadata").
    if (names.empty()) return !base_name(object.key).starts_with('_');
    return std::find(names.begin(), names.end(), name) == names.end();
  };
  std::erase_if(candidates.all, is_other);
  std::erase_if(candidates.data, is_other);
  std::erase_if(candidates.lines, is_other);
}

Status choose_split(const BuildContext& context, Candidates& candidates) {
  const std::string_view wanted = context.options.split;
  SplitTable table(candidates);
  if (!table.has(wanted) && !table.has(canonical_split(wanted)))
    table = SplitTable(with_beside(candidates));
  if (table.splits().empty()) {
    return Status(Code::kNotFound,
                  fmt::format("{}: has no split '{}': neither folders nor names of files speak of "
                              "splits; leave out split=",
                              context.store.url(), wanted));
  }
  // The name as it was given first: a layout data/dev-... has a split of that very name.
  for (const std::string_view name : {wanted, canonical_split(wanted)}) {
    if (!table.has(name)) continue;
    table.keep(name, candidates);
    return Status();
  }
  return Status(Code::kNotFound, fmt::format("{}: has no split '{}', but {}", context.store.url(),
                                             wanted, shown(table.splits())));
}

Status refuse_several(const BuildContext& context, const SplitTable& table) {
  if (table.splits().size() < 2) return Status();
  return Status(Code::kInvalidArgument,
                fmt::format("{}: has the splits {}: choose one with split=, or all of them as one "
                            "dataset with split='{}'",
                            context.store.url(), shown(table.splits()), kAllSplits));
}

}  // namespace headrace::detail
