#pragma once
/// \file
/// A repository of the Hugging Face hub as a store: from its URL and the environment to host, paths
/// and token. Pure but for the token's file.
#include <string>
#include <vector>

#include "auth/credentials.h"
#include "headrace/environment.h"
#include "headrace/status.h"
#include "headrace/store.h"
#include "store/http_protocol.h"
#include "store/trusted_hosts.h"
#include "store/url.h"

namespace headrace::hf {

/// A revision that is 40 hex digits: what does not change under readers.
bool is_commit(std::string_view revision) noexcept;

/// Everything that requests to one repository have in common.
struct HfConfig {
  std::string root_url;  ///< "hf://datasets/org/name@rev/folder".
  HttpEndpoint endpoint;
  std::string host_field;       ///< For the Host field.
  std::string endpoint_url;     ///< "https://huggingface.co", for messages.
  std::string endpoint_source;  ///< "HF_ENDPOINT", "default", ...
  std::string api_path;         ///< "/api/datasets/org/name", escaped.
  std::string file_path;        ///< "/datasets/org/name/resolve", escaped.
  std::string page_url;         ///< The repository's page, for people.
  std::string revision;         ///< "main", "refs/convert/parquet", a commit.
  std::string prefix;           ///< "" or "folder/": before every key.
  std::string token;            ///< Empty: none. Secret.
  std::string token_source;     ///< "HF_TOKEN", "/home/u/.cache/huggingface/token", "anonymous".
  std::vector<std::string> searched;  ///< Places looked at for a token, with what was there.
  TrustedHosts trusted;
};

/// "hf://datasets/ORG/NAME[@REV][/FOLDER]", "hf://spaces/..." and "hf://ORG/NAME..." (a model); of
/// a repository without organisation "NAME" or "NAME@REV...". REV with slashes is written escaped
/// ("refs%2Fpr%2F1") or is one of "refs/convert/x", "refs/pr/N". No token is no error. Errors:
/// kInvalidArgument (URL, endpoint, a token that is none), kUnsupported (buckets; HF_HUB_OFFLINE is
/// set), kDenied (a token that would go over plain HTTP).
Result<HfConfig> make_hf_config(const StoreOptions& options, const StoreUrl& url,
                                const Environment& environment, const auth::FileReader& read_file);

/// kInvalidArgument for what cannot be the path of a file in a repository.
Status check_hf_key(std::string_view key);

}  // namespace headrace::hf
