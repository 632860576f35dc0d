// The planning half of Google's credentials: it reads variables and files and asks nobody. What a
// file says wrong is therefore told when a store is opened, and what a service refuses when it
// happens.
//
// - The first place that is configured is the one: a broken file is an error, never a reason to
//   look further. Else somebody else's keys would be used without a word.
// - `searched` gets a line for each place that was passed over; together they are the error when
//   nothing is found.
// - Credentials that run programs are refused: a configuration file must not be code.
// - impersonated_service_account nests; the depth is bounded, as files come from anywhere.
#include "auth/google_credentials.h"

#include <nlohmann/json.hpp>

#include "auth/looked_at.h"

namespace headrace::auth {
namespace {

using nlohmann::json;

constexpr const char* kTokenUri = "https://oauth2.googleapis.com/token";
constexpr const char* kStsUri = "https://sts.googleapis.com/v1/token";
constexpr const char* kMetadataAddress = "169.254.169.254";
constexpr const char* kFirmwareFile = "/sys/class/dmi/id/product_name";

std::string text_of(const json& object, const char* name, std::string otherwise = {}) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() ? it->get<std::string>() : otherwise;
}

Status missing(const char* type, const char* field) {
  return Status(Code::kInvalidArgument,
                std::string("credentials of type ") + type + " without \"" + field + "\"");
}

Result<GoogleIdentity> parse_object(const json& object, int depth);

Result<GoogleIdentity> parse_service_account(const json& object) {
  GoogleIdentity identity;
  identity.kind = GoogleIdentity::Kind::kServiceAccount;
  identity.client_email = text_of(object, "client_email");
  identity.private_key_id = text_of(object, "private_key_id");
  identity.token_uri = text_of(object, "token_uri", kTokenUri);
  const std::string pem = text_of(object, "private_key");
  if (identity.client_email.empty()) return missing("service_account", "client_email");
  if (pem.empty()) return missing("service_account", "private_key");
  HEADRACE_TRY_ASSIGN(identity.key, RsaKey::create(pem));
  return identity;
}

Result<GoogleIdentity> parse_user(const json& object) {
  GoogleIdentity identity;
  identity.kind = GoogleIdentity::Kind::kAuthorizedUser;
  identity.client_id = text_of(object, "client_id");
  identity.client_secret = text_of(object, "client_secret");
  identity.refresh_token = text_of(object, "refresh_token");
  identity.token_uri = text_of(object, "token_uri", kTokenUri);
  if (identity.client_id.empty()) return missing("authorized_user", "client_id");
  if (identity.refresh_token.empty()) return missing("authorized_user", "refresh_token");
  return identity;
}

/// Where the other provider's token comes from.
Status parse_source(const json& source, GoogleIdentity& identity) {
  if (source.contains("executable")) {
    return Status(Code::kUnsupported,
                  "external_account credentials that run a program are not supported; use ones "
                  "with a file or URL source");
  }
  if (source.contains("certificate") || !text_of(source, "environment_id").empty()) {
    return Status(Code::kUnsupported,
                  "external_account credentials with an AWS or certificate source are not "
                  "supported; use ones with a file or URL source (OIDC)");
  }
  identity.subject_file = text_of(source, "file");
  identity.subject_url = text_of(source, "url");
  if (identity.subject_file.empty() && identity.subject_url.empty())
    return missing("external_account", "credential_source.file or .url");
  if (source.contains("headers") && source["headers"].is_object()) {
    const json& headers = source["headers"];
    for (const auto& [name, value] : headers.items()) {
      if (value.is_string()) identity.subject_headers.emplace_back(name, value.get<std::string>());
    }
  }
  if (source.contains("format") && source["format"].is_object() &&
      text_of(source["format"], "type", "text") == "json") {
    identity.subject_field = text_of(source["format"], "subject_token_field_name");
    if (identity.subject_field.empty())
      return missing("external_account", "credential_source.format.subject_token_field_name");
  }
  return {};
}

Result<GoogleIdentity> parse_external(const json& object) {
  GoogleIdentity identity;
  identity.kind = GoogleIdentity::Kind::kExternalAccount;
  identity.audience = text_of(object, "audience");
  identity.subject_token_type = text_of(object, "subject_token_type");
  identity.token_uri = text_of(object, "token_url", kStsUri);
  identity.client_id = text_of(object, "client_id");
  identity.client_secret = text_of(object, "client_secret");
  identity.workforce_project = text_of(object, "workforce_pool_user_project");
  identity.impersonation_url = text_of(object, "service_account_impersonation_url");
  if (identity.audience.empty()) return missing("external_account", "audience");
  if (identity.subject_token_type.empty()) return missing("external_account", "subject_token_type");
  const auto source = object.find("credential_source");
  if (source == object.end() || !source->is_object())
    return missing("external_account", "credential_source");
  HEADRACE_TRY(parse_source(*source, identity));
  return identity;
}

Result<GoogleIdentity> parse_impersonated(const json& object, int depth) {
  GoogleIdentity identity;
  identity.kind = GoogleIdentity::Kind::kImpersonated;
  identity.impersonation_url = text_of(object, "service_account_impersonation_url");
  if (identity.impersonation_url.empty())
    return missing("impersonated_service_account", "service_account_impersonation_url");
  if (object.contains("delegates") && object["delegates"].is_array()) {
    for (const json& delegate : object["delegates"]) {
      if (delegate.is_string()) identity.delegates.push_back(delegate.get<std::string>());
    }
  }
  const auto source = object.find("source_credentials");
  if (source == object.end() || !source->is_object())
    return missing("impersonated_service_account", "source_credentials");
  HEADRACE_TRY_ASSIGN(GoogleIdentity inner, parse_object(*source, depth + 1));
  identity.source = std::make_shared<const GoogleIdentity>(std::move(inner));
  return identity;
}

Result<GoogleIdentity> parse_object(const json& object, int depth) {
  const std::string type = text_of(object, "type");
  if (type == "service_account") return parse_service_account(object);
  if (type == "authorized_user") return parse_user(object);
  if (type == "external_account") return parse_external(object);
  if (type == "impersonated_service_account" && depth < 4) return parse_impersonated(object, depth);
  if (type.empty())
    return Status(Code::kInvalidArgument, "not a Google credentials file (no type)");
  return Status(Code::kUnsupported,
                "credentials of type \"" + type +
                    "\" are not supported (service_account, authorized_user, external_account and "
                    "impersonated_service_account are)");
}

Result<json> parse_json(std::string_view text) {
  json object = json::parse(text, nullptr, false);
  if (!object.is_object())
    return Status(Code::kInvalidArgument, "not a Google credentials file (not JSON)");
  return object;
}

const char* kind_name(const GoogleIdentity& identity) {
  switch (identity.kind) {
    case GoogleIdentity::Kind::kServiceAccount:
      return "service account";
    case GoogleIdentity::Kind::kAuthorizedUser:
      return "user credentials of gcloud";
    case GoogleIdentity::Kind::kExternalAccount:
      return "workload identity federation";
    case GoogleIdentity::Kind::kImpersonated:
      return "impersonated service account";
    case GoogleIdentity::Kind::kMachine:
      return "metadata server";
  }
  return "?";
}

class Resolver {
 public:
  Resolver(const Environment& environment, const FileReader& read_file)
      : environment_(environment), read_file_(read_file) {}

  Result<GoogleSettings> run() {
    settings_.project = environment_.get("GOOGLE_CLOUD_PROJECT");
    settings_.emulator_host = environment_.get("STORAGE_EMULATOR_HOST");
    HEADRACE_TRY_ASSIGN(bool is_found, try_hmac());
    if (!is_found) {
      HEADRACE_TRY_ASSIGN(is_found, try_files());
    }
    if (!is_found) try_machine();
    return std::move(settings_);
  }

 private:
  Result<bool> try_hmac() {
    std::string id = environment_.get("GS_ACCESS_KEY_ID");
    std::string secret = environment_.get("GS_SECRET_ACCESS_KEY");
    if (id.empty() && secret.empty()) {
      settings_.searched.push_back("GS_ACCESS_KEY_ID (not set)");
      return false;
    }
    if (id.empty() || secret.empty()) {
      return Status(Code::kDenied, std::string(id.empty() ? "GS_SECRET_ACCESS_KEY is set, but not "
                                                            "GS_ACCESS_KEY_ID"
                                                          : "GS_ACCESS_KEY_ID is set, but not "
                                                            "GS_SECRET_ACCESS_KEY"));
    }
    settings_.hmac = GoogleHmacKey{std::move(id), std::move(secret)};
    settings_.credentials_source = "HMAC key of GS_ACCESS_KEY_ID";
    return true;
  }

  Result<bool> try_files() {
    const std::string named = environment_.get("GOOGLE_APPLICATION_CREDENTIALS");
    if (!named.empty()) {
      const auto text = read_file_(named);
      if (!text) {
        return Status(Code::kDenied, "GOOGLE_APPLICATION_CREDENTIALS names " + named +
                                         ", which does not exist or cannot be read");
      }
      return take(*text, named);
    }
    settings_.searched.push_back("GOOGLE_APPLICATION_CREDENTIALS (not set)");
    std::string folder = environment_.get("CLOUDSDK_CONFIG");
    const std::string home = environment_.get("HOME");
    if (folder.empty() && !home.empty()) folder = home + "/.config/gcloud";
    if (folder.empty()) return false;
    const std::string path = folder + "/application_default_credentials.json";
    if (const auto text = read_file_(path)) return take(*text, path);
    settings_.searched.push_back(path + " (not there)");
    return false;
  }

  Result<bool> take(const std::string& text, const std::string& path) {
    auto object = parse_json(text);
    if (!object) return std::move(object).error().annotate(path);
    auto identity = parse_object(*object, 0);
    if (!identity) return std::move(identity).error().annotate(path);
    settings_.credentials_source = kind_name(*identity);
    if (!identity->client_email.empty())
      settings_.credentials_source += " " + identity->client_email;
    settings_.credentials_source += " (" + path + ")";
    settings_.identity = *std::move(identity);
    // The environment wins; project_id says where the account lives, and serves where nothing
    // better is.
    if (settings_.project.empty()) settings_.project = text_of(*object, "quota_project_id");
    if (settings_.project.empty()) settings_.project = text_of(*object, "project_id");
    return true;
  }

  /// Asks nobody: a machine elsewhere would keep us waiting for an address that does not answer.
  void try_machine() {
    std::string host = environment_.get("GCE_METADATA_HOST");
    std::string why = "GCE_METADATA_HOST";
    if (host.empty()) {
      const std::string firmware = read_file_(kFirmwareFile).value_or("");
      const bool is_google = firmware.find("Google") != std::string::npos;
      if (environment_.get("NO_GCE_CHECK") == "true") {
        settings_.searched.push_back("metadata server (NO_GCE_CHECK)");
        return;
      }
      if (!is_google && environment_.get("K_SERVICE").empty()) {
        settings_.searched.push_back("metadata server (this machine is not at Google)");
        return;
      }
      host = kMetadataAddress;
      why = is_google ? "firmware" : "K_SERVICE";
    }
    GoogleIdentity identity;
    identity.kind = GoogleIdentity::Kind::kMachine;
    identity.metadata_host = host;
    settings_.identity = std::move(identity);
    settings_.credentials_source = "metadata server (by " + why + ")";
  }

  const Environment& environment_;
  const FileReader& read_file_;
  GoogleSettings settings_;
};

}  // namespace

Result<GoogleIdentity> parse_google_identity(std::string_view text) {
  HEADRACE_TRY_ASSIGN(const json object, parse_json(text));
  return parse_object(object, 0);
}

Result<GoogleSettings> resolve_google_settings(const Environment& environment,
                                               const FileReader& read_file) {
  return Resolver(environment, read_file).run();
}

std::string GoogleSettings::explain() const {
  std::string out = "credentials: ";
  if (hmac || identity) {
    out += credentials_source + "\n";
  } else {
    out += "none found\n";
    for (const std::string& place : searched) out += "  looked at " + place + "\n";
  }
  return out + "project: " + (project.empty() ? "not set" : project) + "\n";
}

Status GoogleSettings::missing_credentials() const {
  return nothing_found("no Google credentials found", searched,
                       "Run \"gcloud auth application-default login\", or for a public bucket use "
                       "--anonymous (anonymous=True in Python)");
}

}  // namespace headrace::auth
