#pragma once
/// \file
/// Where a bucket is and how requests name it: from URL, options and AWS settings to host, port and
/// path. Pure.
#include <memory>
#include <string>

#include "auth/credentials.h"
#include "headrace/status.h"
#include "headrace/store.h"
#include "store/http_protocol.h"
#include "store/trusted_hosts.h"
#include "store/url.h"

namespace headrace::s3 {

/// Everything that requests to one root have in common.
struct S3Config {
  std::string bucket;
  std::string prefix;      ///< Of every key: "" or "a/b/". Raw.
  std::string root_url;    ///< "s3://bucket/a/b".
  HttpEndpoint endpoint;   ///< Virtual-host style: the bucket is part of host.
  std::string host_field;  ///< For the Host field.
  std::string base_path;   ///< Escaped; before "/key": "", "/bucket" or "/gateway/bucket".
  std::string region;
  bool is_aws = false;      ///< The vendor's own endpoint, not a custom one.
  bool is_express = false;  ///< A directory bucket of S3 Express One Zone.
  /// Plain HTTP, but to this machine: nobody can change the bytes on the way.
  bool is_loopback = false;
  std::shared_ptr<auth::CredentialProvider> credentials;  ///< nullptr: anonymous.
  std::string credentials_source;
  bool verify_checksums = true;
  ChecksumKind upload_checksum = ChecksumKind::kCrc32c;
  bool requester_pays = false;
  ObjectSettings settings;  ///< Of all writes.
  TrustedHosts trusted;     ///< Its own host is that without the bucket.
};

/// Letters, digits, hyphens and underscores: safe inside a host name.
bool is_region_name(std::string_view region) noexcept;

/// "use1-az4" of the directory bucket "data--use1-az4--x-s3"; empty for other names.
std::string_view express_zone(std::string_view bucket) noexcept;

/// Options win over `settings`. `provider`: nullptr takes the keys of `settings`. Errors:
/// kInvalidArgument (bucket name, endpoint), kDenied (no credentials).
Result<S3Config> make_s3_config(const StoreOptions& options, const StoreUrl& url,
                                const auth::AwsSettings& settings,
                                std::shared_ptr<auth::CredentialProvider> provider = nullptr);

}  // namespace headrace::s3
