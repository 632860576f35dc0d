#pragma once
/// \file
/// Settings of objects in S3's header fields, and what its answers tell of an object. Pure.
#include <memory>

#include "headrace/object_settings.h"
#include "http/response.h"
#include "store/vendor/setting_fields.h"

namespace headrace::s3 {

extern const vendor::SettingNames kSettingNames;

/// Whether S3 has them, and they fit together. Errors: kInvalidArgument.
Status check_s3_settings(const ObjectSettings& settings);

/// From the head of an answer to GET or HEAD.
std::shared_ptr<const ObjectDetails> object_details(const http::ResponseHead& head);

}  // namespace headrace::s3
