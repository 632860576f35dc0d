#include <fmt/format.h>

#include <array>
#include <utility>

#include "headrace/dataset.h"

namespace headrace {
namespace {

constexpr std::array<std::pair<Format, std::string_view>, 13> kNames{{
    {Format::kAuto, "auto"},
    {Format::kMds, "mds"},
    {Format::kWebDataset, "webdataset"},
    {Format::kRaw, "raw"},
    {Format::kLitData, "litdata"},
    {Format::kTfRecord, "tfrecord"},
    {Format::kText, "text"},
    {Format::kTokens, "tokens"},
    {Format::kNumpy, "numpy"},
    {Format::kTable, "table"},
    {Format::kArrayRecord, "arrayrecord"},
    {Format::kCsv, "csv"},
    {Format::kSamples, "samples"},
}};

}  // namespace

std::string_view format_name(Format format) noexcept {
  for (const auto& [value, name] : kNames) {
    if (value == format) return name;
  }
  return "auto";
}

Result<Format> parse_format(std::string_view text) {
  std::string known;
  for (const auto& [value, name] : kNames) {
    if (value == Format::kSamples) continue;  // A view; nothing lies in a store like this.
    if (name == text) return value;
    known += fmt::format("{}'{}'", known.empty() ? "" : ", ", name);
  }
  return Status(Code::kInvalidArgument, fmt::format("format='{}': must be one of {}", text, known));
}

}  // namespace headrace
