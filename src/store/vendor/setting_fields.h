#pragma once
/// \file
/// Settings of objects as header fields: to requests and from answers, by a vendor's table of
/// names. Pure.
///
/// Place: below s3/, gcs/ and azure/.
#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/object_settings.h"
#include "headrace/status.h"
#include "http/response.h"

namespace headrace::vendor {

/// Which field holds which setting.
struct SettingName {
  std::string ObjectSettings::*setting;
  std::string_view field;
};

/// HTTP's own fields, and after them a vendor's.
template <std::size_t Count>
constexpr std::array<SettingName, 5 + Count> with_http_fields(const SettingName (&own)[Count]) {
  std::array<SettingName, 5 + Count> all = {{
      {&ObjectSettings::content_type, "content-type"},
      {&ObjectSettings::content_encoding, "content-encoding"},
      {&ObjectSettings::content_language, "content-language"},
      {&ObjectSettings::content_disposition, "content-disposition"},
      {&ObjectSettings::cache_control, "cache-control"},
  }};
  std::copy(std::begin(own), std::end(own), all.begin() + 5);
  return all;
}

/// Those that a vendor has.
struct SettingNames {
  std::string_view vendor;  ///< "Azure Blob Storage".
  std::span<const SettingName> fields;
  std::string_view metadata_prefix;  ///< "x-amz-meta-". Empty: no metadata.
};

using FieldList = std::vector<std::pair<std::string, std::string>>;

/// In order of names. \pre check_settings().
FieldList setting_fields(const ObjectSettings& settings, const SettingNames& names);

/// What the fields of an answer say. `version_field`: which of them holds the version.
std::shared_ptr<ObjectDetails> read_details(const http::ResponseHead& head,
                                            const SettingNames& names,
                                            std::string_view version_field);

/// check_settings(), and whether the vendor has them all. Errors: kInvalidArgument, kUnsupported.
Status check_settings(const ObjectSettings& settings, const SettingNames& names);

/// Whether they say something that a copy would else take from its source.
bool replaces_source(const ObjectSettings& settings);

}  // namespace headrace::vendor
