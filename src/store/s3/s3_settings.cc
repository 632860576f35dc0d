#include "store/s3/s3_settings.h"

namespace headrace::s3 {
namespace {

constexpr auto kFields = vendor::with_http_fields({
    {&ObjectSettings::storage_class, "x-amz-storage-class"},
    {&ObjectSettings::encryption, "x-amz-server-side-encryption"},
    {&ObjectSettings::encryption_key, "x-amz-server-side-encryption-aws-kms-key-id"},
    {&ObjectSettings::acl, "x-amz-acl"},
});

}  // namespace

constinit const vendor::SettingNames kSettingNames{"S3", kFields, "x-amz-meta-"};

Status check_s3_settings(const ObjectSettings& settings) {
  HEADRACE_TRY(vendor::check_settings(settings, kSettingNames));
  if (!settings.encryption_key.empty() && !settings.encryption.starts_with("aws:kms")) {
    return Status(Code::kInvalidArgument,
                  "sse_kms_key_id needs sse=\"aws:kms\" or \"aws:kms:dsse\"");
  }
  return {};
}

std::shared_ptr<const ObjectDetails> object_details(const http::ResponseHead& head) {
  return vendor::read_details(head, kSettingNames, "x-amz-version-id");
}

}  // namespace headrace::s3
