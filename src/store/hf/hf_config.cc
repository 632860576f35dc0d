#include "store/hf/hf_config.h"

#include <algorithm>
#include <optional>

#include "http/uri.h"
#include "store/loopback.h"

namespace headrace::hf {
namespace {

constexpr std::string_view kHub = "https://huggingface.co";
constexpr std::string_view kForm = "hf://datasets/ORG/NAME[@REVISION][/FOLDER]";

Status bad_url(const StoreUrl& url, const std::string& why) {
  return Status(Code::kInvalidArgument, http::without_secrets(url.root) + ": " + why +
                                            "; it must look like " + std::string(kForm));
}

/// The characters of names of accounts and repositories.
bool is_name(std::string_view text) noexcept {
  if (text.empty() || text.size() > 96) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

std::string_view take_part(std::string_view& path) {
  const std::string_view part = path.substr(0, path.find('/'));
  path.remove_prefix(std::min(part.size() + 1, path.size()));
  return part;
}

/// The revision at the start of `rest`, which is what stands behind "@".
Result<std::string> take_revision(std::string_view& rest) {
  for (const std::string_view start : {"refs/convert/", "refs/pr/"}) {
    if (rest == start.substr(0, start.size() - 1)) return std::string();
    if (!rest.starts_with(start)) continue;
    rest.remove_prefix(start.size());
    return std::string(start) + std::string(take_part(rest));
  }
  return http::decode(take_part(rest));
}

/// How the hub names a kind of repository in its paths.
struct Kind {
  std::string_view first;  ///< Of the URL; empty: any other first part.
  std::string_view api;
  std::string_view page;
};
constexpr Kind kKinds[] = {{"datasets", "/api/datasets/", "/datasets/"},
                           {"spaces", "/api/spaces/", "/spaces/"},
                           {"", "/api/models/", "/"}};

/// "ORG/NAME" at the start of `rest`; "NAME", as old repositories are called, where nothing follows
/// or a revision does: a path behind it could not be told from the other form.
Result<std::string> take_repository(const StoreUrl& url, std::string_view& rest) {
  std::size_t end = std::min(rest.find_first_of("@/"), rest.size());
  if (end < rest.size() && rest[end] == '/') {
    if (!is_name(rest.substr(0, end))) return bad_url(url, "no organisation and name");
    end = std::min(rest.find_first_of("@/", end + 1), rest.size());
  }
  const std::string_view repository = rest.substr(0, end);
  if (!is_name(repository.substr(repository.find('/') + 1)))
    return bad_url(url, "no organisation and name");
  rest.remove_prefix(end);
  return std::string(repository);
}

/// Repository, revision and folder.
Status read_url(const StoreUrl& url, HfConfig& config) {
  if (url.bucket == "buckets") {
    return Status(Code::kUnsupported, http::without_secrets(url.root) +
                                          ": buckets of the hub are not read; use " +
                                          std::string(kForm));
  }
  const std::string whole = url.path.empty() ? url.bucket : url.bucket + "/" + url.path;
  const Kind* kind = kKinds;
  while (!kind->first.empty() && kind->first != url.bucket) ++kind;
  std::string_view rest = kind->first.empty() ? std::string_view(whole) : url.path;
  HEADRACE_TRY_ASSIGN(const std::string repository, take_repository(url, rest));
  const bool has_revision = rest.starts_with('@');
  if (!rest.empty()) rest.remove_prefix(1);
  config.revision = "main";
  if (has_revision) {
    auto revision = take_revision(rest);
    if (!revision || revision->empty() || revision->ends_with('/'))
      return bad_url(url, "the revision behind @ is none");
    config.revision = *std::move(revision);
  }
  config.page_url = config.endpoint_url + std::string(kind->page) + repository;
  config.api_path += std::string(kind->api) + repository;
  config.file_path += std::string(kind->page) + repository + "/resolve";
  config.prefix = rest.empty() ? "" : std::string(rest) + "/";
  if (!rest.empty()) HEADRACE_TRY(check_hf_key(rest).annotate(http::without_secrets(url.root)));
  return {};
}

Status read_endpoint(const StoreOptions& options, const Environment& environment,
                     HfConfig& config) {
  std::string text = options.endpoint;
  config.endpoint_source = "endpoint option";
  if (text.empty()) {
    text = environment.get("HF_ENDPOINT");
    config.endpoint_source = "HF_ENDPOINT";
  }
  if (text.empty()) {
    text = kHub;
    config.endpoint_source = "default";
  }
  auto parsed = http::parse_http_url(text);
  if (!parsed) return std::move(parsed).error().annotate(config.endpoint_source);
  config.endpoint = {parsed->host, parsed->port, parsed->use_tls};
  config.host_field = parsed->authority();
  config.endpoint_url =
      (parsed->use_tls ? "https://" : "http://") + config.host_field + parsed->path;
  config.api_path = config.file_path = http::encode(parsed->path, http::Slash::kKeep);
  config.trusted = TrustedHosts(parsed->host, options.trusted_hosts);
  return {};
}

std::string trimmed(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return std::string(text);
}

/// As the hub's own tools read a switch.
bool is_on(std::string value) {
  for (char& c : value) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

/// A folder or file that a variable names; "~" is the user's home. Empty: not set.
std::string path_of(const Environment& environment, const char* variable) {
  const std::string path = environment.get(variable);
  return path.starts_with("~/") ? environment.get("HOME") + path.substr(1) : path;
}

/// Where the hub's own tools keep the token of a login.
std::string token_file(const Environment& environment) {
  if (std::string path = path_of(environment, "HF_TOKEN_PATH"); !path.empty()) return path;
  if (const std::string home = path_of(environment, "HF_HOME"); !home.empty())
    return home + "/token";
  std::string cache = path_of(environment, "XDG_CACHE_HOME");
  if (cache.empty()) {
    const std::string home = environment.get("HOME");
    if (home.empty()) return {};
    cache = home + "/.cache";
  }
  return cache + "/huggingface/token";
}

void find_token(const Environment& environment, const auth::FileReader& read_file,
                HfConfig& config) {
  config.token_source = "anonymous";
  if (is_on(environment.get("HF_HUB_DISABLE_IMPLICIT_TOKEN"))) {
    config.searched.emplace_back("HF_HUB_DISABLE_IMPLICIT_TOKEN: set, so no token is looked for");
    return;
  }
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    config.token = trimmed(environment.get(name));
    config.searched.push_back(std::string(name) +
                              (config.token.empty() ? ": not set" : ": a token"));
    if (config.token.empty()) continue;
    config.token_source = name;
    return;
  }
  const std::string path = token_file(environment);
  const auto text = path.empty() ? std::nullopt : read_file(path);
  if (text) config.token = trimmed(*text);
  if (!path.empty())
    config.searched.push_back(path + (config.token.empty() ? ": no token" : ": a token"));
  if (!config.token.empty()) config.token_source = path;
}

/// Who says so wants no connection to be tried.
Status check_online(const HfConfig& config, const Environment& environment) {
  for (const char* name : {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}) {
    if (!is_on(environment.get(name))) continue;
    return Status(Code::kUnsupported, http::without_secrets(config.root_url) + ": " + name +
                                          " is set, so the hub is not asked; unset it, or name "
                                          "a copy of the files");
  }
  return {};
}

Status check_token(const HfConfig& config) {
  const bool is_fit = std::all_of(config.token.begin(), config.token.end(),
                                  [](char c) { return c > 0x20 && c < 0x7f; });
  if (!is_fit) {
    return Status(Code::kInvalidArgument,
                  config.token_source + ": a token has no blanks and control characters");
  }
  if (config.token.empty() || config.endpoint.use_tls || is_loopback_host(config.endpoint.host))
    return {};
  return Status(Code::kDenied, config.root_url + ": the token (" + config.token_source +
                                   ") is not sent over plain HTTP to " + config.host_field +
                                   "; use an https endpoint, or anonymous");
}

}  // namespace

bool is_commit(std::string_view revision) noexcept {
  return revision.size() == 40 && std::all_of(revision.begin(), revision.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

Result<HfConfig> make_hf_config(const StoreOptions& options, const StoreUrl& url,
                                const Environment& environment, const auth::FileReader& read_file) {
  HfConfig config;
  config.root_url = url.root;
  HEADRACE_TRY(check_online(config, environment));
  HEADRACE_TRY(read_endpoint(options, environment, config));
  HEADRACE_TRY(read_url(url, config));
  if (options.anonymous) {
    config.token_source = "anonymous";
    return config;
  }
  find_token(environment, read_file, config);
  HEADRACE_TRY(check_token(config));
  return config;
}

Status check_hf_key(std::string_view key) {
  if (key.empty()) return Status(Code::kInvalidArgument, "the key is empty");
  if (key.find('\0') != std::string_view::npos)
    return Status(Code::kInvalidArgument, "the key has a NUL character");
  // A server would take such a path for another one.
  for (std::string_view rest = key; !rest.empty();) {
    const std::size_t size = rest.find('/');
    const std::string_view part = rest.substr(0, size);
    if (part.empty() || part == "." || part == "..") {
      return Status(Code::kInvalidArgument,
                    "no file of a repository can have this path: a part is empty, \".\" or \"..\"");
    }
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
  }
  return {};
}

}  // namespace headrace::hf
