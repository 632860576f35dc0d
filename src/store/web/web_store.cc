// A web server promises little, so nothing is believed that an answer does not say: the size comes
// from Content-Range or Content-Length, and an answer that was packed on its way
// (Content-Encoding) is refused, because its offsets are not those of the object. Many servers
// refuse HEAD, and a URL signed for GET is valid for nothing else: a GET of one byte tells the
// same.
#include "store/web/web_store.h"

#include "http/date.h"
#include "http/fields.h"
#include "store/read_only_store.h"
#include "store/web/web_protocol.h"

namespace headrace::web {
namespace {

class WebStore final : public ReadOnlyStore {
 public:
  WebStore(std::shared_ptr<WebProtocol> protocol, std::shared_ptr<TransferEngine> engine)
      : ReadOnlyStore(std::move(engine), "plain web servers can only be read"),
        protocol_(std::move(protocol)) {
    traits_.can_write = false;
    traits_.can_list = false;
  }

  Result<std::unique_ptr<Store>> new_handle() override {
    return std::unique_ptr<Store>(std::make_unique<WebStore>(protocol_, engine()));
  }

  Result<ObjectInfo> head(const std::string& key, const CallOptions& call) override {
    HttpCall http;
    http.method = "HEAD";
    http.what = "HEAD " + object_url(key);
    if (!call.version_id.empty()) {
      return Status(Code::kUnsupported,
                    http.what + ": plain web servers have no versions of objects");
    }
    if (Status s = check_web_key(key); !s.ok()) return std::move(s).annotate(http.what);
    http.path = key;
    auto answer = engine()->call(http, call);
    if (answer) {
      auto info = info_of(key, *answer);
      if (info) return info;
    } else if (answer.error().code() != Code::kUnsupported &&
               answer.error().code() != Code::kDenied) {
      return std::move(answer).error();
    }
    // Refused (a URL that is signed for GET, a server without HEAD) or without a length (packed on
    // the fly): one byte tells the size as well.
    http.method = "GET";
    http.headers = {{"range", "bytes=0-0"}};
    return engine()->call(http, call, [&](const HttpAnswer& byte) { return info_of(key, byte); });
  }

  Result<ListPage> list(const ListRequest&, const CallOptions&) override {
    return Status(Code::kUnsupported,
                  "LIST " + url() +
                      ": plain web servers have no listings; name the objects (for a dataset: the "
                      "index file), or open the same data as s3://, gs:// or az://");
  }

  const StoreTraits& traits() const noexcept override { return traits_; }
  const std::string& url() const noexcept override { return protocol_->config().root_url; }
  std::string origin() const override {
    const std::string& variant = protocol_->config().variant;
    return ReadOnlyStore::origin() + (variant.empty() ? "" : " " + variant);
  }

 private:
  Result<ObjectInfo> info_of(const std::string& key, const HttpAnswer& answer) const {
    http::ResponseHead head;
    HEADRACE_TRY_ASSIGN(const std::size_t head_bytes, http::parse_response_head(answer.head, head));
    ObjectInfo info;
    info.key = key;
    info.etag = version_in(head);
    if (head_bytes == 0) return Status(Code::kCorrupt, "the answer has no head");
    HEADRACE_TRY(protocol_->judge_bytes(head));
    if (head.status == 416) {
      info.size_bytes = 0;
    } else if (head.status == 206 && head.content_range && head.content_range->total) {
      info.size_bytes = *head.content_range->total;
    } else if (head.status == 200 && head.content_length) {
      info.size_bytes = *head.content_length;
    } else {
      return Status(Code::kUnsupported, "the server does not say how long the object is");
    }
    if (const auto modified = http::parse_http_date(head.header("last-modified")))
      info.modified_unix_s = modified->time_since_epoch().count();
    info.details = details_in(head);
    return info;
  }

  const std::shared_ptr<WebProtocol> protocol_;
  StoreTraits traits_;
};

}  // namespace

Result<std::unique_ptr<Store>> open_web_store(const StoreOptions& options,
                                              const Environment& environment) {
  HEADRACE_TRY_ASSIGN(WebConfig config, make_web_config(options));
  auto protocol = std::make_shared<WebProtocol>(std::move(config));
  HEADRACE_TRY_ASSIGN(auto engine, TransferEngine::create(protocol, options, environment));
  return std::unique_ptr<Store>(std::make_unique<WebStore>(std::move(protocol), std::move(engine)));
}

}  // namespace headrace::web
