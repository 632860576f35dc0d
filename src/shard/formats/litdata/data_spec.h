#pragma once
/// \file
/// LitData's `data_spec`: the tree that a sample is, as torch's pytree writes it. Only the names of
/// its leaves are taken from it. Pure.
#include <string>
#include <string_view>
#include <vector>

#include "headrace/status.h"

namespace headrace::detail {

/// Names of the leaves in the order of their values: the keys and positions on the way to a leaf,
/// joined by dots ("a", "b.0"); "data" for a sample that is one bare leaf. Errors: kCorrupt (not
/// such a tree), kUnsupported (two leaves of one name, too many).
Result<std::vector<std::string>> parse_data_spec(std::string_view json);

}  // namespace headrace::detail
