#include "shard/formats/webdataset/sample_grouper.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>

#include "shard/formats/webdataset/member_name.h"

namespace headrace::detail {
namespace {

// Bytes beyond ASCII as "\xff".
std::string printable(std::string_view name) {
  std::string out;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out.push_back(c);
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  return out;
}

}  // namespace

Status SampleGrouper::add(const TarMember& member, std::uint64_t offset) {
  if (!member.is_regular) return Status();
  const auto split = split_member_name(member.name);
  if (!split) return Status();
  if (!simdjson::validate_utf8(member.name)) {
    return Status(
        Code::kUnsupported,
        fmt::format("the member name '{}' is not UTF-8; keys and fields are text: write the "
                    "file with names in UTF-8",
                    printable(member.name)));
  }
  if (bounds_.empty() || split->key != key_) {
    bounds_.push_back(offset);
    bounds_.push_back(offset);
    key_ = split->key;
  }
  bounds_.back() = offset + member.end;
  return add_suffix(split->suffix, member.name);
}

Status SampleGrouper::add_suffix(std::string_view suffix, std::string_view member_name) {
  std::string lower(suffix);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  const auto [entry, is_new] = index_of_.try_emplace(std::move(lower), suffixes_.size());
  if (is_new) {
    if (suffixes_.size() == kMostSuffixes) {
      return Status(Code::kUnsupported, fmt::format("more than {} different fields, the last is "
                                                    "'{}' of '{}'; a sample's name ends at the "
                                                    "first dot of the file name",
                                                    kMostSuffixes, suffix, member_name));
    }
    suffixes_.push_back(entry->first);
    last_sample_.push_back(0);
  }
  std::uint64_t& last = last_sample_[entry->second];
  if (is_taken_suffix(entry->first) || last == sample_count()) {
    return Status(Code::kCorrupt, fmt::format("'{}' is the second field '{}' of its sample",
                                              member_name, entry->first));
  }
  last = sample_count();
  return Status();
}

void SampleGrouper::finish(std::uint64_t size_bytes) {
  // The padding of the last member may be missing.
  if (!bounds_.empty()) bounds_.back() = std::min(bounds_.back(), size_bytes);
}

bool SampleGrouper::has_gaps() const noexcept {
  for (std::size_t i = 2; i < bounds_.size(); i += 2) {
    if (bounds_[i] != bounds_[i - 1]) return true;
  }
  return false;
}

}  // namespace headrace::detail
