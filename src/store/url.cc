#include "store/url.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "http/uri.h"

namespace headrace {
namespace {

bool is_scheme(std::string_view text) noexcept {
  if (text.empty()) return false;
  for (char c : text) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool is_other = (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
    if (!is_letter && !is_other) return false;
  }
  return true;
}

char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

/// A URL that is none by its letters.
struct Mistyped {
  std::string scheme;  ///< Lower case; "": none of this kind.
  std::string_view rest;
  bool has_colon = false;
};

/// "s3:/bucket", "s3//bucket". "s3:" alone is what "s3:/key" leaves for the folder.
Mistyped split_mistyped(std::string_view text) {
  static constexpr std::string_view kSchemes[] = {"s3",   "gs",    "gcs",  "az",       "azure",
                                                  "abfs", "abfss", "wasb", "wasbs",    "hf",
                                                  "http", "https", "file", "memcached"};
  const std::size_t end = text.find_first_of(":/");
  if (end == std::string_view::npos || (text[end] == '/' && !text.substr(end).starts_with("//")))
    return {};
  if (text[end] == ':' && end + 1 < text.size() && text[end + 1] != '/') return {};
  std::string scheme(text.substr(0, end));
  std::transform(scheme.begin(), scheme.end(), scheme.begin(), lower);
  if (std::find(std::begin(kSchemes), std::end(kSchemes), scheme) == std::end(kSchemes)) return {};
  const std::size_t rest = text.find_first_not_of(":/", end);
  return {std::move(scheme), rest == std::string_view::npos ? "" : text.substr(rest),
          text[end] == ':'};
}

bool is_url(std::string_view text) noexcept {
  const std::size_t colon = text.find("://");
  return colon != std::string_view::npos && is_scheme(text.substr(0, colon));
}

std::string_view trim_slashes(std::string_view text) noexcept {
  while (text.starts_with('/')) text.remove_prefix(1);
  while (text.ends_with('/')) text.remove_suffix(1);
  return text;
}

Status bad(std::string_view text, const std::string& why) {
  return Status(Code::kInvalidArgument,
                "store URL \"" + http::without_secrets(text) + "\": " + why);
}

}  // namespace

Result<StoreUrl> parse_store_url(std::string_view text) {
  if (text.empty()) return Status(Code::kInvalidArgument, "the store URL is empty");
  for (char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      return bad("...", "it has a control character");
  }
  StoreUrl url;
  const std::size_t colon = text.find("://");
  if (!is_url(text)) {
    std::string_view path = text;
    while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
    url.path = path;
    url.root = path;
    return url;
  }
  for (char c : text.substr(0, colon)) url.scheme.push_back(lower(c));
  std::string_view rest = text.substr(colon + 3);
  if (url.scheme == "file") {
    if (rest.starts_with("localhost/")) rest.remove_prefix(9);
    if (!rest.starts_with('/'))
      return bad(text, "a file URL must look like file:///directory (three slashes)");
    while (rest.size() > 1 && rest.ends_with('/')) rest.remove_suffix(1);
    url.path = rest;
    url.root = "file://" + url.path;
    return url;
  }
  const std::size_t slash = rest.find('/');
  url.bucket = rest.substr(0, slash);
  if (url.bucket.empty())
    return bad(text, "no bucket; it must look like " + url.scheme + "://bucket/prefix");
  if (slash != std::string_view::npos) url.path = trim_slashes(rest.substr(slash));
  url.root = url.scheme + "://" + url.bucket + (url.path.empty() ? "" : "/" + url.path);
  return url;
}

Status refuse_mistyped(std::string_view text,
                       const std::function<bool(const std::string&)>& exists) {
  if (is_url(text)) return {};
  const std::string_view trimmed =
      text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  const auto [scheme, rest, has_colon] = split_mistyped(trimmed);
  std::string meant(trimmed);
  if (!is_url(trimmed)) {
    if (scheme.empty() || (!has_colon && exists(std::string(text.substr(0, text.find('/'))))))
      return {};
    meant = scheme + (scheme == "file" ? ":///" : "://") + std::string(rest);
  }
  // Shown as what was meant: only that is known to be shown without secrets.
  return Status(Code::kInvalidArgument,
                "did you mean \"" + http::without_secrets(meant) +
                    "\"? As it was written it names a directory here; begin with ./ if that is "
                    "meant");
}

Status bad_bucket_name(const StoreUrl& url, std::string_view rule) {
  // A user and password that stand where the bucket should are part of it.
  const std::string root = http::without_secrets(url.root);
  const std::size_t begin = root.find("://") + 3;
  const std::string bucket = root.substr(begin, root.find('/', begin) - begin);
  return Status(Code::kInvalidArgument,
                root + ": \"" + bucket + "\" is not a bucket name (" + std::string(rule) + ")");
}

}  // namespace headrace
