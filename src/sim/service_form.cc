// Uploads by HTML forms.
#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "base/strings.h"
#include "http/fields.h"
#include "http/uri.h"
#include "sim/key_path.h"
#include "sim/object_fields.h"
#include "sim/post_form.h"
#include "sim/service.h"

namespace headrace::sim {
namespace {

/// Fields of forms that the simulator knows; see allowed.h.
constexpr std::array<std::string_view, 23> kFormFields = {"acl",
                                                          "awsaccesskeyid",
                                                          "bucket",
                                                          "cache-control",
                                                          "content-disposition",
                                                          "content-encoding",
                                                          "content-language",
                                                          "content-type",
                                                          "expires",
                                                          "key",
                                                          "policy",
                                                          "redirect",
                                                          "signature",
                                                          "success_action_redirect",
                                                          "success_action_status",
                                                          "submit",
                                                          "x-amz-acl",
                                                          "x-amz-algorithm",
                                                          "x-amz-credential",
                                                          "x-amz-date",
                                                          "x-amz-security-token",
                                                          "x-amz-signature",
                                                          "x-amz-storage-class"};

S3Code check_form_field(std::string_view name, std::string_view value) {
  ChecksumKind ignored;
  const bool is_known =
      std::find(kFormFields.begin(), kFormFields.end(), name) != kFormFields.end() ||
      name.starts_with("x-amz-meta-") || name.starts_with("x-ignore-") ||
      checksum_kind_of(name, ignored);
  if (!is_known) return S3Code::kNotImplemented;
  if ((name == "acl" || name == "x-amz-acl") && value != "private") return S3Code::kNotImplemented;
  return name == "x-amz-storage-class" && value != "STANDARD" ? S3Code::kNotImplemented
                                                              : S3Code::kNone;
}

/// Sum of the file, by the first checksum field; false when it is not what the form says.
S3Code check_form_sum(const PostForm& form, ObjectSums& sums) {
  for (const auto& [name, value] : form.fields) {
    ChecksumKind kind;
    if (!checksum_kind_of(name, kind)) continue;
    auto checksum = Checksum::create(kind);
    if (!checksum) return S3Code::kInternalError;
    (*checksum)->update(form.file);
    sums.field = name;
    sums.value = to_base64((*checksum)->finish());
    return sums.value == value ? S3Code::kNone : S3Code::kBadDigest;
  }
  return S3Code::kNone;
}

S3Code md5_of(std::string_view bytes, VersionTag& tag) {
  auto checksum = Checksum::create(ChecksumKind::kMd5);
  if (!checksum) return S3Code::kInternalError;
  (*checksum)->update(bytes);
  const std::string raw = (*checksum)->finish();
  std::memcpy(tag.md5.emplace().data(), raw.data(), raw.size());
  return S3Code::kNone;
}

void answer_form(const PostForm& form, const std::string& bucket, const std::string& etag,
                 Response& response) {
  std::string_view redirect = form.field("success_action_redirect");
  if (redirect.empty()) redirect = form.field("redirect");
  const std::string location = "/" + bucket + "/" + http::encode(form.key, http::Slash::kKeep);
  response.fields += "ETag: " + etag + "\r\n";
  const bool is_url = redirect.starts_with("http://") || redirect.starts_with("https://");
  if (is_url && redirect.find_first_of("\r\n") == std::string_view::npos) {
    response.status = 303;
    response.fields += "Location: " + std::string(redirect) +
                       (redirect.find('?') == std::string_view::npos ? "?" : "&") +
                       "bucket=" + http::encode(bucket, http::Slash::kEscape) +
                       "&key=" + http::encode(form.key, http::Slash::kEscape) +
                       "&etag=" + http::encode(etag, http::Slash::kEscape) + "\r\n";
    return;
  }
  response.fields += "Location: " + location + "\r\n";
  const std::string_view status = form.field("success_action_status");
  response.status = status == "200" ? 200 : status == "201" ? 201 : 204;
  if (response.status != 201) return;
  std::string out(kXmlHead);
  out += "<PostResponse>";
  append_xml_element("Location", location, out);
  append_xml_element("Bucket", bucket, out);
  append_xml_element("Key", form.key, out);
  append_xml_element("ETag", etag, out);
  out += "</PostResponse>";
  set_xml(std::move(out), response);
}

}  // namespace

S3Code Service::check_form(const http::RequestHead& head, const PostForm& form,
                           Exchange& exchange) const {
  const SimOptions& options = shared_.options;
  if (form.key.size() > kMaxKeyBytes) return S3Code::kKeyTooLong;
  for (const auto& [name, value] : form.fields) {
    if (const S3Code code = check_form_field(name, value); code != S3Code::kNone) {
      exchange.error_detail = "The simulator does not implement the form's field " + name + ".";
      return code;
    }
  }
  if (!options.require_signature) {
    // Nothing says who asks: a page of another site must not be able to.
    return is_cross_site(head) ? S3Code::kAccessDenied : S3Code::kNone;
  }
  auth::Credentials account;
  account.access_key_id = options.access_key;
  account.secret_access_key = options.secret_key;
  account.session_token = options.session_token;
  return check_post_policy(form, exchange.target.bucket, account, wall_now(),
                           exchange.error_detail);
}

S3Code Service::post_form(const http::RequestHead& head, Exchange& exchange) {
  const std::string& bucket = exchange.target.bucket;
  if (const S3Code code = require_bucket(exchange); code != S3Code::kNone) return code;
  PostForm form;
  const std::string_view body = exchange.body ? exchange.body->memory() : std::string_view();
  S3Code code = parse_post_form(head.header("content-type"), body, form);
  if (code == S3Code::kNone) code = check_form(head, form, exchange);
  ObjectSums sums;
  if (code == S3Code::kNone) code = check_form_sum(form, sums);
  std::string fields;
  for (const auto& [name, value] : form.fields) {
    if (code == S3Code::kNone) code = keep_field(name, value, fields);
  }
  VersionTag tag;
  TemporaryFile file;
  if (code == S3Code::kNone) code = md5_of(form.file, tag);
  if (code == S3Code::kNone) code = shared_.storage.create_temporary(bucket, file);
  if (code == S3Code::kNone && !write_all(file.fd(), form.file)) code = S3Code::kInternalError;
  if (code == S3Code::kNone) code = keep_beside(file.fd(), fields, sums, exchange);
  FileInfo info;
  if (code == S3Code::kNone) {
    code = shared_.storage.commit(std::move(file), bucket, form.key, {}, tag, info);
  }
  if (code == S3Code::kNone) answer_form(form, bucket, etag_of(info), exchange.response);
  return code;
}

}  // namespace headrace::sim
