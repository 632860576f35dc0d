#pragma once
/// \file
/// Settings of objects in the header fields of Google's XML API, and what its answers tell of an
/// object. Pure.
#include <memory>

#include "headrace/object_settings.h"
#include "http/response.h"
#include "store/vendor/setting_fields.h"

namespace headrace::gcs {

extern const vendor::SettingNames kSettingNames;

/// From the head of an answer to GET or HEAD.
std::shared_ptr<const ObjectDetails> object_details(const http::ResponseHead& head);

}  // namespace headrace::gcs
