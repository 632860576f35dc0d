#include "shard/dataset/index_json.h"

#include <fmt/format.h>

#include <string>

#include "base/strings.h"
#include "shard/codec/json_reader.h"
#include "shard/codec/json_text.h"

namespace headrace::detail {

const FormatDriver* owner_of_index_json(std::string_view json) {
  simdjson::dom::parser parser;
  const auto root = parse_json(parser, json);
  if (!root) return nullptr;
  for (const FormatDriver* driver : all_formats()) {
    if (driver->index_json != nullptr && (*root)[driver->index_json->list].is_array())
      return driver;
  }
  return nullptr;
}

const FormatDriver* owner_of_index_json_head(std::string_view head) noexcept {
  JsonText text(head);
  std::string_view name, value;
  bool goes_on = text.take('{');
  while (goes_on && text.take_string(name) && text.take(':')) {
    for (const FormatDriver* driver : all_formats())
      if (driver->index_json != nullptr && driver->index_json->list == name) return driver;
    goes_on = text.take_value(value) && text.take(',');
  }
  return nullptr;
}

Status check_index_json(const Store& store, std::string_view json) {
  const std::string url = store.object_url(std::string(kIndexJsonName));
  const std::string_view remedy =
      "the shards beside it cannot be read without it; `headrace index --rebuild` makes one from "
      "MDS shards, format= says what the folder holds if this is no index of a dataset";
  if (trim(json, kWhiteSpace).empty())
    return Status(Code::kCorrupt, fmt::format("{}: is empty: {}", url, remedy));
  simdjson::dom::parser parser;
  if (auto root = parse_json(parser, json); !root) {
    return Status(Code::kCorrupt, fmt::format("{}: is damaged ({} bytes that are no {}): {}", url,
                                              json.size(), root.error().message(), remedy));
  }
  return Status();
}

}  // namespace headrace::detail
