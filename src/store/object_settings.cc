#include "headrace/object_settings.h"

#include <algorithm>
#include <array>

namespace headrace {
namespace {

/// All fields of one line.
constexpr std::array kTexts = {&ObjectSettings::content_type,
                               &ObjectSettings::content_encoding,
                               &ObjectSettings::content_language,
                               &ObjectSettings::content_disposition,
                               &ObjectSettings::cache_control,
                               &ObjectSettings::storage_class,
                               &ObjectSettings::encryption,
                               &ObjectSettings::encryption_key,
                               &ObjectSettings::acl};

Status refuse(std::string what, const char* why) {
  return Status(Code::kInvalidArgument, std::move(what.append(why)));
}

/// A line break would begin another field; of other bytes no two stores make the same.
Status check_value(const std::string& value, const std::string& what) {
  const bool is_printable =
      std::all_of(value.begin(), value.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
  if (!is_printable)
    return refuse(what, ": a value is one line of printable ASCII; encode it (base64, for one)");
  if (value.starts_with(' ') || value.ends_with(' '))
    return refuse(what, ": a value cannot begin or end with a space");
  return {};
}

/// A token, as names of HTTP's fields are.
bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

}  // namespace

ObjectSettings settings_over(const ObjectSettings& given, const ObjectSettings& below) {
  ObjectSettings out = given;
  for (const auto text : kTexts)
    if ((out.*text).empty()) out.*text = below.*text;
  if (out.metadata.empty()) out.metadata = below.metadata;
  return out;
}

ObjectSettings copied_settings(const ObjectSettings& source) {
  ObjectSettings out = source;
  for (const auto text : {&ObjectSettings::storage_class, &ObjectSettings::encryption,
                          &ObjectSettings::encryption_key, &ObjectSettings::acl})
    (out.*text).clear();
  return out;
}

Status check_settings(const ObjectSettings& settings) {
  for (const auto text : kTexts)
    HEADRACE_TRY(check_value(settings.*text, "\"" + (settings.*text).substr(0, 64) + "\""));
  if (settings.metadata.size() > ObjectSettings::kMostMetadata)
    return refuse("metadata", ": more than 64 names");
  for (const auto& [name, value] : settings.metadata) {
    if (!is_name(name)) {
      return refuse("metadata \"" + name + "\"",
                    ": names are lower-case letters, digits, hyphens and underscores");
    }
    HEADRACE_TRY(check_value(value, "metadata " + name));
  }
  return {};
}

}  // namespace headrace
