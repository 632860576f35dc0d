// For emulators only, which speak the JSON API and nothing else. No credentials, no checksums, no
// signatures: what an emulator proves is that the calls fit together.
//
// Parts of an upload are objects of their own in ".headrace-uploads/", composed when it is
// completed. The numbers in their names have five digits, so that byte order is their order. Which
// uploads are under way is known to this store alone: those of another process are "no such
// upload".
#include "store/gcs/emulator_protocol.h"

#include <array>
#include <nlohmann/json.hpp>

#include "http/fields.h"
#include "http/range.h"
#include "http/uri.h"
#include "store/effective_settings.h"
#include "store/gcs/gcs_errors.h"
#include "store/gcs/gcs_protocol.h"
#include "store/gcs/gcs_settings.h"

namespace headrace::gcs {
namespace {

constexpr auto kEmulatorFields = std::to_array<vendor::SettingName>({
    {&ObjectSettings::content_type, "contentType"},
    {&ObjectSettings::content_encoding, "contentEncoding"},
});
constexpr vendor::SettingNames kEmulatorSettings{
    "an emulator of Google Cloud Storage, as it is used here,", kEmulatorFields, {}};

}  // namespace

std::string EmulatorProtocol::objects_path() const {
  return "/storage/v1/b/" + config_.bucket + "/o";
}

std::string EmulatorProtocol::object_path(std::string_view whole_key) const {
  std::string path = objects_path() + "/";
  http::append_encoded(whole_key, http::Slash::kEscape, path);
  return path;
}

std::string EmulatorProtocol::part_key(std::string_view upload_id, std::uint32_t part_number) {
  const std::string digits = std::to_string(part_number);
  return ".headrace-uploads/" + std::string(upload_id) + "/" +
         std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
}

std::string EmulatorProtocol::begin_upload() {
  const MutexLock lock(mutex_);
  std::string id = std::to_string(seed_) + "-" + std::to_string(++upload_count_);
  uploads_.insert(id);
  return id;
}

bool EmulatorProtocol::has_upload(std::string_view id) const {
  const MutexLock lock(mutex_);
  return uploads_.contains(id);
}

bool EmulatorProtocol::forget_upload(const std::string& id) {
  const MutexLock lock(mutex_);
  return uploads_.erase(id) > 0;
}

Result<const ObjectSettings*> EmulatorProtocol::settings_of_write(const ObjectSettings* given,
                                                                  ObjectSettings& room) const {
  const ObjectSettings& settings = effective_settings(config_.settings, given, room);
  HEADRACE_TRY(check_settings(settings));
  return &settings;
}

Status EmulatorProtocol::check_settings(const ObjectSettings& settings) {
  return vendor::check_settings(settings, kEmulatorSettings);
}

std::shared_ptr<const ObjectDetails> EmulatorProtocol::details_of(
    const http::ResponseHead& head) const {
  return object_details(head);
}

Status EmulatorProtocol::append_head(const Request& request, const HeadContext& context,
                                     std::string& out) {
  const std::string whole = config_.prefix + std::string(request.key);
  HEADRACE_TRY(check_gcs_key(request.key.empty() ? std::string() : whole));
  const bool has_version = !request.etag.empty() && request.op != Op::kPutPart;
  if (has_version && !is_generation(request.etag))
    return Status(Code::kChanged, "the version that is named is no generation of this store");
  if (request.op == Op::kPutPart && !has_upload(request.upload_id))
    return Status(Code::kNotFound, "no such upload: completed, aborted or never begun");
  HEADRACE_TRY(check_version_id(request.version_id));
  HttpCall call;
  if (request.op == Op::kGet) {
    call.path = object_path(whole);
    call.query = {{"alt", "media"}};
    if (!request.version_id.empty()) call.query.emplace_back("generation", request.version_id);
    std::string range;
    http::append_range(request.offset_bytes, request.length_bytes, range);
    call.headers = {{"range", range}, {"accept-encoding", "gzip"}};
    return append_head(call, context, out);
  }
  call.method = "POST";
  call.path = "/upload" + objects_path();
  call.query = {
      {"uploadType", "media"},
      {"name", request.op == Op::kPut ? whole : part_key(request.upload_id, request.part_number)}};
  if (has_version) {
    call.query.emplace_back("ifGenerationMatch", request.etag);
  } else if (request.if_absent && request.op == Op::kPut) {
    call.query.emplace_back("ifGenerationMatch", "0");
  }
  ObjectSettings room;
  HEADRACE_TRY_ASSIGN(const ObjectSettings* const settings,
                      settings_of_write(request.op == Op::kPut ? request.settings : nullptr, room));
  const std::string& type = settings->content_type;
  call.headers = {{"content-length", std::to_string(request.length_bytes)},
                  {"content-type", type.empty() ? "application/octet-stream" : type}};
  if (request.op == Op::kPut && !settings->content_encoding.empty())
    call.query.emplace_back("contentEncoding", settings->content_encoding);
  return append_head(call, context, out);
}

Status EmulatorProtocol::append_head(const HttpCall& call, const HeadContext& /*context*/,
                                     std::string& out) {
  out.append(call.method).append(" ").append(config_.base_path).append(call.path);
  char separator = '?';
  for (const auto& [name, value] : call.query) {
    out.push_back(separator);
    out.append(name).append("=");
    http::append_encoded(value, http::Slash::kEscape, out);
    separator = '&';
  }
  out.append(" HTTP/1.1\r\nhost: ").append(config_.host_field).append("\r\n");
  bool has_length = false;
  for (const auto& [name, value] : call.headers) {
    HEADRACE_TRY(check_field_value("the header " + name, value));
    out.append(name).append(": ").append(value).append("\r\n");
    has_length = has_length || name == "content-length";
  }
  if (!has_length && (call.method == "POST" || call.method == "PUT"))
    out.append("content-length: ").append(std::to_string(call.body.size())).append("\r\n");
  out.append("user-agent: headrace/0.1\r\n\r\n");
  return {};
}

Status EmulatorProtocol::error_from(std::string_view what, const http::ResponseHead& head,
                                    std::string_view body) {
  return error_status(what, head, body, config_.credentials_source);
}

std::string_view EmulatorProtocol::version_of(const Request& /*request*/,
                                              const http::ResponseHead& head) const {
  return head.header("x-goog-generation");
}

void EmulatorProtocol::append_version(const Request& /*request*/, const http::ResponseHead& head,
                                      std::string_view body, std::string& out) const {
  const auto object = nlohmann::json::parse(body, nullptr, false);
  if (object.is_object() && object.contains("generation") && object["generation"].is_string()) {
    out.append(object["generation"].get_ref<const std::string&>());
  } else {
    out.append(head.etag);
  }
}

}  // namespace headrace::gcs
