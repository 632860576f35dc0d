#include "headrace/whoami.h"

#include "http/date.h"
#include "http/uri.h"
#include "store/azure/azure_store.h"
#include "store/identity.h"
#include "store/service_client.h"

namespace headrace {
namespace {

void identify_local(const StoreUrl& url, Identity& out) {
  out.vendor = url.scheme == "memory" ? "memory" : "file";
  out.credential = "not needed";
}

void identify_web(Identity& out) {
  out.vendor = "http";
  out.credential = "anonymous";
  out.settings = {{"endpoint", out.url, "url"}};
}

Status identify_vendor(const IdentityRequest& request, Identity& out) {
  const std::string& scheme = request.url.scheme;
  if (scheme == "s3") {
    out.vendor = "s3";
    return s3::identify(request, out);
  }
  if (scheme == "gs" || scheme == "gcs") {
    out.vendor = "gcs";
    return gcs::identify(request, out);
  }
  if (azure::is_azure_url(request.url)) {
    out.vendor = "azure";
    return azure::identify(request, out);
  }
  if (scheme == "hf") {
    out.vendor = "hf";
    return hf::identify(request, out);
  }
  if (scheme == "http" || scheme == "https") {
    identify_web(out);
  } else if (scheme.empty() || scheme == "file" || scheme == "memory") {
    identify_local(request.url, out);
  } else {
    return Status(Code::kUnsupported, http::without_secrets(request.url.root) + ": the scheme \"" +
                                          scheme + "\" is not supported");
  }
  return {};
}

/// One listing of one name: the cheapest request that needs the credentials.
Status check_listing(const StoreOptions& options, const Environment& environment,
                     const CallOptions& call, Identity& out) {
  auto store = open_store(options, environment);
  Status failure;
  if (!store) {
    failure = std::move(store).error();
  } else if (!(*store)->traits().can_list) {
    out.check = "this store has no listings";
    return {};
  } else {
    ListRequest request;
    request.page_size = 1;
    request.delimiter = "/";  // Some stores list all that a listing may name.
    auto page = (*store)->list(request, call);
    if (!page) failure = std::move(page).error();
  }
  if (failure.code() == Code::kCancelled) return failure;
  out.can_list = failure.ok();
  out.check = failure.ok() ? "listed the root" : std::string(failure.message());
  return {};
}

}  // namespace

Result<Identity> describe_identity(const StoreOptions& store, const Environment& environment,
                                   const IdentityOptions& options) {
  HEADRACE_TRY_ASSIGN(const StoreUrl url, parse_store_url(store.url));
  Identity identity;
  // Only web and Azure URLs carry secrets; a question mark in a key of another store is a name.
  const bool is_web = url.scheme == "http" || url.scheme == "https";
  identity.url = is_web ? http::without_secrets(url.root) : url.root;
  const IdentityRequest request{store,
                                url,
                                environment,
                                options,
                                create_service_client(store, url, environment),
                                auth::local_file_reader()};
  HEADRACE_TRY(identify_vendor(request, identity));
  if (options.check) HEADRACE_TRY(check_listing(store, environment, options.call, identity));
  return identity;
}

std::string Identity::explain() const {
  std::string out;
  const auto line = [&out](std::string name, const std::string& text) {
    name.resize(std::max<std::size_t>(name.size() + 1, 12), ' ');
    out += name + text + "\n";
  };
  line("url", url);
  line("store", vendor);
  for (const IdentitySetting& setting : settings) {
    if (setting.value.empty()) continue;
    line(setting.name,
         setting.value + (setting.source.empty() ? "" : "  (" + setting.source + ")"));
  }
  line("credential", credential + (id.empty() ? "" : " " + id) +
                         (credential_source.empty() ? "" : "  (" + credential_source + ")"));
  if (expires) line("expires", http::format_http_date(*expires));
  if (!checked_name.empty()) line("name", checked_name);
  if (!problem.empty()) line("problem", problem);
  for (const std::string& place : searched) line("looked at", place);
  if (can_list) line("check", (*can_list ? "ok: " : "failed: ") + check);
  return out;
}

}  // namespace headrace
