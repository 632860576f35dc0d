#pragma once
/// \file
/// Where a container is and how requests name it: from URL, options and settings to host, port,
/// path and credentials. Pure but for the token provider's making.
#include <functional>
#include <memory>
#include <string>

#include "auth/azure_settings.h"
#include "auth/azure_shared_key.h"
#include "auth/renewing.h"
#include "headrace/status.h"
#include "headrace/store.h"
#include "store/http_protocol.h"
#include "store/url.h"

namespace headrace::azure {

/// What a store URL names.
struct AzureLocation {
  std::string account;
  std::string container;
  std::string path;      ///< "" or "a/b". Raw.
  std::string root_url;  ///< As the user wrote it, without a SAS.
  std::string sas;       ///< From the URL's query; empty: none.
  std::string endpoint;  ///< "https://account.blob.core.windows.net" for https URLs, else empty.
  bool is_data_lake = false;  ///< abfs: the account has directories, and lists in their order.
};

/// True for az, azure, abfs, abfss, wasb and wasbs, and for http(s) URLs of a Blob service of
/// Microsoft's.
bool is_azure_url(const StoreUrl& url) noexcept;

/// Reads az://account/container[/path], abfs[s]://container@account.dfs.core.windows.net[/path],
/// wasb[s]://container@account.blob.core.windows.net[/path] and
/// https://account.blob.core.windows.net/container[/path]. A query with a signature
/// ("?sv=...&sig=...") is a SAS. Errors: kInvalidArgument.
Result<AzureLocation> parse_azure_location(const StoreUrl& url);

/// How requests prove who sends them. At most one of the three; none: anonymous.
struct AzureCredentials {
  std::shared_ptr<auth::SharedKeySigner> signer;
  std::string sas;
  std::shared_ptr<auth::TokenProvider> tokens;
  std::string source;  ///< For messages.
};

/// Everything that requests to one root have in common.
struct AzureConfig {
  std::string account;
  std::string container;
  std::string prefix;  ///< Of every key: "" or "a/b/". Raw.
  std::string root_url;
  HttpEndpoint endpoint;
  std::string host_field;      ///< For the Host field.
  std::string origin;          ///< "https://account.blob.core.windows.net".
  std::string container_path;  ///< Escaped: "/container" or "/account/container".
  AzureCredentials credentials;
  ObjectSettings settings;      ///< Of all writes.
  bool asks_checksums = true;   ///< Of ranges up to 4 MiB.
  bool sends_checksums = true;  ///< With what is written.
  bool is_data_lake = false;
};

using TokenFactory = std::function<std::shared_ptr<auth::TokenProvider>(auth::AzureIdentity,
                                                                        const std::string& source)>;

/// Options win over `settings`. Errors: kInvalidArgument (names, endpoint, key; tokens over plain
/// HTTP to another machine), kDenied (no credentials).
Result<AzureConfig> make_azure_config(const StoreOptions& options, const AzureLocation& location,
                                      const auth::AzureSettings& settings,
                                      const TokenFactory& make_tokens);

}  // namespace headrace::azure
