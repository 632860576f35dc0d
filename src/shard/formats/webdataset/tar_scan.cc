// Members are found by walking from header to header; data is passed over. Samples must be cut
// later from their own bytes alone, so what would need other bytes (a global pax header that names
// or sizes a member) is refused here, when the index is made.
//
// - is_given_up_: a lenient scan stops at the first broken header and keeps what it has.
// - Behind the end mark there may be zeros only: readers stop there, and what follows would be
//   lost without a word.
// - A file of zeros is an end mark without an end: what an upload or a disk left of another file.
// - Sums of sizes are bounded by kMostTarBytes before they are formed.
#include "shard/formats/webdataset/tar_scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "shard/codec/json_reader.h"

namespace headrace::detail {
namespace {

// What tar writes for no files at all: one record of 20 blocks.
constexpr std::uint64_t kEmptyTarBytes = 20 * kTarBlockBytes;

}  // namespace

std::string TarFacts::to_text() const {
  nlohmann::json names = nlohmann::json::array();
  // Names are any bytes, and JSON holds text.
  for (const std::string& suffix : suffixes) names.push_back(to_hex(suffix));
  return nlohmann::json{{"suffixes", names}}.dump();
}

Result<TarFacts> TarFacts::from_text(std::string_view text) {
  simdjson::dom::parser parser;
  HEADRACE_TRY_ASSIGN(const simdjson::dom::element root, parse_json(parser, text));
  TarFacts facts;
  simdjson::dom::array suffixes;
  if (root["suffixes"].get_array().get(suffixes))
    return Status(Code::kCorrupt, "tar: not the facts of a file");
  bool is_right = true;
  for (const simdjson::dom::element entry : suffixes) {
    std::string_view hex;
    is_right =
        is_right && !entry.get_string().get(hex) && from_hex(hex, facts.suffixes.emplace_back());
  }
  if (!is_right) return Status(Code::kCorrupt, "tar: not the facts of a file");
  return facts;
}

Status TarScan::fail(Status status) const {
  return std::move(status).annotate(fmt::format("at byte {}", offset_));
}

Status TarScan::feed(std::span<const std::byte> bytes) {
  bool is_starved = bytes.empty();
  while (!is_starved) {
    if (is_given_up_) {
      offset_ += bytes.size();
      return Status();
    }
    if (is_after_end_) return check_tail(bytes);
    HEADRACE_TRY(step(bytes, is_starved));
  }
  return Status();
}

// Parses one member from the front of `bytes` and moves on to the next; `bytes` runs dry when that
// lies beyond them.
Status TarScan::step(std::span<const std::byte>& bytes, bool& is_starved) {
  TarNameBuffer buffer;
  auto parsed = parse_tar_member(bytes, buffer);
  if (!parsed) {
    is_given_up_ = is_lenient_ && offset_ > 0 && parsed.error().code() == Code::kCorrupt;
    if (is_given_up_) cut_begin_ = offset_;
    return is_given_up_ ? Status() : fail(std::move(parsed).error());
  }
  if (parsed->step == TarStep::kNeedMore) {
    needed_bytes_ = parsed->needed_bytes;
    is_starved = true;
    return Status();
  }
  needed_bytes_ = kTarBlockBytes;
  if (parsed->step == TarStep::kZeroBlock) {
    is_after_end_ = true;
    return Status();
  }
  const TarMember& member = parsed->member;
  if (Status status = check_globals(member); !status.ok()) return fail(std::move(status));
  if (Status status = grouper_.add(member, offset_); !status.ok()) return fail(std::move(status));
  member_begin_ = offset_;
  data_end_ = offset_ + member.data_begin + member.data_bytes;
  if (member.end > kMostTarBytes - offset_)
    return fail(Status(Code::kCorrupt, "tar: a member that no file has room for"));
  offset_ += member.end;
  is_starved = member.end >= bytes.size();
  if (!is_starved) bytes = bytes.subspan(member.end);
  return Status();
}

// A sample is cut from its own bytes: what a global header sets must be in them, or not hold for
// it.
Status TarScan::check_globals(const TarMember& member) {
  const PaxGlobals& globals = member.globals;
  const bool takes_name = has_global_name_ && !globals.sets_name && !member.has_own_name;
  const bool takes_size = has_global_size_ && !globals.sets_size && !member.has_own_size;
  has_global_name_ = globals.sets_name.value_or(has_global_name_);
  has_global_size_ = globals.sets_size.value_or(has_global_size_);
  if (!takes_name && !takes_size) return Status();
  return Status(
      Code::kUnsupported,
      fmt::format("tar: the {} of this member is in a global pax header before other members; "
                  "write the file without such headers",
                  takes_name ? "path" : "size"));
}

Status TarScan::check_tail(std::span<const std::byte> bytes) {
  const auto found =
      std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b != std::byte{0}; });
  if (found == bytes.end() || is_lenient_) {
    if (found != bytes.end() && !cut_begin_)
      cut_begin_ = offset_ + static_cast<std::uint64_t>(found - bytes.begin());
    offset_ += bytes.size();
    return Status();
  }
  offset_ += static_cast<std::uint64_t>(found - bytes.begin());
  return fail(Status(Code::kCorrupt, "tar: data after the end mark; readers stop before it"));
}

Status TarScan::finish(std::uint64_t size_bytes) {
  if (size_bytes == 0) return Status(Code::kCorrupt, "tar: an empty file");
  if (data_end_ == 0 && is_after_end_ && size_bytes > kEmptyTarBytes) {
    return Status(
        Code::kCorrupt,
        fmt::format("tar: {} bytes that begin with an end mark, and no file", size_bytes));
  }
  if (data_end_ > size_bytes) {
    return Status(Code::kCorrupt,
                  fmt::format("at byte {}: tar: the member's data end at {}, the file after {}",
                              member_begin_, data_end_, size_bytes));
  }
  if (offset_ < size_bytes && !is_lenient_)
    return fail(Status(Code::kCorrupt, "tar: the file ends inside a header"));
  cut_bytes_ = size_bytes - std::min(size_bytes, cut_begin_.value_or(offset_));
  grouper_.finish(size_bytes);
  return Status();
}

FileSamples TarScan::take() {
  FileSamples samples;
  samples.has_gaps = grouper_.has_gaps();
  samples.cut_bytes = cut_bytes_;
  const std::vector<std::uint64_t>& bounds = grouper_.bounds();
  if (samples.has_gaps) {
    samples.bounds = bounds;
  } else {
    for (std::size_t i = 0; i < bounds.size(); i += 2) samples.bounds.push_back(bounds[i]);
    if (!bounds.empty()) samples.bounds.push_back(bounds.back());
  }
  samples.facts = TarFacts{.suffixes = grouper_.suffixes()}.to_text();
  return samples;
}

}  // namespace headrace::detail
