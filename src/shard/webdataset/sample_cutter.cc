#include "shard/webdataset/sample_cutter.h"

#include <algorithm>

#include "base/check.h"
#include "shard/webdataset/member_name.h"
#include "shard/webdataset/tar.h"

namespace headrace::detail {

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

Status SampleCutter::cut(std::span<const std::byte> run, std::string_view stored_key,
                         std::span<ColumnBytes> out) const {
  HEADRACE_DCHECK(out.size() == names_.size());
  std::fill(out.begin(), out.end(), ColumnBytes{});
  if (out.empty()) return Status();
  std::size_t hint = 1;
  TarNameBuffer buffer;
  while (!run.empty()) {
    HEADRACE_TRY_ASSIGN(const TarResult parsed, parse_tar_member(run, buffer));
    const TarMember& member = parsed.member;
    if (parsed.step != TarStep::kMember || member.data_begin + member.data_bytes > run.size()) {
      return Status(Code::kCorrupt, "tar: the members do not fill the sample");
    }
    const auto data = run.subspan(member.data_begin, member.data_bytes);
    run = run.subspan(std::min<std::uint64_t>(member.end, run.size()));
    if (!member.is_regular) continue;
    const auto split = split_member_name(member.name);
    if (!split) continue;
    std::string_view key = member.is_name_joined ? stored_key : split->key;
    if (!out[0].present) out[0] = {std::as_bytes(std::span(key)), true};
    if (std::string_view(reinterpret_cast<const char*>(out[0].bytes.data()), out[0].bytes.size()) !=
        split->key) {
      return Status(Code::kCorrupt, "tar: a member of another sample");
    }
    const std::size_t c = column_of(split->suffix, hint);
    if (c == 0 || out[c].present) {
      return Status(
          Code::kCorrupt,
          "tar: a field unknown to the index, or twice; was the index made from .idx files "
          "that are not those of the tars? Name the tars with a pattern to have them read");
    }
    out[c] = {data, true};
    hint = c + 1;
  }
  return out[0].present ? Status() : Status(Code::kCorrupt, "tar: no member of a sample");
}

}  // namespace headrace::detail
