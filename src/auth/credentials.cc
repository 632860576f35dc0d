#include "auth/credentials.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "auth/config_file.h"
#include "http/fields.h"

namespace headrace::auth {
namespace {

using Section = std::map<std::string, std::string>;

std::string value_of(const Section* section, const std::string& key) {
  if (section == nullptr) return {};
  const auto it = section->find(key);
  return it == section->end() ? std::string() : it->second;
}

/// One of the two shared files, as far as this profile goes.
struct ProfileFile {
  std::string path;
  bool exists = false;
  ConfigSections sections;
  const Section* profile = nullptr;  // into sections

  const Section* section(const std::string& name) const {
    const auto it = sections.find(name);
    return it == sections.end() ? nullptr : &it->second;
  }
};

Result<ProfileFile> read_profile_file(const std::string& path, const FileReader& read_file) {
  ProfileFile file;
  file.path = path;
  if (path.empty()) return file;
  const auto text = read_file(path);
  if (!text) return file;
  file.exists = true;
  HEADRACE_TRY_ASSIGN(file.sections, parse_config(*text, path));
  return file;
}

class Resolver {
 public:
  Resolver(const Environment& environment, const FileReader& read_file)
      : environment_(environment), read_file_(read_file) {}

  Result<AwsSettings> run() {
    HEADRACE_TRY(load_files());
    HEADRACE_TRY(find_credentials());
    find_region();
    find_endpoint();
    if (const std::string style = value_of(config_.profile, "s3.addressing_style");
        !style.empty()) {
      settings_.addressing_style = {style, place(config_)};
    }
    return std::move(settings_);
  }

 private:
  std::string place(const ProfileFile& file) const {
    return "profile \"" + profile_ + "\" in " + file.path;
  }

  std::string first_variable(std::initializer_list<const char*> names, std::string& source) const {
    for (const char* name : names) {
      if (std::string value = environment_.get(name); !value.empty()) {
        source = name;
        return value;
      }
    }
    return {};
  }

  /// Path of a shared file: the variable, else the one below HOME; a leading "~/" is HOME.
  std::string file_path(const char* variable, const char* below_home) const {
    const std::string home = environment_.get("HOME");
    std::string path = environment_.get(variable);
    if (path.empty()) return home.empty() ? std::string() : home + below_home;
    if (path.starts_with("~/")) path.replace(0, 1, home);
    return path;
  }

  Status load_files() {
    std::string source;
    profile_ = first_variable({"AWS_PROFILE", "AWS_DEFAULT_PROFILE"}, source);
    const bool is_named = !profile_.empty();
    if (!is_named) profile_ = "default";
    auto config = read_profile_file(file_path("AWS_CONFIG_FILE", "/.aws/config"), read_file_);
    if (!config) return std::move(config).error();
    config_ = *std::move(config);
    auto shared = read_profile_file(file_path("AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials"),
                                    read_file_);
    if (!shared) return std::move(shared).error();
    shared_ = *std::move(shared);
    // The config file names profiles "profile dev", all but "default"; the credentials file names
    // them "dev".
    config_.profile = config_.section("profile " + profile_);
    if (config_.profile == nullptr && profile_ == "default")
      config_.profile = config_.section("default");
    shared_.profile = shared_.section(profile_);
    if (is_named && config_.profile == nullptr && shared_.profile == nullptr) {
      return Status(Code::kDenied, source + " names the profile \"" + profile_ +
                                       "\", which is neither in " + described(config_) +
                                       " nor in " + described(shared_));
    }
    return {};
  }

  static std::string described(const ProfileFile& file) {
    if (file.path.empty()) return "a home directory (HOME is not set)";
    return file.path + (file.exists ? "" : " (no such file)");
  }

  Status find_credentials() {
    HEADRACE_TRY(find_in_environment());
    if (!settings_.credentials) HEADRACE_TRY(find_in_file(shared_));
    if (!settings_.credentials) HEADRACE_TRY(find_in_file(config_));
    return {};
  }

  Status find_in_environment() {
    Credentials found{environment_.get("AWS_ACCESS_KEY_ID"),
                      environment_.get("AWS_SECRET_ACCESS_KEY"),
                      environment_.get("AWS_SESSION_TOKEN"), std::nullopt};
    if (found.session_token.empty()) found.session_token = environment_.get("AWS_SECURITY_TOKEN");
    if (found.access_key_id.empty() && found.secret_access_key.empty()) {
      settings_.searched.emplace_back(
          "environment variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: not set");
      return {};
    }
    return accept(std::move(found), "environment variables");
  }

  Status find_in_file(const ProfileFile& file) {
    if (file.profile == nullptr) {
      settings_.searched.push_back(described(file) +
                                   (file.exists ? ": no profile \"" + profile_ + "\"" : ""));
      return {};
    }
    Credentials found{value_of(file.profile, "aws_access_key_id"),
                      value_of(file.profile, "aws_secret_access_key"),
                      value_of(file.profile, "aws_session_token"), std::nullopt};
    if (!found.access_key_id.empty() || !found.secret_access_key.empty())
      return accept(std::move(found), place(file));
    std::string what = place(file) + ": no aws_access_key_id";
    for (const char* key : {"role_arn", "sso_session", "sso_start_url", "credential_process",
                            "web_identity_token_file"}) {
      if (!value_of(file.profile, key).empty())
        what += std::string("; its ") + key + " is not supported by this version";
    }
    settings_.searched.push_back(std::move(what));
    return {};
  }

  Status accept(Credentials found, const std::string& source) {
    if (found.access_key_id.empty() || found.secret_access_key.empty()) {
      const bool is_id_missing = found.access_key_id.empty();
      return Status(Code::kDenied,
                    source + (is_id_missing ? " have a secret access key but no access key id"
                                            : " have an access key id but no secret access key"));
    }
    for (const std::string* part : {&found.access_key_id, &found.session_token}) {
      for (char c : *part) {
        // They become header text: a stray line end would forge a header.
        if (c <= ' ' || c > '~')
          return Status(
              Code::kDenied,
              source + ": access key id or session token with a space or control character");
      }
    }
    settings_.credentials = std::move(found);
    settings_.credentials_source = source;
    return {};
  }

  void find_region() {
    settings_.region.text =
        first_variable({"AWS_REGION", "AWS_DEFAULT_REGION"}, settings_.region.source);
    if (!settings_.region.text.empty()) return;
    for (const ProfileFile* file : {&config_, &shared_}) {
      if (std::string region = value_of(file->profile, "region"); !region.empty()) {
        settings_.region = {region, place(*file)};
        return;
      }
    }
  }

  void find_endpoint() {
    const std::string ignore = environment_.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
    if (http::equals_ignoring_case(ignore, "true")) return;
    FoundSetting& endpoint = settings_.endpoint;
    endpoint.text = first_variable({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}, endpoint.source);
    if (!endpoint.text.empty()) return;
    if (http::equals_ignoring_case(value_of(config_.profile, "ignore_configured_endpoint_urls"),
                                   "true"))
      return;
    const std::string services = value_of(config_.profile, "services");
    if (std::string url = value_of(config_.section("services " + services), "s3.endpoint_url");
        !url.empty()) {
      endpoint = {url, "services \"" + services + "\" in " + config_.path};
    } else if (url = value_of(config_.profile, "endpoint_url"); !url.empty()) {
      endpoint = {url, place(config_)};
    }
  }

  const Environment& environment_;
  const FileReader& read_file_;
  std::string profile_;
  ProfileFile config_, shared_;
  AwsSettings settings_;
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

std::string masked(const std::string& id) {
  if (id.size() < 12) return "****";
  return id.substr(0, 4) + "..." + id.substr(id.size() - 4);
}

}  // namespace

std::shared_ptr<CredentialProvider> static_credentials(Credentials credentials) {
  return std::make_shared<StaticProvider>(std::move(credentials));
}

Result<AwsSettings> resolve_aws_settings(const Environment& environment,
                                         const FileReader& read_file) {
  return Resolver(environment, read_file).run();
}

std::string AwsSettings::explain() const {
  const auto line = [](const char* name, const FoundSetting& setting) {
    return std::string(name) +
           (setting.text.empty() ? "not set" : setting.text + " (" + setting.source + ")") + "\n";
  };
  std::string out;
  if (credentials) {
    out = "credentials: " + masked(credentials->access_key_id) +
          (credentials->session_token.empty() ? "" : ", temporary") + " (" + credentials_source +
          ")\n";
  } else {
    out = "credentials: none found\n";
    for (const std::string& place : searched) out += "  looked at " + place + "\n";
  }
  return out + line("region: ", region) + line("endpoint: ", endpoint);
}

Status AwsSettings::missing_credentials() const {
  std::string message = "no credentials found. Looked at: ";
  for (std::size_t i = 0; i < searched.size(); ++i) message += (i > 0 ? "; " : "") + searched[i];
  return Status(
      Code::kDenied,
      message + ". Set them, or for a public bucket use --anonymous (anonymous=True in Python)");
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
