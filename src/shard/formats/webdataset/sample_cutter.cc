#include "shard/formats/webdataset/sample_cutter.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "shard/formats/webdataset/member_name.h"
#include "shard/formats/webdataset/tar.h"

namespace headrace::detail {
namespace {

// `cell` holds the header block whose name, in two fields, begins with the key.
void write_joined_key(const ColumnBytes& cell, std::span<std::byte> out) noexcept {
  TarNameBuffer buffer;
  std::memcpy(out.data(), ustar_name(cell.bytes, buffer).data(), out.size());
}

// `run` begins with the member.
ColumnBytes key_cell(std::span<const std::byte> run, const TarMember& member,
                     std::string_view key) {
  if (!member.is_name_joined) return {std::as_bytes(std::span(key)), true};
  return {.bytes = run.subspan(member.data_begin - kTarBlockBytes, kTarBlockBytes),
          .present = true,
          .writer = write_joined_key,
          .value_bytes = key.size()};
}

}  // namespace

SampleCutter::SampleCutter(const std::vector<Column>& columns) {
  for (const Column& column : columns) names_.push_back(column.name);
}

std::size_t SampleCutter::column_of(std::string_view suffix, std::size_t hint) const noexcept {
  for (std::size_t tried = 1; tried < names_.size(); ++tried, ++hint) {
    if (hint >= names_.size()) hint = 1;
    if (is_same_suffix(suffix, names_[hint])) return hint;
  }
  return 0;
}

Status SampleCutter::cut(std::span<const std::byte> run, std::span<ColumnBytes> out) const {
  HEADRACE_DCHECK(out.size() == names_.size());
  std::fill(out.begin(), out.end(), ColumnBytes{});
  if (out.empty()) return Status();
  std::size_t hint = 1;
  std::string_view key;
  TarNameBuffer key_buffer, buffer;
  while (!run.empty()) {
    HEADRACE_TRY_ASSIGN(const TarResult parsed,
                        parse_tar_member(run, out[0].present ? buffer : key_buffer));
    const TarMember& member = parsed.member;
    if (parsed.step != TarStep::kMember || member.data_begin + member.data_bytes > run.size()) {
      return Status(Code::kCorrupt, "tar: the members do not fill the sample");
    }
    const auto bytes = run;
    run = run.subspan(std::min<std::uint64_t>(member.end, run.size()));
    const auto split = member.is_regular ? split_member_name(member.name) : std::nullopt;
    if (!split) continue;
    if (!out[0].present) {
      key = split->key;
      out[0] = key_cell(bytes, member, key);
    }
    if (key != split->key) return Status(Code::kCorrupt, "tar: a member of another sample");
    const std::size_t c = column_of(split->suffix, hint);
    if (c == 0 || out[c].present) {
      return Status(
          Code::kCorrupt,
          "tar: a field unknown to the index, or twice; was the index made from .idx files "
          "that are not those of the tars? Name the tars with a pattern to have them read");
    }
    out[c] = {bytes.subspan(member.data_begin, member.data_bytes), true};
    hint = c + 1;
  }
  return out[0].present ? Status() : Status(Code::kCorrupt, "tar: no member of a sample");
}

}  // namespace headrace::detail
