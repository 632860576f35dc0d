#pragma once
/// \file
/// JSON as Python's json.dumps(..., sort_keys=True) writes it: MDS shards and indexes hold that
/// text. And text for messages. Pure.
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace headrace::pack_detail {

/// Separators ", " and ": ", keys sorted, everything beyond ASCII escaped. No floating-point
/// numbers.
std::string python_json(const nlohmann::json& value);

/// Whether json.loads() of Python reads this UTF-8: the grammar of RFC 8259 and NaN, Infinity,
/// -Infinity.
bool is_json(std::string_view text);

/// For messages: bytes beyond ASCII and control characters as "\\xff", at most 200 of all.
std::string printable(std::string_view text);

}  // namespace headrace::pack_detail
