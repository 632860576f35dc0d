#include "store/vendor/setting_fields.h"

#include <algorithm>
#include <array>

#include "base/strings.h"
#include "http/fields.h"

namespace headrace::vendor {
namespace {

/// As users call them.
constexpr auto kUserNames = std::to_array<SettingName>({
    {&ObjectSettings::content_type, "content_type"},
    {&ObjectSettings::content_encoding, "content_encoding"},
    {&ObjectSettings::content_language, "content_language"},
    {&ObjectSettings::content_disposition, "content_disposition"},
    {&ObjectSettings::cache_control, "cache_control"},
    {&ObjectSettings::storage_class, "storage_class"},
    {&ObjectSettings::encryption, "sse"},
    {&ObjectSettings::encryption_key, "sse_kms_key_id"},
    {&ObjectSettings::acl, "acl"},
});

ObjectSettings read_settings(const http::ResponseHead& head, const SettingNames& names) {
  ObjectSettings out;
  std::string_view fields = head.fields;
  http::Field field;
  while (http::next_field(fields, field)) {
    const std::string lower = to_lower(field.name);
    if (lower.starts_with(names.metadata_prefix)) {
      out.metadata.emplace(lower.substr(names.metadata_prefix.size()), field.value);
      continue;
    }
    const auto known = std::find_if(names.fields.begin(), names.fields.end(),
                                    [&](const SettingName& name) { return name.field == lower; });
    if (known != names.fields.end() && (out.*known->setting).empty())
      out.*known->setting = field.value;
  }
  return out;
}

}  // namespace

FieldList setting_fields(const ObjectSettings& settings, const SettingNames& names) {
  FieldList out;
  for (const SettingName& name : names.fields) {
    const std::string& value = settings.*name.setting;
    if (!value.empty()) out.emplace_back(name.field, value);
  }
  for (const auto& [name, value] : settings.metadata)
    out.emplace_back(std::string(names.metadata_prefix) + name, value);
  std::sort(out.begin(), out.end());
  return out;
}

std::shared_ptr<ObjectDetails> read_details(const http::ResponseHead& head,
                                            const SettingNames& names,
                                            std::string_view version_field) {
  auto details = std::make_shared<ObjectDetails>();
  details->settings = read_settings(head, names);
  details->version_id = head.header(version_field);
  return details;
}

Status check_settings(const ObjectSettings& settings, const SettingNames& names) {
  HEADRACE_TRY(headrace::check_settings(settings));
  const auto refuse = [&](std::string_view setting) {
    return Status(Code::kUnsupported, std::string(setting) + ": " + std::string(names.vendor) +
                                          " keeps no such setting with an object");
  };
  for (const SettingName& user : kUserNames) {
    if ((settings.*user.setting).empty()) continue;
    const bool is_known =
        std::any_of(names.fields.begin(), names.fields.end(),
                    [&](const SettingName& name) { return name.setting == user.setting; });
    if (!is_known) return refuse(user.field);
  }
  if (!settings.metadata.empty() && names.metadata_prefix.empty()) return refuse("metadata");
  return {};
}

bool replaces_source(const ObjectSettings& settings) { return !copied_settings(settings).empty(); }

}  // namespace headrace::vendor
