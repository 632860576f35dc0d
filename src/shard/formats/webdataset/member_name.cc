#include "shard/formats/webdataset/member_name.h"

namespace headrace::detail {
namespace {

// `__x__` as the whole name or as its first directory. Such members describe the data set.
bool is_reserved(std::string_view name) {
  if (!name.starts_with("__")) return false;
  const std::size_t slash = name.find('/');
  if (slash == std::string_view::npos) return name.ends_with("__");
  return slash >= 4 && name.substr(0, slash).ends_with("__");
}

}  // namespace

std::optional<MemberName> split_member_name(std::string_view name) {
  if (is_reserved(name)) return std::nullopt;
  const std::size_t slash = name.rfind('/');
  const std::size_t base = slash == std::string_view::npos ? 0 : slash + 1;
  const std::size_t dot = name.find('.', base);
  if (dot == std::string_view::npos) return std::nullopt;
  const MemberName split{name.substr(0, dot), name.substr(dot + 1)};
  if (dot > base) return split;
  // A hidden file: the reference's pattern then lets the directory in front be the name, if that
  // has no dot
  // ("d/.x" is field x of sample "d/", "d.x/.y" and ".hidden" are nothing).
  if (base == 0) return std::nullopt;
  const std::size_t before = base >= 2 ? name.rfind('/', base - 2) : std::string_view::npos;
  const std::size_t directory = before == std::string_view::npos ? 0 : before + 1;
  if (name.substr(directory, dot - directory).find('.') != std::string_view::npos)
    return std::nullopt;
  return split;
}

bool is_same_suffix(std::string_view suffix, std::string_view column) noexcept {
  if (suffix.size() != column.size()) return false;
  for (std::size_t i = 0; i < suffix.size(); ++i) {
    char c = suffix[i];
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c != column[i]) return false;
  }
  return true;
}

bool is_taken_suffix(std::string_view suffix) noexcept {
  return suffix == "__key__" || suffix == "__url__";
}

}  // namespace headrace::detail
