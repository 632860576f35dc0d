#include <fmt/format.h>

#include "headrace/dataset.h"

namespace headrace {

std::string_view format_name(Format format) noexcept {
  switch (format) {
    case Format::kMds:
      return "mds";
    case Format::kWebDataset:
      return "webdataset";
    case Format::kRaw:
      return "raw";
    case Format::kAuto:
      break;
  }
  return "auto";
}

Result<Format> parse_format(std::string_view name) {
  for (const Format format : {Format::kAuto, Format::kMds, Format::kWebDataset, Format::kRaw}) {
    if (format_name(format) == name) return format;
  }
  return Status(Code::kInvalidArgument,
                fmt::format("format='{}': must be 'auto', 'mds', 'webdataset' or 'raw'", name));
}

}  // namespace headrace
