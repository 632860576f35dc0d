#pragma once
/// \file
/// Settings of objects in Azure's header fields, and what its answers tell of a blob. Pure.
#include <memory>

#include "headrace/object_settings.h"
#include "http/response.h"
#include "store/vendor/setting_fields.h"

namespace headrace::azure {

/// Errors: kInvalidArgument (also names of metadata that Azure does not take), kUnsupported.
Status check_azure_settings(const ObjectSettings& settings);

/// The order in which Azure signs fields, by their names.
bool comes_before(const std::string& name, const std::string& other);

/// Of a write, in that order.
vendor::FieldList setting_fields(const ObjectSettings& settings);

/// Those of them that Copy Blob takes; the others stay as they are at the source.
ObjectSettings settings_of_copy(const ObjectSettings& settings);

/// From the head of an answer to GET or HEAD.
std::shared_ptr<const ObjectDetails> object_details(const http::ResponseHead& head);

}  // namespace headrace::azure
