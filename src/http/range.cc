#include "http/range.h"

#include <algorithm>

#include "base/strings.h"
#include "http/fields.h"

namespace headrace::http {

std::optional<RangeSpec> parse_range(std::string_view value) noexcept {
  if (value.size() < 6 || !equals_ignoring_case(value.substr(0, 6), "bytes=")) return std::nullopt;
  value = trim(value.substr(6));
  const std::size_t dash = value.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const std::string_view first = value.substr(0, dash);
  const std::string_view last = value.substr(dash + 1);
  RangeSpec spec;
  if (first.empty()) {
    const auto suffix = parse_decimal<std::uint64_t>(last);
    if (!suffix) return std::nullopt;
    spec.suffix_bytes = *suffix;
    return spec;
  }
  spec.first = parse_decimal<std::uint64_t>(first);
  if (!spec.first) return std::nullopt;
  if (last.empty()) return spec;
  spec.last = parse_decimal<std::uint64_t>(last);
  if (!spec.last || *spec.last < *spec.first) return std::nullopt;
  return spec;
}

std::optional<ResolvedRange> resolve_range(const RangeSpec& spec,
                                           std::uint64_t size_bytes) noexcept {
  if (!spec.first) {
    const std::uint64_t length = std::min(spec.suffix_bytes, size_bytes);
    if (length == 0) return std::nullopt;
    return ResolvedRange{size_bytes - length, length};
  }
  if (*spec.first >= size_bytes) return std::nullopt;
  const std::uint64_t last = std::min(spec.last.value_or(UINT64_MAX), size_bytes - 1);
  return ResolvedRange{*spec.first, last - *spec.first + 1};
}

void append_range(std::uint64_t offset_bytes, std::uint64_t length_bytes, std::string& out) {
  out.append("bytes=");
  append_decimal(offset_bytes, out);
  out.push_back('-');
  append_decimal(offset_bytes + length_bytes - 1, out);
}

}  // namespace headrace::http
