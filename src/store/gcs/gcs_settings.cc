#include "store/gcs/gcs_settings.h"

namespace headrace::gcs {
namespace {

constexpr auto kFields = vendor::with_http_fields({
    {&ObjectSettings::storage_class, "x-goog-storage-class"},
    {&ObjectSettings::encryption_key, "x-goog-encryption-kms-key-name"},
    {&ObjectSettings::acl, "x-goog-acl"},
});

}  // namespace

constinit const vendor::SettingNames kSettingNames{"Google Cloud Storage", kFields, "x-goog-meta-"};

std::shared_ptr<const ObjectDetails> object_details(const http::ResponseHead& head) {
  auto details = vendor::read_details(head, kSettingNames, "x-goog-generation");
  // Content-Encoding is that of the answer, which Google may unpack.
  const std::string_view stored = head.header("x-goog-stored-content-encoding");
  if (!stored.empty()) details->settings.content_encoding = stored == "identity" ? "" : stored;
  return details;
}

}  // namespace headrace::gcs
