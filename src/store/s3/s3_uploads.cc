// Multipart uploads, and the copies that need them.
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include "base/start_thread.h"
#include "base/strings.h"
#include "http/uri.h"
#include "store/clean_up_options.h"
#include "store/effective_settings.h"
#include "store/finish_upload.h"
#include "store/s3/s3_checksum.h"
#include "store/s3/s3_control.h"
#include "store/s3/s3_xml.h"
#include "store/upload_parts.h"

namespace headrace::s3 {
namespace {

// A copied part moves inside the store at some 100 MB/s: 512 MiB end well before a deadline of 60
// s, and eight at once use what one object gets.
constexpr std::uint64_t kCopyPartBytes = std::uint64_t{512} << 20;
constexpr std::size_t kCopyThreads = 8;

/// ETag that S3 gives to an object of these parts: MD5 of the parts' MD5s, and their count. Nullopt
/// when the parts' ETags are no MD5s (some encryption modes and stores), or when this OpenSSL has
/// no MD5.
std::optional<std::string> multipart_etag(std::span<const UploadedPart> parts) {
  std::string digests;
  for (const UploadedPart& part : parts) {
    std::string_view hex = part.etag;
    if (hex.size() != 34 || hex.front() != '"' || hex.back() != '"') return std::nullopt;
    hex = hex.substr(1, 32);
    for (std::size_t i = 0; i < hex.size(); i += 2) {
      unsigned value = 0;
      const auto [end, error] = std::from_chars(&hex[i], &hex[i] + 2, value, 16);
      if (error != std::errc() || end != &hex[i] + 2) return std::nullopt;
      digests.push_back(static_cast<char>(value));
    }
  }
  std::array<std::byte, 16> digest;
  if (EVP_Digest(digests.data(), digests.size(), reinterpret_cast<unsigned char*>(digest.data()),
                 nullptr, EVP_md5(), nullptr) != 1) {
    return std::nullopt;
  }
  return "\"" + to_hex(digest) + "-" + std::to_string(parts.size()) + "\"";
}

/// "<sum of the parts' sums>-<count>", as S3 keeps it where it keeps no sum of the whole; nullopt
/// unless all parts have one.
std::optional<std::string> checksum_of_checksums(ChecksumKind kind,
                                                 std::span<const UploadedPart> parts) {
  std::vector<std::byte> sums;
  for (const UploadedPart& part : parts) {
    const auto sum = vendor::parse_checksum_text(kind, part.checksum);
    if (!sum) return std::nullopt;
    const int width = kind == ChecksumKind::kCrc32c ? 4 : 8;
    for (int i = width; i-- > 0;) sums.push_back(static_cast<std::byte>(*sum >> (8 * i)));
  }
  std::string text;
  vendor::append_checksum_text(kind, vendor::checksum_value(kind, sums), text);
  return text + "-" + std::to_string(parts.size());
}

/// Of a copy to itself into another class: what only a server says that takes no notice of classes
/// (versitygw 1.8).
bool finds_nothing_to_change(const Status& status) {
  return status.code() == Code::kInvalidArgument &&
         status.message().find("to copy an object to itself without changing") !=
             std::string_view::npos;
}

}  // namespace

Result<std::string> S3Control::create_upload(const std::string& key, const CallOptions& call) {
  return create_tagged_upload(key, {}, call);
}

Result<std::string> S3Control::create_tagged_upload(const std::string& key, const std::string& tags,
                                                    const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(HttpCall http, object_call("POST", key));
  if (!tags.empty()) http.headers.emplace_back("x-amz-tagging", tags);
  http.query = {{"uploads", ""}};
  const S3Config& config = protocol_->config();
  if (config.upload_checksum != ChecksumKind::kNone) {
    http.headers.emplace_back("x-amz-checksum-algorithm",
                              checksum_algorithm(config.upload_checksum));
    // One sum over all bytes, which readers can check; directory buckets keep only sums of sums.
    if (!config.is_express) http.headers.emplace_back("x-amz-checksum-type", "FULL_OBJECT");
  }
  auto fields = protocol_->fields_of_write(call.settings);
  if (!fields) return std::move(fields).error().annotate(http.what);
  http.headers.insert(http.headers.end(), fields->begin(), fields->end());
  // A repeated one leaves an empty upload behind, which the bucket's lifecycle rule removes;
  // failing would be worse.
  return engine_->call(http, call,
                       [](const HttpAnswer& answer) { return parse_upload_id(answer.body); });
}

std::vector<UploadedPart> S3Control::with_checksums(const std::string& key,
                                                    const std::string& upload_id,
                                                    std::span<const UploadedPart> given,
                                                    const CallOptions& call) {
  std::vector<UploadedPart> parts(given.begin(), given.end());
  const bool is_complete =
      protocol_->config().upload_checksum == ChecksumKind::kNone ||
      std::all_of(parts.begin(), parts.end(), [](const auto& p) { return !p.checksum.empty(); });
  if (is_complete) return parts;
  // Some stores want the sums of all parts back; those that the caller has not kept they know.
  auto known = list_parts(key, upload_id, call);
  if (!known) return parts;
  for (UploadedPart& part : parts) {
    const auto found = std::find_if(known->begin(), known->end(), [&](const UploadedPart& k) {
      return k.part_number == part.part_number && k.etag == part.etag;
    });
    if (found != known->end() && part.checksum.empty()) part.checksum = found->checksum;
  }
  return parts;
}

Result<ObjectInfo> S3Control::complete_upload(const std::string& key, const std::string& upload_id,
                                              std::span<const UploadedPart> given,
                                              const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(HttpCall http, object_call("POST", key));
  const S3Config& config = protocol_->config();
  const std::vector<UploadedPart> parts = with_checksums(key, upload_id, given, call);
  http.what = "COMPLETE " + url_of(key);
  http.query = {{"uploadId", upload_id}};
  http.headers = {{"content-type", "application/xml"}};
  http.body = format_complete(parts, config.upload_checksum);
  // The whole object's sum as well, where the store is known to compare it.
  if (const auto whole = vendor::combined_checksum(config.upload_checksum, parts);
      whole && config.is_aws && !config.is_express) {
    std::string text;
    vendor::append_checksum_text(config.upload_checksum, *whole, text);
    http.headers.emplace_back(checksum_field(config.upload_checksum), text);
    http.headers.emplace_back("x-amz-checksum-type", "FULL_OBJECT");
  }
  http.is_idempotent = false;  // the first attempt may have had its effect: we look before the next
  http.answer_timeout = kCompleteAnswerTime;
  std::string etag;
  UploadEnd end;
  end.what = http.what;
  end.deadline = engine_->deadline_of(call, kCompleteTime);
  end.complete = [&](TimePoint deadline) -> Status {
    HEADRACE_TRY_ASSIGN(etag, engine_->call(http, {deadline, call.stop}, [](const HttpAnswer& a) {
      return parse_result_etag(a.body);
    }));
    return {};
  };
  end.find = [&](TimePoint deadline) { return find_completed(key, parts, {deadline, call.stop}); };
  HEADRACE_TRY_ASSIGN(auto found, finish_upload(end, engine_->clock(), call.stop));
  if (found) return *std::move(found);
  auto there = head(key, call);
  if (!there && there.error().code() == Code::kDenied)
    return written_object(key, parts, std::move(etag));
  return there;
}

/// The object, when its ETag or its checksum says that it is made of these parts.
Result<std::optional<ObjectInfo>> S3Control::find_completed(const std::string& key,
                                                            std::span<const UploadedPart> parts,
                                                            const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(HttpCall http, object_call("HEAD", key));
  http.headers = {{"x-amz-checksum-mode", "ENABLED"}};
  const ChecksumKind kind = protocol_->config().upload_checksum;
  const auto read = [&](const HttpAnswer& answer) -> Result<std::optional<ObjectInfo>> {
    HEADRACE_TRY_ASSIGN(ObjectInfo info, object_info(key, answer));
    http::ResponseHead fields;
    static_cast<void>(http::parse_response_head(answer.head, fields));  // object_info() could
    const std::string_view sum = fields.header(checksum_field(kind));
    const auto whole = vendor::combined_checksum(kind, parts);
    const bool is_ours = info.etag == multipart_etag(parts) ||
                         (whole && vendor::parse_checksum_text(kind, sum) == whole &&
                          info.size_bytes == total_bytes(parts)) ||
                         (!sum.empty() && sum == checksum_of_checksums(kind, parts));
    return is_ours ? std::optional(std::move(info)) : std::nullopt;
  };
  auto found = engine_->call(http, call, read);
  if (!found && found.error().code() == Code::kNotFound) return std::optional<ObjectInfo>();
  return found;
}

Status S3Control::abort_upload(const std::string& key, const std::string& upload_id,
                               const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(HttpCall http, object_call("DELETE", key));
  http.what = "ABORT " + url_of(key);
  http.query = {{"uploadId", upload_id}};
  auto answer = engine_->call(http, call);
  if (answer) return {};
  Status status = std::move(answer).error();
  const std::string_view message = status.message();
  const bool is_gone = status.code() == Code::kNotFound &&
                       message.find("(HTTP 404") != std::string_view::npos &&
                       message.find("NoSuchBucket") == std::string_view::npos;
  return is_gone ? Status() : std::move(status);
}

Result<std::vector<UploadedPart>> S3Control::list_parts(const std::string& key,
                                                        const std::string& upload_id,
                                                        const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(HttpCall http, object_call("GET", key));
  http.what = "LIST PARTS of " + url_of(key);
  std::vector<UploadedPart> all;
  std::uint32_t marker = 0;
  do {
    http.query = {{"uploadId", upload_id}, {"max-parts", "1000"}};
    if (marker > 0) http.query.emplace_back("part-number-marker", std::to_string(marker));
    const auto read = [&](const HttpAnswer& answer) -> Result<PartPage> {
      auto page = parse_parts(answer.body, protocol_->config().upload_checksum);
      if (page && page->next_marker != 0 && page->next_marker <= marker)
        return Status(Code::kCorrupt, "the pages do not end");
      return page;
    };
    HEADRACE_TRY_ASSIGN(PartPage page, engine_->call(http, call, read));
    std::move(page.parts.begin(), page.parts.end(), std::back_inserter(all));
    marker = page.next_marker;
  } while (marker > 0);
  std::sort(all.begin(), all.end(), [](const UploadedPart& a, const UploadedPart& b) {
    return a.part_number < b.part_number;
  });
  return all;
}

Result<std::vector<PendingUpload>> S3Control::list_uploads(const std::string& prefix,
                                                           const CallOptions& call) {
  const S3Config& config = protocol_->config();
  HttpCall http;
  http.what = "LIST UPLOADS below " + url_of(prefix);
  const std::size_t slash = prefix.rfind('/') + 1;
  const std::string asked_prefix = config.is_express ? prefix.substr(0, slash) : prefix;
  std::vector<PendingUpload> all;
  vendor::UploadPage page;
  do {
    http.query = {{"uploads", ""},
                  {"encoding-type", "url"},
                  {"max-uploads", "1000"},
                  {"prefix", protocol_->full_key(asked_prefix)}};
    if (!page.next_key.empty()) {
      http.query.emplace_back("key-marker", page.next_key);
      if (!page.next_upload_id.empty())
        http.query.emplace_back("upload-id-marker", page.next_upload_id);
    }
    const auto read = [&](const HttpAnswer& answer) -> Result<vendor::UploadPage> {
      auto next = parse_uploads(answer.body, config.prefix);
      const bool goes_on = next && !next->next_key.empty();
      // Markers ascend, so a page cannot come again under another one either.
      if (goes_on && std::tie(next->next_key, next->next_upload_id) ==
                         std::tie(page.next_key, page.next_upload_id))
        return Status(Code::kCorrupt, "the pages do not end");
      if (goes_on && next->next_key < page.next_key)
        return Status(Code::kCorrupt, "the pages do not end");
      return next;
    };
    HEADRACE_TRY_ASSIGN(page, engine_->call(http, call, read));
    for (PendingUpload& upload : page.uploads) {
      if (upload.key.starts_with(prefix)) all.push_back(std::move(upload));
    }
  } while (!page.next_key.empty());
  return all;
}

std::string S3Control::copy_source(const std::string& key, const std::string& version_id) const {
  std::string source = "/" + protocol_->config().bucket + "/" +
                       http::encode(protocol_->full_key(key), http::Slash::kKeep);
  if (!version_id.empty()) source += "?versionId=" + http::encode(version_id, http::Slash::kEscape);
  return source;
}

Status S3Control::add_settings(const std::string& from_key, const CallOptions& call,
                               HttpCall& http) {
  ObjectSettings room;
  ObjectSettings settings = effective_settings(protocol_->config().settings, call.settings, room);
  if (vendor::replaces_source(settings)) {
    HEADRACE_TRY_ASSIGN(const ObjectInfo from, head(from_key, {.deadline = call.deadline,
                                                               .stop = call.stop,
                                                               .version_id = call.version_id}));
    settings = settings_over(settings, copied_settings(from.details->settings));
    http.headers.emplace_back("x-amz-metadata-directive", "REPLACE");
    http.headers.emplace_back("x-amz-copy-source-if-match", from.etag);
  }
  auto fields = protocol_->fields_of_write(&settings);
  if (!fields) return std::move(fields).error().annotate(http.what);
  http.headers.insert(http.headers.end(), fields->begin(), fields->end());
  return {};
}

Result<ObjectInfo> S3Control::copy(const std::string& from_key, const std::string& to_key,
                                   const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(HttpCall http, object_call("PUT", to_key));
  http.what = "COPY " + url_of(from_key) + " to " + url_of(to_key);
  if (Status s = protocol_->check_key(from_key); !s.ok()) return std::move(s).annotate(http.what);
  http.headers = {{"x-amz-copy-source", copy_source(from_key, call.version_id)}};
  if (!call.version_id.empty()) HEADRACE_TRY(check_version(from_key, call));
  HEADRACE_TRY(add_settings(from_key, call, http));
  // All bytes are copied before the answer, or before the end of one that began with blanks.
  http.answer_timeout = kCompleteAnswerTime;
  const auto etag =
      engine_->call(http, {engine_->deadline_of(call, kCompleteTime), call.stop},
                    [](const HttpAnswer& answer) { return parse_result_etag(answer.body); });
  if (!etag) {
    Status status = etag.error().clone();
    if (status.code() != Code::kInvalidArgument) return status;
    // One request copies at most 5 GiB; asking for the size only now spares all other copies a
    // request.
    auto from = head(from_key, call);
    if (!from || from->size_bytes <= traits_.max_copy_bytes) return status;
    return copy_large(*from, to_key, call);
  }
  return head(to_key, {.deadline = call.deadline, .stop = call.stop});  // the answer has no size
}

// By parts from their size on, though one request would copy more: each must be done before its
// deadline, however long the object is.
Result<ObjectInfo> S3Control::set_storage_class(const std::string& key,
                                                const std::string& storage_class,
                                                const CallOptions& call) {
  ObjectSettings wanted;
  wanted.storage_class = storage_class;
  const CallOptions write{.deadline = call.deadline, .stop = call.stop, .settings = &wanted};
  HEADRACE_TRY_ASSIGN(ObjectInfo info, head(key, {.deadline = call.deadline, .stop = call.stop}));
  const std::string& present = info.details->settings.storage_class;
  // Answers leave the standard class out.
  if ((present.empty() ? "STANDARD" : present) == storage_class) return info;
  if (info.size_bytes > kCopyPartBytes) return copy_large(info, key, write);
  auto moved = copy(key, key, write);
  if (!moved && finds_nothing_to_change(moved.error())) {
    return Status(Code::kUnsupported,
                  std::string(moved.error().message()) + ": the server keeps no storage classes");
  }
  return moved;
}

// HEAD counts them for those only who may read them: others learn of none.
Result<std::string> S3Control::tags_of(const ObjectInfo& from, const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(HttpCall http, object_call("HEAD", from.key));
  if (!call.version_id.empty()) http.query.emplace_back("versionId", call.version_id);
  HEADRACE_TRY_ASSIGN(const HttpAnswer answer, engine_->call(http, call));
  http::ResponseHead head;
  HEADRACE_TRY_ASSIGN(const std::size_t head_bytes, http::parse_response_head(answer.head, head));
  if (head_bytes == 0) return Status(Code::kCorrupt, http.what + ": the answer has no head");
  const std::string_view count = head.header("x-amz-tagging-count");
  if (count.empty() || count == "0") return std::string();
  http.method = "GET";
  http.what = "GET the tags of " + url_of(from.key);
  http.query.emplace_back("tagging", "");
  auto tags =
      engine_->call(http, call, [](const HttpAnswer& text) { return parse_tags(text.body); });
  if (!tags && tags.error().code() == Code::kDenied) {
    return Status(Code::kUnsupported, std::string(tags.error().message()) +
                                          ": a copy of this size would lose the object's tags");
  }
  return tags;
}

Result<ObjectInfo> S3Control::copy_large(const ObjectInfo& from, const std::string& to_key,
                                         const CallOptions& call) {
  ObjectSettings room;
  const ObjectSettings settings =
      settings_over(effective_settings(protocol_->config().settings, call.settings, room),
                    copied_settings(from.details->settings));
  const CallOptions write{.deadline = call.deadline, .stop = call.stop, .settings = &settings};
  HEADRACE_TRY_ASSIGN(const std::string tags, tags_of(from, call));
  HEADRACE_TRY_ASSIGN(const std::string id, create_tagged_upload(to_key, tags, write));
  std::vector<UploadedPart> parts;
  if (Status s = copy_parts(from, to_key, id, parts, call); !s.ok()) {
    static_cast<void>(abort_upload(to_key, id, clean_up_options()));
    return s;
  }
  return complete_upload(to_key, id, parts, write);
}

Status S3Control::copy_parts(const ObjectInfo& from, const std::string& to_key,
                             const std::string& upload_id, std::vector<UploadedPart>& parts,
                             const CallOptions& call) {
  const std::uint64_t part_bytes = upload_part_bytes(from.size_bytes, kCopyPartBytes, traits_);
  parts.resize((from.size_bytes + part_bytes - 1) / part_bytes);
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  Status failure;  // the first one, behind the mutex while threads run
  const auto work = [&] {
    for (std::size_t i = next.fetch_add(1); i < parts.size(); i = next.fetch_add(1)) {
      const std::uint64_t begin = i * part_bytes;
      const std::uint64_t end = std::min(begin + part_bytes, from.size_bytes);
      HttpCall http;
      http.method = "PUT";
      http.path = protocol_->full_key(to_key);
      http.what = "COPY part " + std::to_string(i + 1) + " of " + url_of(from.key) + " to " +
                  url_of(to_key);
      http.query = {{"partNumber", std::to_string(i + 1)}, {"uploadId", upload_id}};
      http.headers = {{"x-amz-copy-source", copy_source(from.key, call.version_id)},
                      {"x-amz-copy-source-if-match", from.etag},
                      {"x-amz-copy-source-range",
                       "bytes=" + std::to_string(begin) + "-" + std::to_string(end - 1)}};
      http.answer_timeout = kCompleteAnswerTime;
      auto part = engine_->call(http, {engine_->deadline_of(call, kCompleteTime), call.stop},
                                [&](const HttpAnswer& answer) {
                                  return parse_copied_part(answer.body,
                                                           protocol_->config().upload_checksum);
                                });
      const std::lock_guard lock(mutex);
      if (!part) {
        if (failure.ok()) failure = std::move(part).error();
        next.store(parts.size());
        return;
      }
      parts[i] = *std::move(part);
      parts[i].part_number = static_cast<std::uint32_t>(i + 1);
      parts[i].size_bytes = end - begin;
    }
  };
  {
    std::vector<std::jthread> threads;
    start_threads(threads, std::min(kCopyThreads, parts.size()) - 1, work);
    work();
  }
  return failure;
}

}  // namespace headrace::s3
