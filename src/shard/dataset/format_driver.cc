#include "shard/dataset/format_driver.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace headrace {
namespace detail {

bool ends_with_any(std::string_view key, std::span<const std::string_view> endings) noexcept {
  return std::any_of(endings.begin(), endings.end(),
                     [key](std::string_view ending) { return key.ends_with(ending); });
}

bool FormatDriver::claims(std::string_view key) const noexcept {
  return ends_with_any(key, endings) || (claims_name != nullptr && claims_name(key));
}

const FormatDriver* driver_of(Format format) noexcept {
  for (const FormatDriver* driver : all_formats())
    if (driver->id == format) return driver;
  return nullptr;
}

const FormatDriver& fallback_format() noexcept {
  const auto formats = all_formats();
  return **std::find_if(formats.begin(), formats.end(),
                        [](const FormatDriver* driver) { return driver->takes_all; });
}

Status unknown_format(std::string_view url, Format format) {
  return Status(Code::kUnsupported,
                fmt::format("{}: this build does not read format '{}'", url, format_name(format)));
}

}  // namespace detail

std::string_view format_name(Format format) noexcept {
  // A view; nothing lies in a store like this.
  if (format == Format::kSamples) return "samples";
  const detail::FormatDriver* driver = detail::driver_of(format);
  return driver == nullptr ? "auto" : driver->name;
}

std::vector<std::string_view> format_names() {
  const auto formats = detail::all_formats();
  std::vector<const detail::FormatDriver*> drivers(formats.begin(), formats.end());
  std::sort(drivers.begin(), drivers.end(),
            [](const auto* a, const auto* b) { return a->id < b->id; });
  std::vector<std::string_view> names{"auto"};
  for (const detail::FormatDriver* driver : drivers) names.push_back(driver->name);
  return names;
}

std::vector<std::string_view> format_kinds() {
  std::vector<std::string_view> kinds;
  for (const detail::FormatDriver* driver : detail::all_formats())
    kinds.insert(kinds.end(), driver->kinds.begin(), driver->kinds.end());
  return kinds;
}

Result<Format> parse_format(std::string_view text) {
  if (text == "auto") return Format::kAuto;
  for (const detail::FormatDriver* driver : detail::all_formats())
    if (driver->name == text) return driver->id;
  return Status(Code::kInvalidArgument, fmt::format("format='{}': must be one of '{}'", text,
                                                    fmt::join(format_names(), "', '")));
}

Status set_format(DatasetOptions& options, std::string_view name) {
  for (const detail::FormatDriver* driver : detail::all_formats()) {
    if (std::find(driver->kinds.begin(), driver->kinds.end(), name) == driver->kinds.end())
      continue;
    options.format = driver->id;
    options.kind = name;
    return Status();
  }
  HEADRACE_TRY_ASSIGN(options.format, parse_format(name));
  options.kind.clear();
  return Status();
}

}  // namespace headrace
