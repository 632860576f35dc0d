#include "shard/dataset/empty_shard.h"

#include <fmt/format.h>

#include <algorithm>

#include "shard/dataset/format_driver.h"

namespace headrace::detail {
namespace {

// Whether a file without bytes is one of its format.
bool may_be_empty(const BuildContext& context, const FormatDriver* driver, std::string_view key) {
  return driver != nullptr && driver->may_be_empty != nullptr &&
         driver->may_be_empty(context.options, key);
}

}  // namespace

bool is_compressed_name(std::string_view key) noexcept {
  constexpr std::string_view kCodings[] = {".gz", ".zst", ".zstd", ".bz2", ".xz"};
  return std::any_of(std::begin(kCodings), std::end(kCodings),
                     [key](std::string_view coding) { return key.ends_with(coding); });
}

Status leave_out_empty(const BuildContext& context, DataObjects& data) {
  const FormatDriver* driver = driver_of(data.format);
  std::vector<ObjectInfo> kept;
  for (ObjectInfo& object : data.objects) {
    if (object.size_bytes != 0 || may_be_empty(context, driver, object.key)) {
      kept.push_back(std::move(object));
      continue;
    }
    HEADRACE_TRY(context.leave_out(
        object,
        Status(Code::kCorrupt,
               fmt::format("has no bytes, so it is no file of format '{}': was its upload cut off? "
                           "Write it again, or remove it if it should not be there{}",
                           format_name(data.format),
                           driver == nullptr ? std::string_view() : driver->empty_hint))));
  }
  data.objects = std::move(kept);
  return Status();
}

}  // namespace headrace::detail
