#pragma once
/// \file
/// Store URLs: "s3://bucket/prefix", "file:///data", "/data", "memory://name". Pure.
#include <functional>
#include <string>
#include <string_view>

#include "headrace/status.h"

namespace headrace {

/// A store URL in parts.
struct StoreUrl {
  std::string scheme;  ///< Lower case; "" for a plain path.
  std::string bucket;  ///< s3: bucket; memory: name; empty for file and plain paths.
  std::string path;    ///< s3, memory: prefix without slashes at its ends; file and plain: the path
                       ///< as written.
  std::string root;    ///< The URL without trailing slash: the start of every object's full name.
};

/// Splits a URL. Keys are written raw, not escaped: "s3://bucket/a b%20c" means exactly that.
/// Errors: kInvalidArgument (empty, no bucket, control characters, query or user info where they
/// mean nothing).
Result<StoreUrl> parse_store_url(std::string_view text);

/// kInvalidArgument: a path by its letters that was meant as a URL, most likely: "s3:/bucket",
/// "s3//bucket", " s3://bucket". "hf//name" is a path where there is a directory "hf", as `exists`
/// says: programs join names so. With a colon it never is.
Status refuse_mistyped(std::string_view text,
                       const std::function<bool(const std::string&)>& exists);

/// kInvalidArgument: the vendor has no buckets of such a name. `rule`: what one is made of.
Status bad_bucket_name(const StoreUrl& url, std::string_view rule);

}  // namespace headrace
