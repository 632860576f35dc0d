#pragma once
/// \file
/// The three date forms on the wire. Pure; UTC; years 0 to 9999; no locale.
#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace headrace::http {

using WallTime = std::chrono::sys_seconds;

/// "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110 section 5.6.7, the only form that is generated).
std::string format_http_date(WallTime time);
/// The same into `out`, without allocation.
void write_http_date(WallTime time, char out[29]) noexcept;
/// Reads that form; nullopt for anything else (the two obsolete forms included).
std::optional<WallTime> parse_http_date(std::string_view text) noexcept;

/// "1994-11-06T08:49:37.000Z", as S3 writes dates in XML.
std::string format_iso_date(WallTime time);
/// Reads that form, with any number of fraction digits (cut off) or none; nullopt for anything
/// else.
std::optional<WallTime> parse_iso_date(std::string_view text) noexcept;

/// "19941106T084937Z", as in x-amz-date; 16 characters into `out`.
void write_amz_date(WallTime time, char out[16]) noexcept;
std::optional<WallTime> parse_amz_date(std::string_view text) noexcept;

}  // namespace headrace::http
