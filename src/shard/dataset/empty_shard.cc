#include "shard/dataset/empty_shard.h"

#include <fmt/format.h>

#include <algorithm>

namespace headrace::detail {
namespace {

// Whether a file without bytes is one of its format.
bool may_be_empty(const BuildContext& context, Format format, std::string_view key) noexcept {
  switch (format) {
    case Format::kRaw:
      return true;
    case Format::kText:
      return !is_compressed_name(key);
    case Format::kTokens:  // Its builder sees whether an `.idx` says so.
      return true;
    case Format::kTfRecord:  // TensorFlow reads it as no records.
      return context.options.lenient && !is_compressed_name(key);
    default:
      return false;
  }
}

}  // namespace

bool is_compressed_name(std::string_view key) noexcept {
  constexpr std::string_view kCodings[] = {".gz", ".zst", ".zstd", ".bz2", ".xz"};
  return std::any_of(std::begin(kCodings), std::end(kCodings),
                     [key](std::string_view coding) { return key.ends_with(coding); });
}

Status refuse_empty(const BuildContext& context, const DataObjects& data) {
  for (const ObjectInfo& object : data.objects) {
    if (object.size_bytes != 0 || may_be_empty(context, data.format, object.key)) continue;
    return Status(
        Code::kCorrupt,
        fmt::format(
            "{}: has no bytes, so it is no file of format '{}': was its upload cut off? "
            "Write it again, or remove it if it should not be there{}",
            context.store.object_url(object.key), format_name(data.format),
            data.format == Format::kTfRecord ? " (lenient=True takes it as no records)" : ""));
  }
  return Status();
}

}  // namespace headrace::detail
