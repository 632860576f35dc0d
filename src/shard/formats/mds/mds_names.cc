#include "shard/formats/mds/mds_names.h"

#include "shard/dataset/format_driver.h"
#include "shard/dataset/name_parts.h"

namespace headrace::detail {
namespace {

constexpr std::string_view kMetaEndings[] = {".json.meta", ".csv.meta", ".tsv.meta", ".xsv.meta"};

std::string_view without_coding(std::string_view name) {
  for (const std::string_view coding : {".zstd", ".zst", ".gz", ".bz2", ".br", ".snappy"})
    if (name.ends_with(coding)) return name.substr(0, name.size() - coding.size());
  return name;
}

}  // namespace

bool is_mds_name(std::string_view key) noexcept {
  return without_coding(base_name(key)).ends_with(".mds");
}

bool is_meta_of_lines(std::string_view key) noexcept {
  std::string_view name = without_coding(base_name(key));
  return take_prefix(name, "shard.") && take_digits(name) && ends_with_any(name, kMetaEndings);
}

}  // namespace headrace::detail
