#pragma once
/// \file
/// JSON as Python's json.dumps(..., sort_keys=True) writes it: MDS shards and indexes hold that
/// text. Pure.
#include <nlohmann/json.hpp>
#include <string>

namespace headrace::pack_detail {

/// Separators ", " and ": ", keys sorted, everything beyond ASCII escaped. No floating-point
/// numbers.
std::string python_json(const nlohmann::json& value);

}  // namespace headrace::pack_detail
