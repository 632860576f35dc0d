// Region, endpoint and addressing style are looked for here, credentials by plan_credentials();
// both keep the order of the AWS SDKs (botocore), which tests compare with. Each setting keeps the
// place it came from, for `headrace store whoami`.
//
// A provider's current() never waits: a static one answers from memory, a renewing one from what
// its thread fetched last. StaticProvider says when temporary keys have expired rather than
// sending them.
#include "auth/credentials.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "auth/aws_fetch.h"
#include "auth/looked_at.h"
#include "http/fields.h"

namespace headrace::auth {
namespace {

bool is_true(const std::string& text) { return http::equals_ignoring_case(text, "true"); }

/// All but the credentials.
class Resolver {
 public:
  Resolver(const Environment& environment, const Profiles& profiles)
      : environment_(environment), profiles_(profiles) {}

  void run(AwsSettings& settings) const {
    settings.profile = {profiles_.chosen(), profiles_.is_named() ? "AWS_PROFILE" : "default"};
    settings.region = region();
    settings.endpoint = endpoint("S3", "s3");
    settings.addressing_style = of_config("s3.addressing_style");
    settings.sums_requests_when_required =
        is_when_required("AWS_REQUEST_CHECKSUM_CALCULATION", "request_checksum_calculation");
    settings.asks_for_sums_when_required =
        is_when_required("AWS_RESPONSE_CHECKSUM_VALIDATION", "response_checksum_validation");
    AwsServices& services = settings.services;
    services.region = settings.region.text;
    services.sts_endpoint = endpoint("STS", "sts").text;
    services.sso_endpoint = endpoint("SSO", "sso").text;
    services.sso_oidc_endpoint = endpoint("SSO_OIDC", "sso_oidc").text;
    services.is_metadata_disabled = is_true(environment_.get("AWS_EC2_METADATA_DISABLED"));
    services.is_metadata_v1_disabled =
        is_true(setting("AWS_EC2_METADATA_V1_DISABLED", "ec2_metadata_v1_disabled"));
    const std::string metadata =
        setting("AWS_EC2_METADATA_SERVICE_ENDPOINT", "ec2_metadata_service_endpoint");
    const std::string mode =
        setting("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "ec2_metadata_service_endpoint_mode");
    if (!metadata.empty()) {
      services.metadata_endpoint = metadata.substr(0, metadata.find_last_not_of('/') + 1);
    } else if (http::equals_ignoring_case(mode, "ipv6")) {
      services.metadata_endpoint = "http://[fd00:ec2::254]";
    }
  }

 private:
  std::string setting(const char* variable, const char* key) const {
    std::string text = environment_.get(variable);
    return text.empty() ? profiles_.value(profiles_.chosen(), key) : text;
  }

  bool is_when_required(const char* variable, const char* key) const {
    return http::equals_ignoring_case(setting(variable, key), "when_required");
  }

  FoundSetting of_config(const char* key) const {
    const std::string& profile = profiles_.chosen();
    const std::string text = value_of(profiles_.in_config(profile), key);
    if (text.empty()) return {};
    return {text, profiles_.place(profile, profiles_.config())};
  }

  FoundSetting region() const {
    for (const char* name : {"AWS_REGION", "AWS_DEFAULT_REGION"}) {
      if (std::string text = environment_.get(name); !text.empty()) return {text, name};
    }
    if (FoundSetting found = of_config("region"); !found.text.empty()) return found;
    return profiles_.find(profiles_.chosen(), "region");
  }

  /// `variable` and `service` name one service: "S3", "s3".
  FoundSetting endpoint(const std::string& variable, const std::string& service) const {
    if (is_true(environment_.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"))) return {};
    // The service's own variable, then the general one; the config file has the same two, the
    // first in a "services" section that the profile names.
    for (const std::string& name :
         {"AWS_ENDPOINT_URL_" + variable, std::string("AWS_ENDPOINT_URL")}) {
      if (std::string text = environment_.get(name); !text.empty()) return {text, name};
    }
    if (is_true(of_config("ignore_configured_endpoint_urls").text)) return {};
    const std::string services = of_config("services").text;
    const ProfileFile& config = profiles_.config();
    if (std::string url =
            value_of(config.section("services " + services), service + ".endpoint_url");
        !url.empty()) {
      return {url, "services \"" + services + "\" in " + config.path};
    }
    return of_config("endpoint_url");
  }

  const Environment& environment_;
  const Profiles& profiles_;
};

class StaticProvider final : public CredentialProvider {
 public:
  explicit StaticProvider(Credentials credentials)
      : credentials_(std::make_shared<const Credentials>(std::move(credentials))) {}
  Result<std::shared_ptr<const Credentials>> current(WallTime now) override {
    if (credentials_->expires && now >= *credentials_->expires) {
      return Status(Code::kDenied, "the temporary credentials have expired; get new ones");
    }
    return credentials_;
  }

 private:
  const std::shared_ptr<const Credentials> credentials_;
};

}  // namespace

std::string masked_id(const std::string& id) {
  if (id.empty()) return {};
  // Four characters at each end of a short id would be most of it.
  if (id.size() < 12) return "****";
  return id.substr(0, 4) + "..." + id.substr(id.size() - 4);
}

std::shared_ptr<CredentialProvider> static_credentials(Credentials credentials) {
  return std::make_shared<StaticProvider>(std::move(credentials));
}

std::shared_ptr<CredentialProvider> renewing_credentials(
    RenewalOptions options, std::function<Result<Credentials>(std::stop_token)> fetch) {
  return std::make_shared<RenewingProvider<CredentialProvider, Credentials>>(std::move(options),
                                                                             std::move(fetch));
}

std::shared_ptr<CredentialProvider> make_aws_provider(const AwsSettings& settings, AwsWorld world) {
  if (settings.plan.kind == AwsSource::kNone) return nullptr;
  if (settings.plan.kind == AwsSource::kStatic) return static_credentials(settings.plan.keys);
  RenewalOptions options;
  options.what = "credentials";
  // The last resort fails for most by nobody being there: then the whole search is the story.
  const std::string searched = settings.plan.kind == AwsSource::kInstance
                                   ? std::string(settings.missing_credentials().message())
                                   : std::string();
  return renewing_credentials(
      std::move(options),
      [plan = settings.plan, services = settings.services, world = std::move(world),
       searched](std::stop_token stop) -> Result<Credentials> {
        auto found = fetch_credentials(plan, services, world, std::move(stop));
        if (!found && found.error().code() == Code::kDenied && !searched.empty()) {
          return Status(Code::kDenied,
                        std::string(found.error().message()) + "; before that, " + searched);
        }
        return found;
      });
}

Result<AwsSettings> resolve_aws_settings(const Environment& environment,
                                         const FileReader& read_file) {
  AwsSettings settings;
  HEADRACE_TRY_ASSIGN(const Profiles profiles, Profiles::load(environment, read_file));
  Resolver(environment, profiles).run(settings);
  HEADRACE_TRY_ASSIGN(settings.plan, plan_credentials(environment, profiles, read_file,
                                                      settings.services, settings.searched));
  settings.credentials_source = settings.plan.source;
  if (settings.plan.kind == AwsSource::kStatic) settings.credentials = settings.plan.keys;
  return settings;
}

std::string AwsSettings::explain() const {
  const auto line = [](const char* name, const FoundSetting& setting) {
    return std::string(name) +
           (setting.text.empty() ? "not set" : setting.text + " (" + setting.source + ")") + "\n";
  };
  std::string out;
  if (credentials) {
    out = "credentials: " + masked_id(credentials->access_key_id) +
          (credentials->session_token.empty() ? "" : ", temporary") + " (" + credentials_source +
          ")\n";
  } else if (plan.kind != AwsSource::kNone) {
    out = "credentials: " + std::string(source_name(plan.kind)) + " (" + plan.source + ")\n";
  } else {
    out = "credentials: none found\n";
    for (const std::string& place : searched) out += "  looked at " + place + "\n";
  }
  return out + line("region: ", region) + line("endpoint: ", endpoint);
}

Status AwsSettings::missing_credentials() const {
  return nothing_found(
      "no credentials found", searched,
      "Set them, or for a public bucket use --anonymous (anonymous=True in Python)");
}

FileReader local_file_reader() {
  return [](const std::string& path) -> std::optional<std::string> {
    constexpr std::uintmax_t kMaxFileBytes = 1 << 20;
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error) || error) return std::nullopt;
    if (std::filesystem::file_size(path, error) > kMaxFileBytes || error) return std::nullopt;
    std::ifstream in(path, std::ios::binary);
    if (!in) return std::nullopt;
    return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  };
}

}  // namespace headrace::auth
