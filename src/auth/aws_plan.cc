// The planning half of AWS's credentials: botocore's order over variables and files, with nobody
// asked.
//
// - The first source that is configured is the plan, and half of one is an error: what somebody
//   has set is what he means.
// - Chains of source_profile end: `visited` has the way here, and a circle is named in the error.
// - Variables speak of the chosen profile only, not of those that it names as sources.
// - Keys and session tokens become header text, so line ends and spaces in them are refused here.
// - Credentials over plain HTTP come from this machine and the known container addresses only.
#include "auth/aws_plan.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "base/strings.h"
#include "http/fields.h"
#include "http/uri.h"

namespace headrace::auth {
namespace {

constexpr const char* kExport =
    "; or let the AWS CLI do it: credential_process = aws configure export-credentials --profile ";

/// Names of files in the SSO cache.
std::string sha1_hex(std::string_view text) {
  std::array<std::byte, 20> digest{};
  EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(digest.data()), nullptr,
             EVP_sha1(), nullptr);
  return to_hex(digest);
}

bool has_header_breakers(std::string_view text) {
  // They become header text: a stray line end would forge a header.
  return std::any_of(text.begin(), text.end(), [](char c) { return c <= ' ' || c > '~'; });
}

Result<AwsPlan> static_plan(Credentials keys, std::string source) {
  if (keys.access_key_id.empty() || keys.secret_access_key.empty()) {
    return Status(
        Code::kDenied,
        source + (keys.access_key_id.empty() ? " have a secret access key but no access key id"
                                             : " have an access key id but no secret access key"));
  }
  if (has_header_breakers(keys.access_key_id) || has_header_breakers(keys.session_token)) {
    return Status(Code::kDenied,
                  source + ": access key id or session token with a space or control character");
  }
  AwsPlan plan;
  plan.kind = AwsSource::kStatic;
  plan.source = std::move(source);
  plan.keys = std::move(keys);
  return plan;
}

/// Whom this machine belongs to, by its firmware: kNo keeps everybody who is not on EC2 from
/// waiting for a metadata service that is not there.
enum class OnEc2 : std::uint8_t { kYes, kNo, kUnknown };
OnEc2 is_on_ec2(const FileReader& read_file) {
  // Nitro: sys_vendor is "Amazon EC2"; Xen: the hypervisor's uuid starts with "ec2", and
  // bios_version ends with "amazon".
  // Source: AWS, "Detect whether a host is an EC2 instance".
  bool is_known = false;
  for (const char* path : {"/sys/class/dmi/id/sys_vendor", "/sys/class/dmi/id/bios_vendor",
                           "/sys/class/dmi/id/bios_version", "/sys/class/dmi/id/board_asset_tag",
                           "/sys/hypervisor/uuid"}) {
    const auto text = read_file(path);
    if (!text) continue;
    const std::string_view name(path);
    if (name.ends_with("uuid")) {
      if (text->starts_with("ec2") || text->starts_with("EC2")) return OnEc2::kYes;
    } else if (text->find("Amazon") != std::string::npos ||
               text->find("amazon") != std::string::npos ||
               (name.ends_with("board_asset_tag") && text->starts_with("i-"))) {
      return OnEc2::kYes;
    }
    is_known = is_known || name.ends_with("sys_vendor");
  }
  return is_known ? OnEc2::kNo : OnEc2::kUnknown;
}

class Planner {
 public:
  Planner(const Environment& environment, const Profiles& profiles, const FileReader& read_file,
          const AwsServices& services, std::vector<std::string>& searched)
      : environment_(environment),
        profiles_(profiles),
        read_file_(read_file),
        services_(services),
        searched_(searched) {}

  Result<AwsPlan> run() {
    HEADRACE_TRY_ASSIGN(AwsPlan plan, environment_keys());
    if (plan.kind != AwsSource::kNone) return plan;
    searched_.emplace_back(
        "environment variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: not set");
    const std::string& profile = profiles_.chosen();
    if (has_role(profile)) return role(profile, {profile});
    HEADRACE_TRY_ASSIGN(plan, of_profile(profile, true));
    if (plan.kind != AwsSource::kNone) return plan;
    HEADRACE_TRY_ASSIGN(plan, container());
    if (plan.kind != AwsSource::kNone) return plan;
    return instance();
  }

 private:
  using Step = Result<AwsPlan> (Planner::*)(const std::string&);

  Result<AwsPlan> environment_keys() const {
    Credentials keys{environment_.get("AWS_ACCESS_KEY_ID"),
                     environment_.get("AWS_SECRET_ACCESS_KEY"),
                     environment_.get("AWS_SESSION_TOKEN"), std::nullopt};
    if (keys.session_token.empty()) keys.session_token = environment_.get("AWS_SECURITY_TOKEN");
    if (keys.access_key_id.empty() && keys.secret_access_key.empty()) return AwsPlan();
    return static_plan(std::move(keys), "environment variables");
  }

  bool has_keys(const std::string& profile) const {
    return !profiles_.value(profile, "aws_access_key_id").empty() ||
           !profiles_.value(profile, "aws_secret_access_key").empty();
  }
  bool has_role(const std::string& profile) const {
    return !profiles_.value(profile, "role_arn").empty() &&
           profiles_.value(profile, "web_identity_token_file").empty();
  }

  /// What one profile gives, roles aside. Variables count for the chosen one, not for a
  /// source_profile.
  Result<AwsPlan> of_profile(const std::string& profile, bool use_variables) {
    HEADRACE_TRY_ASSIGN(AwsPlan plan, web_identity(profile, use_variables));
    for (Step step :
         {&Planner::sso, &Planner::shared_keys, &Planner::process, &Planner::config_keys}) {
      if (plan.kind != AwsSource::kNone) return plan;
      HEADRACE_TRY_ASSIGN(plan, (this->*step)(profile));
    }
    return plan;
  }

  Result<AwsPlan> web_identity(const std::string& profile, bool use_variables) {
    const auto setting = [&](const char* variable, const char* key) {
      if (use_variables) {
        if (std::string text = environment_.get(variable); !text.empty())
          return FoundSetting{text, variable};
      }
      return profiles_.find(profile, key);
    };
    const FoundSetting file = setting("AWS_WEB_IDENTITY_TOKEN_FILE", "web_identity_token_file");
    if (file.text.empty()) {
      if (use_variables) searched_.emplace_back("AWS_WEB_IDENTITY_TOKEN_FILE: not set");
      return AwsPlan();
    }
    const FoundSetting arn = setting("AWS_ROLE_ARN", "role_arn");
    if (arn.text.empty()) {
      return Status(Code::kDenied, file.source +
                                       " names a web identity token file, but there is no "
                                       "role; set AWS_ROLE_ARN or role_arn");
    }
    AwsPlan plan;
    plan.kind = AwsSource::kWebIdentity;
    plan.source = file.source;
    plan.role.arn = arn.text;
    plan.role.token_file = file.text;
    plan.role.session_name = setting("AWS_ROLE_SESSION_NAME", "role_session_name").text;
    HEADRACE_TRY_ASSIGN(plan.role.duration_s, duration(profile));
    return plan;
  }

  Result<std::uint32_t> duration(const std::string& profile) const {
    const FoundSetting found = profiles_.find(profile, "duration_seconds");
    if (found.text.empty()) return std::uint32_t{0};
    const auto value = parse_decimal<std::uint32_t>(found.text);
    if (!value || *value < 900 || *value > 43'200) {
      return Status(Code::kInvalidArgument,
                    found.source + ": duration_seconds must be 900 to 43200");
    }
    return *value;
  }

  Result<AwsPlan> sso(const std::string& profile) {
    const std::string place = profiles_.place(profile);
    AwsPlan plan;
    plan.sso.account_id = profiles_.value(profile, "sso_account_id");
    plan.sso.role_name = profiles_.value(profile, "sso_role_name");
    if (plan.sso.account_id.empty() && plan.sso.role_name.empty()) return AwsPlan();
    plan.kind = AwsSource::kSso;
    plan.source = place;
    plan.sso.session = profiles_.value(profile, "sso_session");
    plan.sso.login = "aws sso login --profile " + profile;
    plan.sso.start_url = profiles_.value(profile, "sso_start_url");
    plan.sso.region = profiles_.value(profile, "sso_region");
    if (!plan.sso.session.empty()) HEADRACE_TRY(join_sso_session(place, plan.sso));
    std::string missing;
    for (const auto& [name, text] : {std::pair("sso_start_url", &plan.sso.start_url),
                                     std::pair("sso_region", &plan.sso.region),
                                     std::pair("sso_account_id", &plan.sso.account_id),
                                     std::pair("sso_role_name", &plan.sso.role_name)}) {
      if (text->empty()) missing += std::string(missing.empty() ? "" : ", ") + name;
    }
    if (!missing.empty()) {
      return Status(Code::kDenied,
                    place + " uses SSO but lacks " + missing + "; run aws configure sso");
    }
    const std::string& key = plan.sso.session.empty() ? plan.sso.start_url : plan.sso.session;
    plan.sso.cache_file = profiles_.home() + "/.aws/sso/cache/" + sha1_hex(key) + ".json";
    return plan;
  }

  Status join_sso_session(const std::string& place, AwsSso& sso) const {
    const ConfigSection* section = profiles_.config().section("sso-session " + sso.session);
    if (section == nullptr) {
      return Status(Code::kDenied, place + " names the sso-session \"" + sso.session +
                                       "\", which is not in " + profiles_.config().described() +
                                       "; run aws configure sso");
    }
    for (const auto& [name, text] :
         {std::pair("sso_start_url", &sso.start_url), std::pair("sso_region", &sso.region)}) {
      const std::string of_session = value_of(section, name);
      if (!text->empty() && !of_session.empty() && *text != of_session) {
        return Status(Code::kDenied, place + " and its sso-session \"" + sso.session +
                                         "\" differ in " + name + "; remove it from the profile");
      }
      if (!of_session.empty()) *text = of_session;
    }
    return {};
  }

  Result<AwsPlan> keys_in(const std::string& profile, const ConfigSection* section,
                          const ProfileFile& file) {
    if (section == nullptr) {
      searched_.push_back(file.described() +
                          (file.exists ? ": no profile \"" + profile + "\"" : ""));
      return AwsPlan();
    }
    Credentials keys{value_of(section, "aws_access_key_id"),
                     value_of(section, "aws_secret_access_key"),
                     value_of(section, "aws_session_token"), std::nullopt};
    if (keys.session_token.empty()) keys.session_token = value_of(section, "aws_security_token");
    if (keys.access_key_id.empty() && keys.secret_access_key.empty()) {
      searched_.push_back(profiles_.place(profile, file) +
                          ": no aws_access_key_id, role_arn, sso_session, credential_process or "
                          "web_identity_token_file");
      return AwsPlan();
    }
    return static_plan(std::move(keys), profiles_.place(profile, file));
  }

  Result<AwsPlan> shared_keys(const std::string& profile) {
    return keys_in(profile, profiles_.in_shared(profile), profiles_.shared());
  }
  Result<AwsPlan> config_keys(const std::string& profile) {
    return keys_in(profile, profiles_.in_config(profile), profiles_.config());
  }

  Result<AwsPlan> process(const std::string& profile) {
    if (const FoundSetting login = profiles_.find(profile, "login_session"); !login.text.empty()) {
      return Status(Code::kDenied, login.source +
                                       ": login_session (aws login) is not supported; make a "
                                       "profile with credential_process = aws configure "
                                       "export-credentials --profile " +
                                       profile);
    }
    const FoundSetting found = profiles_.find(profile, "credential_process");
    if (found.text.empty()) return AwsPlan();
    AwsPlan plan;
    plan.kind = AwsSource::kProcess;
    plan.source = found.source;
    plan.command = found.text;
    return plan;
  }

  /// `visited`: profiles on the way here, this one last.
  Result<AwsPlan> role(const std::string& profile, std::vector<std::string> visited) {
    const FoundSetting arn = profiles_.find(profile, "role_arn");
    AwsPlan plan;
    plan.kind = AwsSource::kAssumeRole;
    plan.source = arn.source;
    plan.role.arn = arn.text;
    plan.role.session_name = profiles_.value(profile, "role_session_name");
    plan.role.external_id = profiles_.value(profile, "external_id");
    HEADRACE_TRY_ASSIGN(plan.role.duration_s, duration(profile));
    if (!profiles_.value(profile, "mfa_serial").empty()) {
      return Status(Code::kDenied, arn.source +
                                       ": its mfa_serial asks for a code, which cannot be typed in "
                                       "here; put temporary keys into the environment (aws sts "
                                       "assume-role)" +
                                       kExport + profile);
    }
    const std::string source_profile = profiles_.value(profile, "source_profile");
    const std::string source_name = profiles_.value(profile, "credential_source");
    if (source_profile.empty() == source_name.empty()) {
      return Status(Code::kDenied,
                    arn.source + ": role_arn needs " +
                        (source_profile.empty() ? "source_profile or credential_source"
                                                : "one of source_profile and credential_source, "
                                                  "not both"));
    }
    auto base = source_profile.empty()
                    ? named_source(source_name, arn.source)
                    : source_of_role(profile, source_profile, std::move(visited), arn.source);
    if (!base) return std::move(base).error();
    plan.base = std::make_shared<const AwsPlan>(*std::move(base));
    return plan;
  }

  Result<AwsPlan> source_of_role(const std::string& profile, const std::string& source_profile,
                                 std::vector<std::string> visited, const std::string& place) {
    if (!profiles_.exists(source_profile)) {
      return Status(Code::kDenied, place + ": its source_profile \"" + source_profile +
                                       "\" is neither in " + profiles_.config().described() +
                                       " nor in " + profiles_.shared().described());
    }
    const bool is_seen = std::find(visited.begin(), visited.end(), source_profile) != visited.end();
    // A profile may name itself when it has keys as well.
    if (is_seen && (source_profile != profile || !has_keys(source_profile))) {
      std::string circle;
      for (const std::string& name : visited) circle += name + " -> ";
      return Status(Code::kDenied, place + ": source_profile goes in a circle: " + circle +
                                       source_profile + "; let one of them have keys");
    }
    visited.push_back(source_profile);
    if (has_role(source_profile) && !has_keys(source_profile))
      return role(source_profile, std::move(visited));
    HEADRACE_TRY_ASSIGN(AwsPlan plan, of_profile(source_profile, false));
    if (plan.kind == AwsSource::kNone) {
      return Status(Code::kDenied, place + ": its source_profile \"" + source_profile +
                                       "\" has no credentials (no keys, SSO, credential_process, "
                                       "role)");
    }
    return plan;
  }

  Result<AwsPlan> named_source(const std::string& name, const std::string& place) {
    const std::string what = place + ": credential_source = " + name;
    if (http::equals_ignoring_case(name, "Environment")) {
      HEADRACE_TRY_ASSIGN(AwsPlan plan, environment_keys());
      if (plan.kind == AwsSource::kNone)
        return Status(Code::kDenied, what + ", but AWS_ACCESS_KEY_ID is not set");
      return plan;
    }
    if (http::equals_ignoring_case(name, "EcsContainer")) {
      HEADRACE_TRY_ASSIGN(AwsPlan plan, container());
      if (plan.kind == AwsSource::kNone) {
        return Status(Code::kDenied, what +
                                         ", but neither AWS_CONTAINER_CREDENTIALS_RELATIVE_URI "
                                         "nor AWS_CONTAINER_CREDENTIALS_FULL_URI is set");
      }
      return plan;
    }
    if (http::equals_ignoring_case(name, "Ec2InstanceMetadata")) {
      AwsPlan plan = instance();
      if (plan.kind == AwsSource::kNone)
        return Status(Code::kDenied, what + ", but " + searched_.back());
      return plan;
    }
    return Status(Code::kDenied, what +
                                     " is not one of Environment, Ec2InstanceMetadata, "
                                     "EcsContainer");
  }

  Result<AwsPlan> container() {
    const std::string relative = environment_.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const std::string full = environment_.get("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    if (relative.empty() && full.empty()) {
      searched_.emplace_back(
          "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, AWS_CONTAINER_CREDENTIALS_FULL_URI: not set");
      return AwsPlan();
    }
    AwsPlan plan;
    plan.kind = AwsSource::kContainer;
    plan.source = relative.empty() ? "AWS_CONTAINER_CREDENTIALS_FULL_URI"
                                   : "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
    plan.container.url = relative.empty() ? full : "http://169.254.170.2" + relative;
    plan.container.token = environment_.get("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    plan.container.token_file = environment_.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const std::string url = plan.container.url.substr(0, plan.container.url.find('?'));
    auto parsed = http::parse_http_url(url);
    if (!parsed) return std::move(parsed).error().annotate(plan.source);
    if (!parsed->use_tls && !is_allowed_host(parsed->host)) {
      return Status(Code::kDenied,
                    plan.source +
                        ": credentials over plain http come only from this machine or "
                        "169.254.170.2, 169.254.170.23, fd00:ec2::23; \"" +
                        parsed->host + "\" needs https");
    }
    return plan;
  }

  static bool is_allowed_host(std::string_view host) {
    constexpr std::array<std::string_view, 5> kHosts = {"169.254.170.2", "169.254.170.23",
                                                        "fd00:ec2::23", "localhost", "::1"};
    if (std::find(kHosts.begin(), kHosts.end(), host) != kHosts.end()) return true;
    // 127.0.0.0/8 as an address, not a name that starts alike.
    return host.starts_with("127.") &&
           host.find_first_not_of("0123456789.") == std::string_view::npos;
  }

  AwsPlan instance() {
    AwsPlan plan;
    plan.source = "instance metadata service at " + services_.metadata_endpoint;
    if (services_.is_metadata_disabled) {
      searched_.emplace_back("instance metadata service: disabled by AWS_EC2_METADATA_DISABLED");
      return AwsPlan();
    }
    const bool is_default = services_.metadata_endpoint == AwsServices().metadata_endpoint;
    const OnEc2 on_ec2 = is_default ? is_on_ec2(read_file_) : OnEc2::kYes;
    if (on_ec2 == OnEc2::kNo) {
      searched_.emplace_back(
          "instance metadata service: not asked, by its firmware this machine is not one of EC2 "
          "(set AWS_EC2_METADATA_SERVICE_ENDPOINT to ask it all the same)");
      return AwsPlan();
    }
    plan.is_instance_certain = on_ec2 == OnEc2::kYes;
    plan.kind = AwsSource::kInstance;
    return plan;
  }

  const Environment& environment_;
  const Profiles& profiles_;
  const FileReader& read_file_;
  const AwsServices& services_;
  std::vector<std::string>& searched_;
};

}  // namespace

std::string_view source_name(AwsSource source) noexcept {
  constexpr std::string_view kNames[] = {"none", "keys",    "web identity", "role",
                                         "sso",  "process", "container",    "instance"};
  return kNames[static_cast<std::size_t>(source)];
}

Result<AwsPlan> plan_credentials(const Environment& environment, const Profiles& profiles,
                                 const FileReader& read_file, const AwsServices& services,
                                 std::vector<std::string>& searched) {
  return Planner(environment, profiles, read_file, services, searched).run();
}

}  // namespace headrace::auth
