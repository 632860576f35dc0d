// The planning half of Azure's credentials: variables and files in, one source out; nobody is
// asked.
//
// - Endpoint and credentials are looked for separately: a connection string may give one without
//   the other.
// - What is named for another account is passed over, with a line in `searched`: people work with
//   several accounts, and one account's key is of no use at another.
// - First found, first used. Within a connection string the key wins over the SAS.
// - The machine's identity comes last and is believed in only where the firmware, or a variable,
//   says that there is one.
#include "auth/azure_settings.h"

#include "auth/looked_at.h"
#include "base/list_item.h"
#include "http/fields.h"
#include "http/uri.h"

namespace headrace::auth {
namespace {

constexpr const char* kChassisTagFile = "/sys/class/dmi/id/chassis_asset_tag";
/// What every virtual machine of Azure has there (Microsoft's guest agents look for the same).
constexpr std::string_view kAzureChassisTag = "7783-7084-3265-9085-8269-3286-77";

/// `name` and `value` of "name=value"; the value may have '=' signs.
struct Piece {
  std::string_view name, value;
};

std::string_view without_question_mark(std::string_view sas) noexcept {
  if (sas.starts_with('?')) sas.remove_prefix(1);
  return sas;
}

std::string_view without_end_of_line(std::string_view text) noexcept {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' '))
    text.remove_suffix(1);
  return text;
}

std::string without_last_slash(std::string text) {
  while (text.ends_with('/')) text.pop_back();
  return text;
}

/// Collects what is found, place after place.
class Search {
 public:
  Search(const std::string& account, const Environment& environment, const FileReader& read_file,
         AzureSettings& out)
      : account_(account), environment_(environment), read_file_(read_file), out_(out) {}

  Status run() {
    out_.account = account_;
    HEADRACE_TRY(connection_string());
    for (const char* name : {"AZURE_STORAGE_BLOB_ENDPOINT", "AZURE_STORAGE_SERVICE_ENDPOINT"}) {
      if (out_.endpoint.text.empty() && !get(name).empty()) blob_endpoint(name);
    }
    if (!is_found()) account_key();
    if (!is_found()) sas();
    if (!is_found()) application();
    if (!is_found()) app_service();
    if (!is_found()) machine();
    return {};
  }

 private:
  std::string get(const char* name) const { return environment_.get(name); }
  static std::string variable(const std::string& name) { return "environment variable " + name; }
  bool is_found() const { return !out_.credentials_source.empty(); }
  bool is_ours(const std::string& account) const {
    return account.empty() || account_.empty() || account == account_;
  }
  void pass_over(const std::string& place, const std::string& why) {
    out_.searched.push_back(place + ": " + why);
  }

  /// The account other than ours that a place is for: by its own words, or by a host of
  /// Microsoft's. Empty: ours, or any. A malformed endpoint is an error where it is used.
  std::string other_account(const std::string& account, const std::string& endpoint) const {
    if (!is_ours(account)) return account;
    auto url = http::parse_http_url(endpoint);
    return url ? std::string(other_azure_account(url->host, account_)) : std::string();
  }

  void blob_endpoint(const char* name) {
    const std::string text = get(name);
    const std::string other = other_account(get("AZURE_STORAGE_ACCOUNT"), text);
    if (other.empty()) {
      out_.endpoint = {without_last_slash(text), variable(name)};
    } else {
      pass_over(variable(name), "is for the account " + other);
    }
  }

  Status connection_string() {
    const char* name = "AZURE_STORAGE_CONNECTION_STRING";
    if (get(name).empty()) {
      pass_over(variable(name), "not set");
      return {};
    }
    auto parsed = parse_azure_connection_string(get(name));
    if (!parsed) return std::move(parsed).error().annotate(variable(name));
    if (const std::string other = other_account(parsed->account, parsed->endpoint);
        !other.empty()) {
      pass_over(variable(name), "is for the account " + other);
      return {};
    }
    if (!parsed->endpoint.empty())
      out_.endpoint = {without_last_slash(parsed->endpoint), variable(name)};
    out_.account_key = parsed->account_key;
    if (out_.account_key.empty()) out_.sas = parsed->sas;
    if (out_.account_key.empty() && out_.sas.empty()) {
      pass_over(variable(name), "has neither AccountKey nor SharedAccessSignature");
    } else {
      out_.credentials_source = variable(name);
    }
    return {};
  }

  void account_key() {
    for (const char* name :
         {"AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY"}) {
      if (get(name).empty()) continue;
      if (!is_ours(get("AZURE_STORAGE_ACCOUNT"))) {
        pass_over(variable(name), "is for the account " + get("AZURE_STORAGE_ACCOUNT"));
        return;
      }
      out_.account_key = get(name);
      out_.credentials_source = variable(name);
      return;
    }
    pass_over(variable("AZURE_STORAGE_KEY"), "not set");
  }

  void sas() {
    const char* name = "AZURE_STORAGE_SAS_TOKEN";
    if (get(name).empty()) {
      pass_over(variable(name), "not set");
    } else if (!is_ours(get("AZURE_STORAGE_ACCOUNT"))) {
      pass_over(variable(name), "is for the account " + get("AZURE_STORAGE_ACCOUNT"));
    } else {
      out_.sas = without_question_mark(get(name));
      out_.credentials_source = variable(name);
    }
  }

  void application() {
    AzureIdentity identity;
    identity.tenant_id = get("AZURE_TENANT_ID");
    identity.client_id = get("AZURE_CLIENT_ID");
    identity.client_secret = get("AZURE_CLIENT_SECRET");
    identity.token_file = get("AZURE_FEDERATED_TOKEN_FILE");
    identity.authority = without_last_slash(get("AZURE_AUTHORITY_HOST"));
    if (identity.authority.empty()) identity.authority = "https://login.microsoftonline.com";
    const std::string place = "environment variables AZURE_TENANT_ID and AZURE_CLIENT_ID";
    if (identity.tenant_id.empty() || identity.client_id.empty()) {
      pass_over(place, "not both set");
    } else if (!identity.client_secret.empty()) {
      identity.kind = AzureIdentity::Kind::kClientSecret;
      out_.credentials_source = "client secret (environment variable AZURE_CLIENT_SECRET)";
      out_.identity = std::move(identity);
    } else if (!identity.token_file.empty()) {
      identity.kind = AzureIdentity::Kind::kWorkload;
      out_.credentials_source =
          "workload identity (environment variable AZURE_FEDERATED_TOKEN_FILE)";
      out_.identity = std::move(identity);
    } else {
      pass_over(place, "set, but neither AZURE_CLIENT_SECRET nor AZURE_FEDERATED_TOKEN_FILE");
    }
  }

  void app_service() {
    if (get("IDENTITY_ENDPOINT").empty() || get("IDENTITY_HEADER").empty()) {
      pass_over("environment variables IDENTITY_ENDPOINT and IDENTITY_HEADER", "not both set");
      return;
    }
    AzureIdentity identity;
    identity.kind = AzureIdentity::Kind::kAppService;
    identity.endpoint = get("IDENTITY_ENDPOINT");
    identity.header_secret = get("IDENTITY_HEADER");
    identity.client_id = get("AZURE_CLIENT_ID");
    out_.credentials_source = "managed identity (environment variable IDENTITY_ENDPOINT)";
    out_.identity = std::move(identity);
  }

  // Asked only where something says that there is one: elsewhere the address may swallow packets.
  void machine() {
    const auto tag = read_file_(kChassisTagFile);
    const bool is_azure = tag && without_end_of_line(*tag) == kAzureChassisTag;
    const std::string named_host = get("AZURE_POD_IDENTITY_AUTHORITY_HOST");
    if (!is_azure && named_host.empty()) {
      pass_over("managed identity", "this is no virtual machine of Azure");
      return;
    }
    AzureIdentity identity;
    identity.kind = AzureIdentity::Kind::kMachine;
    identity.endpoint =
        named_host.empty() ? "http://169.254.169.254" : without_last_slash(named_host);
    identity.client_id = get("AZURE_CLIENT_ID");
    out_.credentials_source = "managed identity of this machine";
    out_.identity = std::move(identity);
  }

  const std::string& account_;
  const Environment& environment_;
  const FileReader& read_file_;
  AzureSettings& out_;
};

bool is_true(std::string_view value) noexcept { return value == "true" || value == "True"; }

}  // namespace

Status AzureSettings::missing_credentials() const {
  return nothing_found(
      "no credentials found for the Azure storage account " + account, searched,
      "Set them, or for a public container use --anonymous (anonymous=True in Python)");
}

std::string_view azure_account_of_host(std::string_view host) noexcept {
  for (const std::string_view suffix : kAzureBlobSuffixes) {
    if (host.size() < suffix.size()) continue;
    const std::size_t end = host.size() - suffix.size();
    if (http::equals_ignoring_case(host.substr(end), suffix)) return host.substr(0, end);
  }
  return {};
}

std::string_view other_azure_account(std::string_view host, std::string_view account) noexcept {
  constexpr std::string_view kSecondary = "-secondary";
  std::string_view found = azure_account_of_host(host);
  found = found.substr(0, found.find('.'));
  if (http::equals_ignoring_case(found, account)) return {};  // "account-secondary" in a URL, too
  if (found.ends_with(kSecondary)) found.remove_suffix(kSecondary.size());
  return http::equals_ignoring_case(found, account) ? std::string_view() : found;
}

Result<AzureConnectionString> parse_azure_connection_string(std::string_view text) {
  AzureConnectionString out;
  std::string protocol = "https";
  std::string suffix = "core.windows.net";
  std::string proxy;
  bool is_development = false;
  while (!text.empty()) {
    const std::string_view piece = take_item(text, ';');
    if (piece.empty()) continue;
    const std::size_t equals = piece.find('=');
    if (equals == std::string_view::npos)
      return Status(Code::kInvalidArgument, "a piece of the connection string has no '='");
    const std::string_view name = piece.substr(0, equals);
    const std::string_view value = piece.substr(equals + 1);
    if (name == "AccountName") out.account = value;
    if (name == "AccountKey") out.account_key = value;
    if (name == "SharedAccessSignature") out.sas = without_question_mark(value);
    if (name == "BlobEndpoint") out.endpoint = value;
    if (name == "DefaultEndpointsProtocol") protocol = value;
    if (name == "EndpointSuffix") suffix = value;
    if (name == "UseDevelopmentStorage") is_development = is_true(value);
    if (name == "DevelopmentStorageProxyUri") proxy = without_last_slash(std::string(value));
  }
  // "UseDevelopmentStorage=true" stands for Azurite on this machine, with its published key; of
  // the rest only the proxy's address counts.
  if (is_development) {
    out.account = kAzureDevelopmentAccount;
    out.account_key = kAzureDevelopmentKey;
    out.endpoint = (proxy.empty() ? "http://127.0.0.1" : proxy) + ":10000/" + out.account;
    return out;
  }
  if (out.account.empty() && out.endpoint.empty()) {
    return Status(Code::kInvalidArgument,
                  "the connection string has neither AccountName nor BlobEndpoint");
  }
  if (out.endpoint.empty()) {
    out.endpoint = protocol;
    out.endpoint.append("://").append(out.account).append(".blob.").append(suffix);
  }
  return out;
}

Result<AzureSettings> resolve_azure_settings(const std::string& account,
                                             const Environment& environment,
                                             const FileReader& read_file) {
  AzureSettings settings;
  HEADRACE_TRY(Search(account, environment, read_file, settings).run());
  return settings;
}

}  // namespace headrace::auth
