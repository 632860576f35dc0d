#pragma once
/// \file
/// How WebDataset reads member names: which sample a member belongs to and which field of it it is.
/// Pure.
///
/// Source: facts about webdataset 1.0.2 in docs/formats.md, "WebDataset".
#include <optional>
#include <string_view>

namespace headrace::detail {

struct MemberName {
  std::string_view key;     ///< Names the sample; directories included.
  std::string_view suffix;  ///< Names the field, as spelled; compared without regard to (ASCII)
                            ///< case. May be empty.
};

/// Splits at the first dot of the base name. Nothing: the member belongs to no sample (no dot, or a
/// reserved name).
std::optional<MemberName> split_member_name(std::string_view name);

/// True when `suffix` is `column` up to ASCII case. \pre `column` is in lower case.
bool is_same_suffix(std::string_view suffix, std::string_view column) noexcept;

/// True for the names that a sample of webdataset has before its members are looked at: a member
/// with such a suffix is the second of that name. \pre `suffix` is in lower case.
bool is_taken_suffix(std::string_view suffix) noexcept;

}  // namespace headrace::detail
