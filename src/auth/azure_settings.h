#pragma once
/// \file
/// Where the credentials of an Azure storage account come from: environment variables and what the
/// machine says of itself. Pure functions over an Environment and a file reader; nothing here
/// touches the network.
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "auth/credentials.h"
#include "headrace/environment.h"
#include "headrace/status.h"

namespace headrace::auth {

/// Whom to ask for OAuth tokens, and as whom.
struct AzureIdentity {
  enum class Kind : std::uint8_t {
    kClientSecret,  ///< An application with a secret, from Entra ID.
    kWorkload,      ///< A Kubernetes service account, traded at Entra ID.
    kAppService,    ///< App Service, Functions, Container Apps: a local service gives tokens.
    kMachine,       ///< Managed identity of a virtual machine, from its metadata service.
  };
  Kind kind = Kind::kMachine;
  std::string authority;      ///< kClientSecret, kWorkload: "https://login.microsoftonline.com".
  std::string tenant_id;      ///< kClientSecret, kWorkload.
  std::string client_id;      ///< kAppService, kMachine: empty for the system-assigned identity.
  std::string client_secret;  ///< kClientSecret.
  std::string token_file;     ///< kWorkload: read anew for every token, since it rotates.
  std::string endpoint;       ///< kAppService, kMachine: http://host[:port][/path].
  std::string header_secret;  ///< kAppService.
};

/// What the environment says of one account. At most one of account_key, sas and identity is set:
/// the first that was found, in this order.
struct AzureSettings {
  std::string account;      ///< That the credentials belong to; empty: any.
  FoundSetting endpoint;    ///< http(s)://host[:port][/path] of the Blob service.
  std::string account_key;  ///< Base64.
  std::string sas;          ///< A query without '?', escaped as it was given.
  std::optional<AzureIdentity> identity;
  std::string credentials_source;     ///< "environment variable AZURE_STORAGE_KEY".
  std::vector<std::string> searched;  ///< Places looked at, in order, with what was (not) there.

  /// The kDenied that open_store() returns when there are no credentials.
  Status missing_credentials() const;
};

/// A storage connection string ("AccountName=...;AccountKey=...;...") in parts.
struct AzureConnectionString {
  std::string account;
  std::string account_key;
  std::string sas;
  std::string endpoint;  ///< Of the Blob service; empty: the vendor's.
};

/// Hosts of the Blob service in Microsoft's clouds: public, China, US government.
constexpr std::array<std::string_view, 3> kAzureBlobSuffixes = {
    ".blob.core.windows.net", ".blob.core.chinacloudapi.cn", ".blob.core.usgovcloudapi.net"};

/// "account.blob.core.windows.net" to "account"; empty for other hosts.
std::string_view azure_account_of_host(std::string_view host) noexcept;

/// The account, other than `account`, whose host of Microsoft's this is; else empty. A private link
/// and the secondary location are the account's own, and other hosts may be anybody's.
std::string_view other_azure_account(std::string_view host, std::string_view account) noexcept;

/// Errors: kInvalidArgument (a piece without '=', nothing that says which account). The message
/// has no values.
Result<AzureConnectionString> parse_azure_connection_string(std::string_view text);

/// Resolves all settings for `account` (of the store's URL). Variables, first found first:
/// AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY (or
/// AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_ACCESS_KEY), AZURE_STORAGE_SAS_TOKEN; AZURE_TENANT_ID,
/// AZURE_CLIENT_ID and AZURE_CLIENT_SECRET or AZURE_FEDERATED_TOKEN_FILE (AZURE_AUTHORITY_HOST);
/// IDENTITY_ENDPOINT and IDENTITY_HEADER; the machine's managed identity, where its firmware says
/// that it is one of Azure's. Endpoints: AZURE_STORAGE_BLOB_ENDPOINT,
/// AZURE_STORAGE_SERVICE_ENDPOINT. What belongs to another account is passed over. No credentials
/// at all is no error here. Errors: kInvalidArgument (malformed connection string).
Result<AzureSettings> resolve_azure_settings(const std::string& account,
                                             const Environment& environment,
                                             const FileReader& read_file);

/// The account and key that every Azurite has; Microsoft publishes them.
constexpr std::string_view kAzureDevelopmentAccount = "devstoreaccount1";
constexpr std::string_view kAzureDevelopmentKey =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

}  // namespace headrace::auth
