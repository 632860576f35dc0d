#pragma once
/// \file
/// Which columns have bytes that may be read as something else.
#include <string_view>

#include "headrace/output_column.h"
#include "headrace/status.h"

namespace headrace::detail {

/// Whether values are bytes or text: not numbers, lists, or arrays that say what they are.
bool has_plain_bytes(const OutputColumn& column) noexcept;

/// kInvalidArgument: the column cannot be read as `what`.
Status not_plain_bytes(const OutputColumn& column, std::string_view what);

}  // namespace headrace::detail
