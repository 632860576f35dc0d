#include "store/gcs/gcs_settings.h"

#include <array>

namespace headrace::gcs {
namespace {

constexpr auto kFields = std::to_array<vendor::SettingName>({
    {&ObjectSettings::content_type, "content-type"},
    {&ObjectSettings::content_encoding, "content-encoding"},
    {&ObjectSettings::content_language, "content-language"},
    {&ObjectSettings::content_disposition, "content-disposition"},
    {&ObjectSettings::cache_control, "cache-control"},
    {&ObjectSettings::storage_class, "x-goog-storage-class"},
    {&ObjectSettings::encryption_key, "x-goog-encryption-kms-key-name"},
    {&ObjectSettings::acl, "x-goog-acl"},
});

}  // namespace

constinit const vendor::SettingNames kSettingNames{"Google Cloud Storage", kFields, "x-goog-meta-"};

std::shared_ptr<const ObjectDetails> object_details(const http::ResponseHead& head) {
  auto details = std::make_shared<ObjectDetails>();
  details->settings = vendor::read_settings(head, kSettingNames);
  // Content-Encoding is that of the answer, which Google may unpack.
  const std::string_view stored = head.header("x-goog-stored-content-encoding");
  if (!stored.empty()) details->settings.content_encoding = stored == "identity" ? "" : stored;
  details->version_id = head.header("x-goog-generation");
  return details;
}

}  // namespace headrace::gcs
