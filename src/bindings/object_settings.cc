#include "object_settings.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "option_table.h"

namespace headrace {
namespace {

using Texts = std::map<std::string, std::string ObjectSettings::*>;

/// Names as headrace.ObjectSettings has them.
const Texts& texts() {
  static const Texts kTexts = {
      {"content_type", &ObjectSettings::content_type},
      {"content_encoding", &ObjectSettings::content_encoding},
      {"content_language", &ObjectSettings::content_language},
      {"content_disposition", &ObjectSettings::content_disposition},
      {"cache_control", &ObjectSettings::cache_control},
      {"storage_class", &ObjectSettings::storage_class},
      {"sse", &ObjectSettings::encryption},
      {"sse_kms_key_id", &ObjectSettings::encryption_key},
      {"acl", &ObjectSettings::acl},
  };
  return kTexts;
}

/// Names of metadata are those of header fields, in which case does not count.
std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return text;
}

void set_metadata(ObjectSettings& settings, nb::handle value) {
  for (auto& [name, text] : nb::cast<std::map<std::string, std::string>>(value)) {
    if (settings.metadata.emplace(lower_case(name), text).second) continue;
    raise(Status(Code::kInvalidArgument,
                 "metadata: \"" + name + "\" is there twice; upper and lower case are the same"));
  }
}

OptionTable<ObjectSettings> make_table() {
  OptionTable<ObjectSettings> table{{"metadata", set_metadata}};
  for (const auto& [name, field] : texts()) table.add(name, plain(field));
  return table;
}

}  // namespace

ObjectSettings parse_settings(const nb::dict& fields) {
  static const OptionTable<ObjectSettings> kTable = make_table();
  ObjectSettings settings;
  kTable.apply(fields, settings);
  return settings;
}

nb::dict make_settings(const ObjectSettings& settings) {
  nb::dict out;
  for (const auto& [name, field] : texts())
    if (!(settings.*field).empty()) out[name.c_str()] = nb::cast(settings.*field);
  if (settings.metadata.empty()) return out;
  nb::dict metadata;
  for (const auto& [name, value] : settings.metadata) metadata[nb::cast(name)] = nb::cast(value);
  out["metadata"] = metadata;
  return out;
}

}  // namespace headrace
