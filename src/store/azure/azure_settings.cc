// What is signed must stand in Azure's order of names, in which an underscore comes before digits
// and letters (the service compares as .NET's invariant culture does): not that of the bytes.
// Other marks do not come up, since names of metadata are those of C#.
#include "store/azure/azure_settings.h"

#include <algorithm>
#include <array>

namespace headrace::azure {
namespace {

constexpr auto kRequestFields = std::to_array<vendor::SettingName>({
    {&ObjectSettings::content_type, "x-ms-blob-content-type"},
    {&ObjectSettings::content_encoding, "x-ms-blob-content-encoding"},
    {&ObjectSettings::content_language, "x-ms-blob-content-language"},
    {&ObjectSettings::content_disposition, "x-ms-blob-content-disposition"},
    {&ObjectSettings::cache_control, "x-ms-blob-cache-control"},
    {&ObjectSettings::storage_class, "x-ms-access-tier"},
});
constexpr auto kAnswerFields = vendor::with_http_fields({
    {&ObjectSettings::storage_class, "x-ms-access-tier"},
});
constexpr std::string_view kVendor = "Azure Blob Storage";
constexpr std::string_view kMetadata = "x-ms-meta-";
constexpr vendor::SettingNames kRequest{kVendor, kRequestFields, kMetadata};
constexpr vendor::SettingNames kAnswer{kVendor, kAnswerFields, kMetadata};

/// As a C# identifier, of which letters are lower-case here.
bool is_metadata_name(std::string_view name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; };
  return !name.empty() && is_letter(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

}  // namespace

bool comes_before(const std::string& name, const std::string& other) {
  return std::lexicographical_compare(
      name.begin(), name.end(), other.begin(), other.end(),
      [](char x, char y) { return (x == '_' ? '\0' : x) < (y == '_' ? '\0' : y); });
}

Status check_azure_settings(const ObjectSettings& settings) {
  HEADRACE_TRY(vendor::check_settings(settings, kRequest));
  for (const auto& [name, value] : settings.metadata) {
    if (is_metadata_name(name)) continue;
    return Status(
        Code::kInvalidArgument,
        "metadata \"" + name + "\": Azure takes letters, digits and underscores, no digit first");
  }
  return {};
}

vendor::FieldList setting_fields(const ObjectSettings& settings) {
  vendor::FieldList fields = vendor::setting_fields(settings, kRequest);
  std::sort(fields.begin(), fields.end(),
            [](const auto& a, const auto& b) { return comes_before(a.first, b.first); });
  return fields;
}

ObjectSettings settings_of_copy(const ObjectSettings& settings) {
  ObjectSettings out;
  out.metadata = settings.metadata;
  out.storage_class = settings.storage_class;
  return out;
}

std::shared_ptr<const ObjectDetails> object_details(const http::ResponseHead& head) {
  return vendor::read_details(head, kAnswer, "x-ms-version-id");
}

}  // namespace headrace::azure
