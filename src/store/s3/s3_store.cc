#include "store/s3/s3_store.h"

#include <openssl/evp.h>

#include <array>
#include <charconv>

#include "base/strings.h"
#include "http/date.h"
#include "http/uri.h"
#include "store/s3/s3_protocol.h"
#include "store/s3/s3_xml.h"
#include "store/transfer/transfer_engine.h"

namespace headrace::s3 {
namespace {

/// Size, ETag and time from the head of an answer to HEAD.
Result<ObjectInfo> object_info(const std::string& key, const HttpAnswer& answer) {
  http::ResponseHead head;
  HEADRACE_TRY_ASSIGN(const std::size_t head_bytes, http::parse_response_head(answer.head, head));
  if (head_bytes == 0 || !head.content_length)
    return Status(Code::kCorrupt, "the answer does not say how long the object is");
  ObjectInfo info;
  info.key = key;
  info.size_bytes = *head.content_length;
  info.etag = head.etag;
  if (const auto modified = http::parse_http_date(head.header("last-modified"))) {
    info.modified_unix_s = modified->time_since_epoch().count();
  }
  return info;
}

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

class S3Store final : public Store {
 public:
  S3Store(std::shared_ptr<S3Protocol> protocol, std::shared_ptr<TransferEngine> engine)
      : protocol_(std::move(protocol)),
        engine_(std::move(engine)),
        handle_(engine_->new_handle()) {}

  std::size_t submit(std::span<Request> requests) override { return handle_->submit(requests); }
  std::size_t wait(std::span<Completion> out, TimePoint until, std::stop_token stop) override {
    return handle_->wait(out, until, std::move(stop));
  }
  void wake() noexcept override { handle_->wake(); }
  void cancel(std::uint64_t tag) override { handle_->cancel(tag); }
  void stop() noexcept override { handle_->stop(); }
  Result<std::unique_ptr<Store>> new_handle() override {
    return std::unique_ptr<Store>(std::make_unique<S3Store>(protocol_, engine_));
  }

  Result<ObjectInfo> head(const std::string& key, const CallOptions& call) override {
    HEADRACE_TRY_ASSIGN(HttpCall http, object_call("HEAD", key));
    HEADRACE_TRY_ASSIGN(const HttpAnswer answer, engine_->call(http, call));
    auto info = object_info(key, answer);
    if (!info) return std::move(info).error().annotate(http.what);
    return info;
  }

  Result<ListPage> list(const ListRequest& request, const CallOptions& call) override {
    if (request.page_size < 1 || request.page_size > 1000) {
      return Status(Code::kInvalidArgument, "LIST " + url() + ": page_size must be 1 to 1000");
    }
    HttpCall http;
    http.what = "LIST " + (request.prefix.empty() ? url() : object_url(request.prefix));
    http.query = {{"list-type", "2"},
                  {"encoding-type", "url"},
                  {"max-keys", std::to_string(request.page_size)},
                  {"prefix", protocol_->full_key(request.prefix)}};
    if (!request.delimiter.empty()) http.query.emplace_back("delimiter", request.delimiter);
    if (!request.continuation.empty())
      http.query.emplace_back("continuation-token", request.continuation);
    HEADRACE_TRY_ASSIGN(const HttpAnswer answer, engine_->call(http, call));
    auto page = parse_list(answer.body, protocol_->config().prefix);
    if (!page) return std::move(page).error().annotate(http.what);
    return page;
  }

  Status remove(const std::string& key, const CallOptions& call) override {
    HEADRACE_TRY_ASSIGN(const HttpCall http, object_call("DELETE", key));
    return without_missing(engine_->call(http, call));
  }

  Result<ObjectInfo> copy(const std::string& from_key, const std::string& to_key,
                          const CallOptions& call) override {
    HEADRACE_TRY_ASSIGN(HttpCall http, object_call("PUT", to_key));
    http.what = "COPY " + object_url(from_key) + " to " + object_url(to_key);
    if (Status s = protocol_->check_key(from_key); !s.ok()) return std::move(s).annotate(http.what);
    const S3Config& config = protocol_->config();
    http.headers = {
        {"x-amz-copy-source", "/" + config.bucket + "/" +
                                  http::encode(protocol_->full_key(from_key), http::Slash::kKeep)}};
    HEADRACE_TRY_ASSIGN(const HttpAnswer answer, engine_->call(http, call));
    auto etag = parse_result_etag(answer.body);
    if (!etag) return std::move(etag).error().annotate(http.what);
    return head(to_key, call);  // the answer has no size
  }

  Result<std::string> create_upload(const std::string& key, const CallOptions& call) override {
    HEADRACE_TRY_ASSIGN(HttpCall http, object_call("POST", key));
    http.query = {{"uploads", ""}};
    // A repeated one leaves an empty upload behind, which the bucket's lifecycle rule removes;
    // failing would be worse.
    HEADRACE_TRY_ASSIGN(const HttpAnswer answer, engine_->call(http, call));
    auto id = parse_upload_id(answer.body);
    if (!id) return std::move(id).error().annotate(http.what);
    return id;
  }

  Result<ObjectInfo> complete_upload(const std::string& key, const std::string& upload_id,
                                     std::span<const UploadedPart> parts,
                                     const CallOptions& call) override {
    HEADRACE_TRY_ASSIGN(HttpCall http, object_call("POST", key));
    http.what = "COMPLETE " + object_url(key);
    http.query = {{"uploadId", upload_id}};
    http.headers = {{"content-type", "application/xml"}};
    http.body = format_complete(parts);
    auto answer = engine_->call(http, call);
    if (!answer) {
      Status status = std::move(answer).error();
      if (status.code() != Code::kNotFound) return status;
      // After a lost answer the retry finds the upload gone, because the first attempt has
      // completed it.
      const auto expected = multipart_etag(parts);
      auto info = head(key, call);
      if (expected && info && info->etag == *expected) return info;
      return status;
    }
    auto etag = parse_result_etag(answer->body);
    if (!etag) return std::move(etag).error().annotate(http.what);
    return head(key, call);
  }

  Status abort_upload(const std::string& key, const std::string& upload_id,
                      const CallOptions& call) override {
    HEADRACE_TRY_ASSIGN(HttpCall http, object_call("DELETE", key));
    http.what = "ABORT " + object_url(key);
    http.query = {{"uploadId", upload_id}};
    return without_missing(engine_->call(http, call));
  }

  const std::string& url() const noexcept override { return protocol_->config().root_url; }
  void append_metrics(MetricList& out) const override { engine_->append_metrics(out); }

 private:
  Result<HttpCall> object_call(const char* method, const std::string& key) const {
    HttpCall http;
    http.method = method;
    http.what = std::string(method) + " " + object_url(key);
    if (Status s = protocol_->check_key(key); !s.ok()) return std::move(s).annotate(http.what);
    http.path = protocol_->full_key(key);
    return http;
  }

  /// Deleting what is not there is a success, so that a retry after a lost answer is one too. A
  /// missing bucket is not.
  static Status without_missing(Result<HttpAnswer> answer) {
    if (answer) return {};
    Status status = std::move(answer).error();
    const bool is_bucket_missing = status.message().find("NoSuchBucket") != std::string_view::npos;
    // Only the store's own answer: an unknown host is kNotFound as well.
    const bool is_answer = status.message().find("(HTTP 404") != std::string_view::npos;
    if (status.code() == Code::kNotFound && is_answer && !is_bucket_missing) return {};
    return status;
  }

  const std::shared_ptr<S3Protocol> protocol_;
  const std::shared_ptr<TransferEngine> engine_;
  const std::unique_ptr<TransferHandle> handle_;
};

}  // namespace

Result<std::unique_ptr<Store>> open_s3_store(const StoreOptions& options, const StoreUrl& url,
                                             const Environment& environment) {
  HEADRACE_TRY_ASSIGN(const auto settings,
                      auth::resolve_aws_settings(environment, auth::local_file_reader()));
  HEADRACE_TRY_ASSIGN(auto config, make_s3_config(options, url, settings));
  HEADRACE_TRY_ASSIGN(auto protocol, S3Protocol::create(std::move(config)));
  HEADRACE_TRY_ASSIGN(auto engine, TransferEngine::create(protocol, options));
  return std::unique_ptr<Store>(std::make_unique<S3Store>(std::move(protocol), std::move(engine)));
}

}  // namespace headrace::s3
