#pragma once
/// \file
/// A plain web server as a store: from its URL to host, path and query. Pure.
#include <string>
#include <string_view>
#include <vector>

#include "headrace/status.h"
#include "headrace/store.h"
#include "store/http_protocol.h"
#include "store/trusted_hosts.h"

namespace headrace::web {

/// Everything that requests to one root have in common.
struct WebConfig {
  std::string root_url;  ///< Without user, password and query: for messages.
  HttpEndpoint endpoint;
  std::string host_field;     ///< For the Host field.
  std::string base_path;      ///< As it was written, escaped; before "/key". "" or "/a/b".
  std::string query;          ///< As it was written, sent with every request (signatures). Secret.
  std::string authorization;  ///< "Basic ...", from user:password@. Secret.
  std::vector<std::string> signatures;  ///< Parts of `query` that are secrets: "sig=...".
  /// A hash of the user and of what the query asks for; empty: neither is there. Two that differ
  /// may get different objects of one URL.
  std::string variant;
  TrustedHosts trusted;
};

/// "http(s)://[user:password@]host[:port][/path][?query]"; path and query are escaped already, as
/// in every URL. Errors: kInvalidArgument; the message has neither password nor query.
Result<WebConfig> make_web_config(const StoreOptions& options);

}  // namespace headrace::web
