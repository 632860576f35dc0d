// Rules: "POST Object" and "POST policy" in the documentation of S3. A form is parsed up to its
// file, because S3 ignores fields behind it; names of fields are compared in lower case. The
// policy proves who wrote the form, so it is checked in the order in which nothing is read from it
// that is not signed: signature, syntax, expiration, conditions, and last that every field of the
// form was spoken of: one that was not would be a field of the client's own making.
#include "sim/post_form.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "base/strings.h"
#include "http/date.h"
#include "http/fields.h"
#include "sim/checksum.h"

namespace headrace::sim {
namespace {

using Json = nlohmann::json;

std::string hmac(const EVP_MD* digest, std::string_view key, std::string_view text) {
  unsigned char out[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  ::HMAC(digest, key.data(), static_cast<int>(key.size()),
         reinterpret_cast<const unsigned char*>(text.data()), text.size(), out, &length);
  return std::string(reinterpret_cast<const char*>(out), length);
}

/// The value of `name` in a header's parameters: form-data; name="key"; filename="x.txt".
std::string_view quoted_parameter(std::string_view value, std::string_view name) {
  const std::string wanted = "; " + std::string(name) + "=";
  const std::size_t at = value.find(wanted);
  if (at == std::string_view::npos) return {};
  value.remove_prefix(at + wanted.size());
  if (!value.starts_with('"')) return value.substr(0, value.find(';'));
  value.remove_prefix(1);
  return value.substr(0, value.find('"'));
}

/// Takes one part off `body`, which begins behind a delimiter. False when malformed.
bool next_part(std::string_view& body, std::string_view delimiter, std::string_view& headers,
               std::string_view& content) {
  const std::size_t end_of_headers = body.find("\r\n\r\n");
  if (end_of_headers == std::string_view::npos) return false;
  headers = body.substr(0, end_of_headers + 2);
  body.remove_prefix(end_of_headers + 4);
  const std::size_t end = body.find(delimiter);
  if (end == std::string_view::npos) return false;
  content = body.substr(0, end);
  body.remove_prefix(end + delimiter.size());
  return true;
}

/// Browsers send the whole path of a file, or only its name.
std::string_view base_name(std::string_view file_name) {
  return file_name.substr(file_name.find_last_of("/\\") + 1);
}

void fill_in_file_name(std::string_view file_name, std::string& key) {
  constexpr std::string_view kVariable = "${filename}";
  for (std::size_t at = key.find(kVariable); at != std::string::npos;
       at = key.find(kVariable, at + file_name.size())) {
    key.replace(at, kVariable.size(), file_name);
  }
}

S3Code check_signature_v4(const PostForm& form, const auth::Credentials& account) {
  std::string_view rest = form.field("x-amz-credential");  // KEY/DATE/REGION/s3/aws4_request
  std::string_view scope[5];
  for (std::string_view& word : scope) {
    const std::size_t slash = std::min(rest.find('/'), rest.size());
    word = rest.substr(0, slash);
    rest.remove_prefix(std::min(slash + 1, rest.size()));
  }
  if (scope[0] != account.access_key_id) return S3Code::kInvalidAccessKeyId;
  std::string key = "AWS4" + account.secret_access_key;
  for (int i = 1; i < 5; ++i) key = hmac(EVP_sha256(), key, scope[i]);
  const std::string raw = hmac(EVP_sha256(), key, form.field("policy"));
  const bool is_good = form.field("x-amz-signature") == to_hex(std::as_bytes(std::span(raw)));
  return is_good ? S3Code::kNone : S3Code::kSignatureDoesNotMatch;
}

S3Code check_signature(const PostForm& form, const auth::Credentials& account) {
  if (form.field("policy").empty()) return S3Code::kAccessDenied;
  if (form.field("x-amz-security-token") != account.session_token) return S3Code::kInvalidToken;
  if (!form.field("x-amz-signature").empty()) return check_signature_v4(form, account);
  if (form.field("awsaccesskeyid").empty() || form.field("signature").empty()) {
    return S3Code::kInvalidArgument;
  }
  if (form.field("awsaccesskeyid") != account.access_key_id) return S3Code::kInvalidAccessKeyId;
  const std::string raw = hmac(EVP_sha1(), account.secret_access_key, form.field("policy"));
  return form.field("signature") == to_base64(raw) ? S3Code::kNone : S3Code::kSignatureDoesNotMatch;
}

/// Fields that no condition needs to allow.
bool is_free(std::string_view name) {
  return name == "awsaccesskeyid" || name == "signature" || name == "x-amz-signature" ||
         name == "policy" || name == "file" || name.starts_with("x-ignore-") ||
         name.starts_with("x-amz-checksum-");
}

class Conditions {
 public:
  Conditions(const PostForm& form, std::string_view bucket) : form_(form), bucket_(bucket) {}

  S3Code apply(const Json& condition) {
    if (condition.is_object() && !condition.empty()) {
      for (const auto& [name, value] : condition.items()) {
        if (!value.is_string()) return S3Code::kInvalidPolicyDocument;
        const S3Code code = compare(name, value.get_ref<const std::string&>(), false);
        if (code != S3Code::kNone) return code;
      }
      return S3Code::kNone;
    }
    if (!condition.is_array() || condition.size() != 3 || !condition[0].is_string()) {
      return S3Code::kInvalidPolicyDocument;
    }
    const std::string kind = to_lower(condition[0].get_ref<const std::string&>());
    if (kind == "content-length-range") return check_length(condition[1], condition[2]);
    if ((kind != "eq" && kind != "starts-with") || !condition[1].is_string() ||
        !condition[2].is_string() || !condition[1].get_ref<const std::string&>().starts_with('$')) {
      return S3Code::kInvalidPolicyDocument;
    }
    return compare(condition[1].get_ref<const std::string&>().substr(1),
                   condition[2].get_ref<const std::string&>(), kind == "starts-with");
  }

  /// The first field, or the bucket, that no condition spoke of; empty: none.
  std::string uncovered() const {
    if (!is_covered("bucket")) return "bucket";
    for (const auto& [name, value] : form_.fields) {
      if (!is_free(name) && !is_covered(name)) return name;
    }
    return {};
  }

 private:
  bool is_covered(std::string_view name) const {
    return std::find(covered_.begin(), covered_.end(), name) != covered_.end();
  }

  S3Code compare(const std::string& raw_name, std::string_view wanted, bool is_prefix) {
    const std::string name = to_lower(raw_name);
    covered_.push_back(name);
    const std::string_view value = name == "bucket" ? bucket_
                                   : name == "key"  ? std::string_view(form_.key)
                                                    : form_.field(name);
    const bool is_met = is_prefix ? value.starts_with(wanted) : value == wanted;
    return is_met ? S3Code::kNone : S3Code::kAccessDenied;
  }

  S3Code check_length(const Json& least, const Json& most) const {
    if (!least.is_number_unsigned() || !most.is_number_unsigned()) {
      return S3Code::kInvalidPolicyDocument;
    }
    if (form_.file.size() < least.get<std::uint64_t>()) return S3Code::kEntityTooSmall;
    return form_.file.size() > most.get<std::uint64_t>() ? S3Code::kEntityTooLarge : S3Code::kNone;
  }

  const PostForm& form_;
  const std::string_view bucket_;
  std::vector<std::string> covered_;
};

}  // namespace

std::string_view PostForm::field(std::string_view name) const noexcept {
  for (const auto& [field_name, value] : fields) {
    if (field_name == name) return value;
  }
  return {};
}

S3Code parse_post_form(std::string_view content_type, std::string_view body, PostForm& out) {
  const std::string_view boundary = quoted_parameter(content_type, "boundary");
  if (boundary.empty()) return S3Code::kMalformedPost;
  const std::string delimiter = "\r\n--" + std::string(boundary);
  if (!body.starts_with(delimiter.substr(2))) return S3Code::kMalformedPost;
  body.remove_prefix(delimiter.size() - 2);
  while (body.starts_with("\r\n")) {
    body.remove_prefix(2);
    std::string_view headers;
    std::string_view content;
    if (!next_part(body, delimiter, headers, content)) return S3Code::kMalformedPost;
    const std::string_view disposition = http::find_field(headers, "content-disposition");
    const std::string name = to_lower(quoted_parameter(disposition, "name"));
    if (name.empty()) return S3Code::kMalformedPost;
    if (name == "file") {
      out.file = content;
      out.key = out.field("key");
      fill_in_file_name(base_name(quoted_parameter(disposition, "filename")), out.key);
      return out.key.empty() ? S3Code::kInvalidArgument : S3Code::kNone;
    }
    out.fields.emplace_back(name, content);
  }
  return S3Code::kInvalidArgument;  // no file
}

S3Code check_post_policy(const PostForm& form, std::string_view bucket,
                         const auth::Credentials& account, std::chrono::sys_seconds now,
                         std::string& detail) {
  if (const S3Code code = check_signature(form, account); code != S3Code::kNone) return code;
  const auto text = from_base64(form.field("policy"));
  const Json policy = Json::parse(text.value_or(""), nullptr, false);
  if (!policy.is_object() || !policy.contains("expiration") || !policy["expiration"].is_string() ||
      !policy.contains("conditions") || !policy["conditions"].is_array()) {
    return S3Code::kInvalidPolicyDocument;
  }
  const auto expires = http::parse_iso_date(policy["expiration"].get_ref<const std::string&>());
  if (!expires) return S3Code::kInvalidPolicyDocument;
  if (*expires <= now) {
    detail = "Invalid according to Policy: Policy expired.";
    return S3Code::kAccessDenied;
  }
  Conditions conditions(form, bucket);
  for (const Json& condition : policy["conditions"]) {
    if (const S3Code code = conditions.apply(condition); code != S3Code::kNone) {
      if (code == S3Code::kAccessDenied) {
        detail = "Invalid according to Policy: Policy Condition failed: " + condition.dump();
      }
      return code;
    }
  }
  if (const std::string name = conditions.uncovered(); !name.empty()) {
    detail = "Invalid according to Policy: Extra input fields: " + name;
    return S3Code::kAccessDenied;
  }
  return S3Code::kNone;
}

}  // namespace headrace::sim
