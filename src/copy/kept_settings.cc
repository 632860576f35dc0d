#include "copy/kept_settings.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "headrace/log.h"

namespace headrace::copy_detail {
namespace {

using Field = std::string ObjectSettings::*;

struct NamedField {
  Field field;
  std::string_view name;
};

/// What a copy takes over, besides metadata.
constexpr auto kCopied = std::to_array<NamedField>({
    {&ObjectSettings::content_type, "content_type"},
    {&ObjectSettings::content_encoding, "content_encoding"},
    {&ObjectSettings::content_language, "content_language"},
    {&ObjectSettings::content_disposition, "content_disposition"},
    {&ObjectSettings::cache_control, "cache_control"},
});

// A file of packed bytes that does not say so is read wrongly; metadata are seldom missed.
constexpr LogEvent kEncodingLost{
    .area = "copy",
    .level = LogLevel::kWarning,
    .one = "object was copied to files without its content encoding, from",
    .many = "objects were copied to files without their content encoding, from",
    .what = "(the bytes are as they were stored)"};
constexpr LogEvent kMetadataLost{
    .area = "copy",
    .level = LogLevel::kInfo,
    .one = "object was copied to files without its user metadata, from",
    .many = "objects were copied to files without their user metadata, from",
    .what = "(files have none)"};
constexpr LogEvent kDropped{.area = "copy",
                            .level = LogLevel::kWarning,
                            .one = "object was copied without all its settings to",
                            .many = "objects were copied without all their settings to",
                            .what = "(see docs/stores.md#settings-of-objects)"};

/// Types that stores give what comes without.
bool is_default_type(std::string_view type) {
  return type.empty() || type == "binary/octet-stream" || type == "application/octet-stream";
}

}  // namespace

std::shared_ptr<const ObjectSettings> KeptSettings::of(const std::string& from_key,
                                                       const ObjectDetails* source) const {
  ObjectSettings settings;
  if (source != nullptr) {
    settings = copied_settings(source->settings);
  } else {
    settings.content_type = guess_content_type(from_key);
  }
  // What the target's own replace is not missed.
  for (const auto& [field, name] : kCopied)
    if (!(to_.settings().*field).empty()) (settings.*field).clear();
  if (!to_.settings().metadata.empty()) settings.metadata.clear();
  if (!to_.check_settings(settings).ok()) drop_what_target_lacks(from_key, settings);
  return std::make_shared<const ObjectSettings>(settings_over(settings, to_.settings()));
}

void KeptSettings::drop_what_target_lacks(const std::string& from_key,
                                          ObjectSettings& settings) const {
  std::string dropped;
  const auto can_keep = [this](const ObjectSettings& one) { return to_.check_settings(one).ok(); };
  const auto drop = [&](std::string_view name) {
    dropped.append(dropped.empty() ? "" : ", ").append(name);
  };
  for (const auto& [field, name] : kCopied) {
    ObjectSettings one;
    one.*field = settings.*field;
    if (can_keep(one)) continue;
    drop(name);
    (settings.*field).clear();
  }
  std::erase_if(settings.metadata, [&](const auto& entry) {
    ObjectSettings one;
    one.metadata.insert(entry);
    if (can_keep(one)) return false;
    drop("metadata " + entry.first);
    return true;
  });
  if (!dropped.empty())
    process_log().count(kDropped, to_.url(), from_.object_url(from_key) + ": " + dropped);
}

bool KeptSettings::tells_files() noexcept { return process_log().wants(LogLevel::kWarning); }

void KeptSettings::tell_file(const std::string& from_key, const ObjectDetails& source) const {
  const ObjectSettings& settings = source.settings;
  if (!settings.content_encoding.empty()) {
    process_log().count(kEncodingLost, from_.url(),
                        from_.object_url(from_key) + ": " + settings.content_encoding);
  }
  if (!settings.metadata.empty())
    process_log().count(kMetadataLost, from_.url(), from_.object_url(from_key));
}

bool has_settings(const ObjectSettings& found, const ObjectSettings& wanted) {
  const bool is_type = wanted.content_type.empty() ? is_default_type(found.content_type)
                                                   : found.content_type == wanted.content_type;
  // S3 does not name the class that it takes for everything.
  const bool is_class = wanted.storage_class.empty() ||
                        found.storage_class == wanted.storage_class ||
                        (wanted.storage_class == "STANDARD" && found.storage_class.empty());
  const bool is_encryption = wanted.encryption.empty() || found.encryption == wanted.encryption;
  // A key is told by its whole name, whatever it was called.
  const bool is_key = found.encryption_key.ends_with(wanted.encryption_key);
  return is_type && is_class && is_encryption && is_key && found.metadata == wanted.metadata &&
         std::all_of(kCopied.begin() + 1, kCopied.end(), [&](const NamedField& each) {
           return found.*each.field == wanted.*each.field;
         });
}

}  // namespace headrace::copy_detail
