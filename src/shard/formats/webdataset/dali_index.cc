#include "shard/formats/webdataset/dali_index.h"

#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "shard/formats/webdataset/member_name.h"
#include "shard/formats/webdataset/sample_grouper.h"
#include "shard/formats/webdataset/tar.h"

namespace headrace::detail {
namespace {

Status corrupt() { return Status(Code::kCorrupt, "not an index of DALI for this tar"); }
Status other() {
  return Status(Code::kUnsupported, "an index of DALI that does not tell all that a scan does");
}

// The text up to `end`, which is taken too.
std::string_view take_until(std::string_view& text, char end) {
  const std::size_t at = text.find(end);
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  return part;
}

bool take_number(std::string_view& text, std::uint64_t& value) {
  const std::string_view digits = take_until(text, ' ');
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return !digits.empty() && error == std::errc() && end == digits.data() + digits.size();
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

class Parser {
 public:
  Parser(std::uint64_t size_bytes, bool has_names)
      : size_bytes_(size_bytes), has_names_(has_names) {}

  // Components "suffix offset size name" (v1.1: without the name), with spaces between.
  Status add_sample(std::string_view line) {
    const std::string before = key_;
    std::set<std::string> fields;
    out_.bounds.push_back(end_);
    while (!line.empty()) {
      DaliMember member;
      member.suffix = lower(take_until(line, ' '));
      if (!take_number(line, member.data_begin) || !take_number(line, member.data_bytes))
        return corrupt();
      if (has_names_) member.name = take_until(line, ' ');
      HEADRACE_TRY(add_member(member, fields));
    }
    return fields.empty() || (has_names_ && key_ == before) ? other() : Status();
  }

  Result<DaliIndex> finish() {
    out_.bounds.push_back(end_);
    out_.suffixes.assign(suffixes_.begin(), suffixes_.end());
    return std::move(out_);
  }

 private:
  Status add_member(const DaliMember& member, std::set<std::string>& fields) {
    // With one header between the members there is no room for what the index does not name.
    if (member.data_begin != end_ + kTarBlockBytes) return other();
    if (member.data_bytes > size_bytes_ || member.data_begin > size_bytes_ - member.data_bytes)
      return corrupt();
    // The scan of the tar refuses it, and says where.
    if (!simdjson::validate_utf8(member.name) || !simdjson::validate_utf8(member.suffix))
      return other();
    if (has_names_) HEADRACE_TRY(check_name(member, fields.empty()));
    if (is_taken_suffix(member.suffix) || !fields.insert(member.suffix).second) return other();
    suffixes_.insert(member.suffix);
    if (suffixes_.size() > kMostSuffixes) return other();
    end_ = member.data_begin +
           (member.data_bytes + kTarBlockBytes - 1) / kTarBlockBytes * kTarBlockBytes;
    if (end_ > size_bytes_) return other();  // The padding is missing.
    if (out_.first.data_begin == 0) out_.first = member;
    out_.last = member;
    return Status();
  }

  Status check_name(const DaliMember& member, bool is_first) {
    const auto split = split_member_name(member.name);
    if (!split || lower(split->suffix) != member.suffix) return other();
    if (!is_first && split->key != key_) return other();
    key_ = split->key;
    return Status();
  }

  const std::uint64_t size_bytes_;
  const bool has_names_;
  std::uint64_t end_ = 0;
  std::string key_;
  std::set<std::string> suffixes_;
  DaliIndex out_;
};

}  // namespace

Result<DaliIndex> parse_dali_index(std::string_view text, std::uint64_t size_bytes) {
  const std::string_view version = take_until(text, ' ');
  std::string_view count_text = take_until(text, '\n');
  std::uint64_t count = 0;
  if (!version.starts_with('v') || !take_number(count_text, count)) return corrupt();
  if (version != "v1.1" && version != "v1.2") return other();
  Parser parser(size_bytes, version == "v1.2");
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string_view line = take_until(text, '\n');
    if (line.empty()) return corrupt();
    HEADRACE_TRY(parser.add_sample(line));
  }
  if (count == 0 || !text.empty()) return corrupt();
  return parser.finish();
}

}  // namespace headrace::detail
