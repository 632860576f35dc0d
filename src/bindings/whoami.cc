#include "headrace/whoami.h"

#include <optional>

#include "bind.h"
#include "errors.h"
#include "headrace/buckets.h"
#include "process.h"
#include "store_options.h"
#include "waiting.h"

namespace headrace {
namespace {

nb::list settings_list(const Identity& identity) {
  nb::list out;
  for (const IdentitySetting& setting : identity.settings) {
    nb::dict entry;
    entry["name"] = setting.name;
    entry["value"] = setting.value;
    entry["source"] = setting.source;
    out.append(entry);
  }
  return out;
}

nb::dict to_dict(const Identity& identity) {
  nb::dict out;
  out["url"] = identity.url;
  out["vendor"] = identity.vendor;
  out["settings"] = settings_list(identity);
  out["credential"] = identity.credential;
  out["credential_source"] = identity.credential_source;
  out["id"] = identity.id;
  out["expires"] =
      identity.expires ? std::optional(identity.expires->time_since_epoch().count()) : std::nullopt;
  out["searched"] = identity.searched;
  out["problem"] = identity.problem;
  out["checked_name"] = identity.checked_name;
  out["can_list"] = identity.can_list;
  out["check"] = identity.check;
  out["text"] = identity.explain();
  return out;
}

nb::dict describe(const std::string& url, const nb::dict& fields,
                  const std::map<std::string, std::string>& overrides, bool fetch, bool check) {
  const StoreOptions options = parse_store_options(url, fields);
  Environment environment = capture_environment();
  for (const auto& [name, value] : overrides) environment.variables[name] = value;
  return to_dict(value_or_raise(run_interruptible([&](std::stop_token stop) {
                                  IdentityOptions how;
                                  how.fetch = fetch;
                                  how.check = check;
                                  how.call.stop = std::move(stop);
                                  return describe_identity(options, environment, how);
                                }),
                                url));
}

/// (URL, seconds since 1970 or None) of each.
nb::list buckets(const std::string& url, const nb::dict& fields,
                 const std::map<std::string, std::string>& overrides) {
  const StoreOptions options = parse_store_options(url, fields);
  const Environment environment = make_environment(overrides);
  const auto found = value_or_raise(run_interruptible([&](std::stop_token stop) {
                                      return list_buckets(options, environment,
                                                          CallOptions{.stop = std::move(stop)});
                                    }),
                                    url);
  nb::list out;
  for (const BucketInfo& bucket : found) {
    const auto created =
        bucket.created_unix_s == 0 ? std::nullopt : std::optional(bucket.created_unix_s);
    out.append(nb::make_tuple(bucket.url, created));
  }
  return out;
}

}  // namespace

void bind_whoami(nb::module_& m) {
  m.def("describe_identity", &describe, nb::arg("url"), nb::arg("options"), nb::arg("environment"),
        nb::arg("fetch") = true, nb::arg("check") = false);
  m.def(
      "is_bucket_owner", [](const std::string& url) { return is_bucket_owner(url); },
      nb::arg("url"));
  m.def("list_buckets", &buckets, nb::arg("url"), nb::arg("options"), nb::arg("environment"));
}

}  // namespace headrace
