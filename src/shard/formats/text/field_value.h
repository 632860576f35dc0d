#pragma once
/// \file
/// What one value of a line of JSON is, as it is written. Pure; nothing is allocated.
///
/// Place: the schema (TextFields) and LineCutter ask the same questions, so that what the one took
/// the other cuts.
///
/// Threads: functions.
#include <cstdint>
#include <optional>
#include <string_view>

#include "shard/formats/text/text_layout.h"

namespace headrace::detail {

/// False when `text` is no number of JSON, or does not fit.
bool parse_json_number(std::string_view text, std::int64_t& value) noexcept;
/// As well: NaN, Infinity, -Infinity, as Python's json.dumps writes them.
bool parse_json_number(std::string_view text, double& value) noexcept;
/// True when `inner` is what JSON allows between quotes, escapes aside: UTF-8 without control
/// characters.
bool is_json_text(std::string_view inner) noexcept;

/// Kind of a value that JsonText took; numbers that fit no column are kJson. Nothing: no value. Of
/// objects and arrays JsonText has seen enough.
std::optional<FieldKind> kind_of_value(std::string_view value) noexcept;

}  // namespace headrace::detail
