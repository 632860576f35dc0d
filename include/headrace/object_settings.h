#pragma once
/// \file
/// What a store keeps with an object besides its bytes: its type, metadata, storage class,
/// encryption, access. Plain values.
///
/// Place: a write's settings go down with a Request or CallOptions (store.h), or are those of all
/// writes of a store (StoreOptions::settings); what an object has comes up in ObjectInfo::details.
#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "headrace/status.h"

namespace headrace {

/// Empty fields are left to the store. Values are one line of printable ASCII.
struct ObjectSettings {
  std::string content_type;  ///< "application/json".
  std::string content_encoding;
  std::string content_language;
  std::string content_disposition;
  std::string cache_control;
  /// The user's own, at most kMostMetadata. Names are lower-case; letters, digits and what else
  /// HTTP's field names may have (Azure: letters, digits and underscores).
  std::map<std::string, std::string> metadata;
  /// The vendor's word: "STANDARD_IA", "GLACIER_IR" (S3), "NEARLINE" (GCS), "Cool" (Azure: the
  /// access tier).
  std::string storage_class;
  std::string encryption;  ///< S3: "AES256", "aws:kms", "aws:kms:dsse". Never keys of the client.
  std::string encryption_key;  ///< S3: id or ARN of the KMS key. GCS: name of the Cloud KMS key.
  std::string acl;  ///< S3, GCS: a canned one, "bucket-owner-full-control". No store tells it back.

  static constexpr std::size_t kMostMetadata = 64;

  bool operator==(const ObjectSettings&) const = default;
  bool empty() const { return *this == ObjectSettings(); }
};

/// What a store tells of one object besides size and version.
struct ObjectDetails {
  ObjectSettings settings;
  std::string version_id;  ///< Of buckets that keep versions; GCS: the generation.
};

/// Field by field `given`, where it is empty `below`. Metadata count as one field.
ObjectSettings settings_over(const ObjectSettings& given, const ObjectSettings& below);

/// What a copy takes over from its source: type and the like, and metadata; not class, encryption
/// and access, which are the target's.
ObjectSettings copied_settings(const ObjectSettings& source);

/// Whether header lines can carry them. Errors: kInvalidArgument.
Status check_settings(const ObjectSettings& settings);

/// The type of an object by the end of its name, as its first application would call it; empty when
/// it is not known. What is packed (".gz", ".zst") is of the type of its packing.
std::string_view guess_content_type(std::string_view key) noexcept;

}  // namespace headrace
