#include "store/s3/s3_store.h"

#include "auth/aws_fetch.h"
#include "http/uri.h"
#include "store/engine_store.h"
#include "store/s3/express_session.h"
#include "store/s3/s3_control.h"
#include "store/s3/s3_protocol.h"
#include "store/transfer/transfer_engine.h"

namespace headrace::s3 {
namespace {

class S3Store final : public EngineStore {
 public:
  S3Store(Clock& clock, std::shared_ptr<S3Protocol> protocol,
          std::shared_ptr<TransferEngine> engine, std::shared_ptr<S3Control> control)
      : EngineStore(std::move(engine)),
        clock_(clock),
        protocol_(std::move(protocol)),
        control_(std::move(control)) {}

  Result<std::unique_ptr<Store>> new_handle() override {
    return std::unique_ptr<Store>(std::make_unique<S3Store>(clock_, protocol_, engine(), control_));
  }

  Result<ObjectInfo> head(const std::string& key, const CallOptions& call) override {
    return control_->head(key, call);
  }
  Result<ListPage> list(const ListRequest& request, const CallOptions& call) override {
    return control_->list(request, call);
  }
  Status remove(const std::string& key, const CallOptions& call) override {
    return control_->remove(key, call);
  }
  std::vector<Status> remove_many(std::span<const std::string> keys,
                                  const CallOptions& call) override {
    return control_->remove_many(keys, call);
  }
  Result<ObjectInfo> copy(const std::string& from_key, const std::string& to_key,
                          const CallOptions& call) override {
    return control_->copy(from_key, to_key, call);
  }
  Result<ObjectInfo> set_storage_class(const std::string& key, const std::string& storage_class,
                                       const CallOptions& call) override {
    return control_->set_storage_class(key, storage_class, call);
  }
  Result<std::string> create_upload(const std::string& key, const CallOptions& call) override {
    return control_->create_upload(key, call);
  }
  Result<ObjectInfo> complete_upload(const std::string& key, const std::string& upload_id,
                                     std::span<const UploadedPart> parts,
                                     const CallOptions& call) override {
    return control_->complete_upload(key, upload_id, parts, call);
  }
  Status abort_upload(const std::string& key, const std::string& upload_id,
                      const CallOptions& call) override {
    return control_->abort_upload(key, upload_id, call);
  }
  Result<std::vector<UploadedPart>> list_parts(const std::string& key, const std::string& upload_id,
                                               const CallOptions& call) override {
    return control_->list_parts(key, upload_id, call);
  }
  Result<std::vector<PendingUpload>> list_uploads(const std::string& prefix,
                                                  const CallOptions& call) override {
    return control_->list_uploads(prefix, call);
  }
  Result<std::string> presign(const PresignRequest& request) override {
    auto url = protocol_->presign(request, clock_.wall_now());
    if (!url) return std::move(url).error().annotate("PRESIGN " + object_url(request.key));
    return url;
  }

  const StoreTraits& traits() const noexcept override { return control_->traits(); }
  const ObjectSettings& settings() const noexcept override { return protocol_->config().settings; }
  Status check_settings(const ObjectSettings& settings) const override {
    return check_s3_settings(settings);
  }
  const std::string& url() const noexcept override { return protocol_->config().root_url; }

 private:
  Clock& clock_;
  const std::shared_ptr<S3Protocol> protocol_;
  const std::shared_ptr<S3Control> control_;
};

}  // namespace

Result<S3Config> resolve_s3_config(const StoreOptions& options, const StoreUrl& url,
                                   const Environment& environment,
                                   const std::shared_ptr<auth::WebClient>& web) {
  auto resolved = auth::resolve_aws_settings(environment, auth::local_file_reader());
  // Unsigned requests need no credentials: not even ones that are well-formed.
  if (!resolved && !options.anonymous)
    return std::move(resolved).error().annotate(http::without_secrets(url.root));
  const auth::AwsSettings settings = resolved ? *std::move(resolved) : auth::AwsSettings();
  Clock& clock = options.clock != nullptr ? *options.clock : system_clock();
  std::shared_ptr<auth::CredentialProvider> provider;
  if (!options.anonymous && (settings.credentials || web != nullptr)) {
    provider = auth::make_aws_provider(settings, auth::local_aws_world(web, environment, &clock));
  }
  return make_s3_config(options, url, settings, std::move(provider));
}

Result<std::unique_ptr<Store>> open_s3_store(const StoreOptions& options, const StoreUrl& url,
                                             const Environment& environment,
                                             std::shared_ptr<auth::WebClient> web) {
  Clock& clock = options.clock != nullptr ? *options.clock : system_clock();
  HEADRACE_TRY_ASSIGN(auto config, resolve_s3_config(options, url, environment, web));
  const auto server_clock = std::make_shared<ServerClock>();
  std::shared_ptr<auth::CredentialProvider> sessions;
  if (config.is_express && config.credentials != nullptr) {
    if (web == nullptr) {
      return Status(Code::kUnsupported,
                    url.root + ": directory buckets need a client that fetches their sessions");
    }
    HEADRACE_TRY_ASSIGN(sessions, express_sessions({config, std::move(web), server_clock,
                                                    [&clock] { return clock.wall_now(); }}));
  }
  HEADRACE_TRY_ASSIGN(auto protocol,
                      S3Protocol::create(std::move(config), std::move(sessions), server_clock));
  HEADRACE_TRY_ASSIGN(auto engine, TransferEngine::create(protocol, options, environment));
  auto control = std::make_shared<S3Control>(protocol, engine);
  return std::unique_ptr<Store>(
      std::make_unique<S3Store>(clock, std::move(protocol), std::move(engine), std::move(control)));
}

}  // namespace headrace::s3
