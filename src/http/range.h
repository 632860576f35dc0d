#pragma once
/// \file
/// The Range field of requests, both ways. Pure; no allocation beyond the caller's string. RFC 9110
/// section 14.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headrace::http {

/// One byte range as asked for, before the size of the object is known.
struct RangeSpec {
  std::optional<std::uint64_t> first;  ///< Absent: the last `suffix_bytes` bytes.
  std::optional<std::uint64_t> last;   ///< Included; absent: to the end.
  std::uint64_t suffix_bytes = 0;
};

/// A range of an object: [offset, offset + length).
struct ResolvedRange {
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;
};

/// "bytes=a-b", "bytes=a-", "bytes=-n". Nullopt for anything else, several ranges included; RFC
/// 9110 lets a server ignore such a field and send the whole object, and S3 does.
std::optional<RangeSpec> parse_range(std::string_view value) noexcept;

/// The part of an object of `size_bytes` that the range covers; nullopt when there is none: answer
/// 416.
std::optional<ResolvedRange> resolve_range(const RangeSpec& spec,
                                           std::uint64_t size_bytes) noexcept;

/// Appends "bytes=first-last" for [offset, offset + length). \pre length > 0, no overflow.
void append_range(std::uint64_t offset_bytes, std::uint64_t length_bytes, std::string& out);

}  // namespace headrace::http
