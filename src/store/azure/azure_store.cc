// Azure has no multipart uploads. An upload is an id of ours; its parts are uncommitted blocks
// whose ids begin with it, and completing it commits the list of them. Hence:
//
// - create_upload() and abort_upload() ask nobody; abort is remembered by this process, and the
//   service drops the blocks after a week, or when something else is committed to the key.
// - Committing the same list twice does the same, so a lost answer is simply asked for again.
// - list_parts() knows an upload's blocks by their ids; blocks that are committed mean that it was
//   completed.
//
// A copy may be pending: it is polled until it is done, and a copy id that is not ours means that
// somebody else wrote the object.
#include "store/azure/azure_store.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <thread>

#include "auth/azure_tokens.h"
#include "base/start_thread.h"
#include "http/uri.h"
#include "store/azure/azure_answers.h"
#include "store/azure/azure_batch.h"
#include "store/azure/azure_errors.h"
#include "store/azure/azure_protocol.h"
#include "store/azure/azure_xml.h"
#include "store/effective_settings.h"
#include "store/engine_store.h"
#include "store/finish_upload.h"
#include "store/list_pager.h"
#include "store/named_version.h"
#include "store/transfer/transfer_engine.h"
#include "store/vendor/error_table.h"

namespace headrace::azure {
namespace {

// Sizes: "Scalability and performance targets for Blob storage", for versions since 2019-12-12.
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
// Accounts with a hierarchical namespace list directory after directory; which kind an account is,
// its address does not tell.
constexpr StoreTraits kTraits{.lists_in_order = false,
                              .can_write = true,
                              .can_list = true,
                              .min_part_bytes = 1,
                              .max_part_bytes = 4000 * kMiB,
                              .max_parts = 10'000,  // of Request::part_number; Azure takes 50,000
                              .max_put_bytes = 5000 * kMiB,
                              .max_copy_bytes = UINT64_MAX,
                              .is_local = false,
                              .object_sums = ObjectSums::kNotNeeded};
constexpr std::string_view kNoContainer = "ContainerNotFound";
/// Single deletes at once, where a batch is refused.
constexpr std::size_t kParallelDeletes = 8;
constexpr std::chrono::milliseconds kMaxCopyPause{5000};  ///< Between two looks at a pending copy.

/// The version that is meant, where one is named.
void add_version(const CallOptions& call, HttpCall& http) {
  if (!call.version_id.empty()) http.query.emplace_back("versionid", call.version_id);
}

class AzureStore final : public EngineStore {
 public:
  AzureStore(std::shared_ptr<AzureProtocol> protocol, std::shared_ptr<TransferEngine> engine,
             const StoreOptions& options)
      : EngineStore(std::move(engine)),
        protocol_(std::move(protocol)),
        clock_(options.clock != nullptr ? *options.clock : system_clock()),
        options_(options) {
    traits_.checks_bodies = options.verify_checksums;
  }

  Result<std::unique_ptr<Store>> new_handle() override {
    return std::unique_ptr<Store>(std::make_unique<AzureStore>(protocol_, engine(), options_));
  }

  Result<ObjectInfo> head(const std::string& key, const CallOptions& call) override;
  Result<ListPage> list(const ListRequest& request, const CallOptions& call) override;
  Status remove(const std::string& key, const CallOptions& call) override;
  Result<ObjectInfo> copy(const std::string& from_key, const std::string& to_key,
                          const CallOptions& call) override;
  Result<ObjectInfo> set_storage_class(const std::string& key, const std::string& storage_class,
                                       const CallOptions& call) override;
  Result<std::string> create_upload(const std::string& key, const CallOptions& call) override;
  Result<ObjectInfo> complete_upload(const std::string& key, const std::string& upload_id,
                                     std::span<const UploadedPart> parts,
                                     const CallOptions& call) override;
  Status abort_upload(const std::string& key, const std::string& upload_id,
                      const CallOptions& call) override;
  std::vector<Status> remove_many(std::span<const std::string> keys,
                                  const CallOptions& call) override;
  Result<std::vector<UploadedPart>> list_parts(const std::string& key, const std::string& upload_id,
                                               const CallOptions& call) override;
  Result<std::string> presign(const PresignRequest& request) override;

  const StoreTraits& traits() const noexcept override { return traits_; }
  const ObjectSettings& settings() const noexcept override { return protocol_->config().settings; }
  Status check_settings(const ObjectSettings& settings) const override {
    return check_azure_settings(settings);
  }
  const std::string& url() const noexcept override { return protocol_->config().root_url; }

 private:
  Result<HttpCall> object_call(const char* method, const std::string& key) const;
  std::string copy_source(const std::string& key, const std::string& version_id) const;
  /// Where a version is named: that the service knows it (emulators do not), before something is
  /// done with it that would be done with the newest.
  Status check_version(const std::string& key, const CallOptions& call) {
    if (call.version_id.empty()) return {};
    auto found = head(key, call);
    return found ? Status() : std::move(found).error();
  }
  Result<ObjectInfo> run_copy(const HttpCall& http, const std::string& to_key,
                              const CallOptions& call);
  Result<ObjectInfo> set_type(const std::string& key, const ObjectInfo& version,
                              ObjectSettings settings, const CallOptions& call);
  Result<ObjectInfo> wait_for_copy(const HttpCall& copy, const std::string& key,
                                   const std::string& copy_id, const CallOptions& call);
  bool remove_batch(std::span<const std::string> keys, const CallOptions& call,
                    std::span<Status> results);
  void remove_singly(std::span<const std::string> keys, const CallOptions& call,
                     std::span<Status> results);
  Status check_call(const std::string& what, const CallOptions& call) const;

  const std::shared_ptr<AzureProtocol> protocol_;
  const Clock& clock_;
  const StoreOptions options_;
  StoreTraits traits_ = kTraits;
};

Result<HttpCall> AzureStore::object_call(const char* method, const std::string& key) const {
  return vendor::object_call(*protocol_, method, key, object_url(key));
}

Status AzureStore::check_call(const std::string& what, const CallOptions& call) const {
  if (call.stop.stop_requested()) return Status(Code::kCancelled, what + ": cancelled");
  if (call.deadline <= clock_.now())
    return Status(Code::kDeadline, what + ": the deadline has passed");
  return {};
}

Result<ObjectInfo> AzureStore::head(const std::string& key, const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(HttpCall http, object_call("HEAD", key));
  add_version(call, http);
  return engine()->call(http, call, [&](const HttpAnswer& answer) -> Result<ObjectInfo> {
    HEADRACE_TRY_ASSIGN(const http::ResponseHead head, head_of(answer));
    if (is_directory(head)) return Status(Code::kNotFound, "it is a directory");
    HEADRACE_TRY_ASSIGN(ObjectInfo info, blob_info(key, head));
    HEADRACE_TRY(check_named_version(info.details.get(), call.version_id));
    return info;
  });
}

Result<ListPage> AzureStore::list(const ListRequest& request, const CallOptions& call) {
  HttpCall http;
  http.what = "LIST " + (request.prefix.empty() ? url() : object_url(request.prefix));
  HEADRACE_TRY(check_page_size(request, http.what));
  // Metadata tells directories of accounts with a hierarchical namespace.
  http.query = {{"restype", "container"},
                {"comp", "list"},
                {"include", "metadata"},
                {"maxresults", std::to_string(request.page_size)}};
  const std::string prefix = protocol_->full_key(request.prefix);
  if (!prefix.empty()) http.query.emplace_back("prefix", prefix);
  if (!request.delimiter.empty()) http.query.emplace_back("delimiter", request.delimiter);
  if (!request.continuation.empty()) http.query.emplace_back("marker", request.continuation);
  return engine()->call(http, call, [&](const HttpAnswer& answer) {
    return next_page(parse_list(answer.body, protocol_->config().prefix), request);
  });
}

Status AzureStore::remove(const std::string& key, const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(HttpCall http, object_call("DELETE", key));
  add_version(call, http);
  Status status = check_version(key, call);
  if (status.code() == Code::kNotFound) return {};
  HEADRACE_TRY(std::move(status));
  auto answer = engine()->call(http, call);
  return answer ? Status() : vendor::without_missing(std::move(answer).error(), kNoContainer);
}

// Copy Blob rather than Copy Blob From URL: within an account it needs no right beyond ours, has no
// limit of size, and is done by the first answer unless the object is in another tier or big. It
// takes metadata and a tier, but no type: that is set afterwards, on the version that was made.
Result<ObjectInfo> AzureStore::copy(const std::string& from_key, const std::string& to_key,
                                    const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(HttpCall http, object_call("PUT", to_key));
  http.what = "COPY " + object_url(from_key) + " to " + object_url(to_key);
  if (Status s = protocol_->check_key(from_key); !s.ok()) return std::move(s).annotate(http.what);
  ObjectSettings room;
  const ObjectSettings& settings =
      effective_settings(protocol_->config().settings, call.settings, room);
  HEADRACE_TRY(check_azure_settings(settings).annotate(http.what));
  HEADRACE_TRY(check_version(from_key, call));
  http.headers = setting_fields(settings_of_copy(settings));
  http.headers.emplace_back("x-ms-copy-source", copy_source(from_key, call.version_id));
  const CallOptions limited{.deadline = engine()->deadline_of(call, kCompleteTime),
                            .stop = call.stop};
  HEADRACE_TRY_ASSIGN(ObjectInfo info, run_copy(http, to_key, limited));
  ObjectSettings type = copied_settings(settings);
  type.metadata.clear();
  if (type.empty()) return info;
  return set_type(to_key, info, settings_over(type, info.details->settings), limited);
}

std::string AzureStore::copy_source(const std::string& key, const std::string& version_id) const {
  std::string source = protocol_->blob_url(key);
  if (!version_id.empty()) source += "?versionid=" + http::encode(version_id, http::Slash::kEscape);
  const std::string& sas = protocol_->config().credentials.sas;
  if (!sas.empty()) source.append(version_id.empty() ? "?" : "&").append(sas);
  return source;
}

Result<ObjectInfo> AzureStore::run_copy(const HttpCall& http, const std::string& to_key,
                                        const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(const HttpAnswer answer, engine()->call(http, call));
  auto head = head_of(answer);
  if (!head) return std::move(head).error().annotate(http.what);
  if (head->header("x-ms-copy-status") == "pending")
    return wait_for_copy(http, to_key, std::string(head->header("x-ms-copy-id")), call);
  return this->head(to_key, call);  // the answer has no size
}

/// Sets type, encoding and the like of a version: all of them, since those that are left out go.
Result<ObjectInfo> AzureStore::set_type(const std::string& key, const ObjectInfo& version,
                                        ObjectSettings settings, const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(HttpCall http, object_call("PUT", key));
  http.what = "SET PROPERTIES of " + object_url(key);
  http.query = {{"comp", "properties"}};
  settings.metadata.clear();
  settings.storage_class.clear();
  http.headers = setting_fields(settings);
  http.headers.emplace_back("if-match", version.etag);
  HEADRACE_TRY_ASSIGN(const HttpAnswer answer, engine()->call(http, call));
  return head(key, call);
}

// Set Blob Tier: nothing is copied, and the version stays.
Result<ObjectInfo> AzureStore::set_storage_class(const std::string& key,
                                                 const std::string& storage_class,
                                                 const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(HttpCall http, object_call("PUT", key));
  http.what = "SET TIER of " + object_url(key);
  http.query = {{"comp", "tier"}};
  ObjectSettings wanted;
  wanted.storage_class = storage_class;
  HEADRACE_TRY(check_azure_settings(wanted).annotate(http.what));
  HEADRACE_TRY_ASSIGN(ObjectInfo info, head(key, {.deadline = call.deadline, .stop = call.stop}));
  if (info.details->settings.storage_class == storage_class) return info;
  http.headers = setting_fields(wanted);
  HEADRACE_TRY_ASSIGN(const HttpAnswer answer, engine()->call(http, call));
  return head(key, {.deadline = call.deadline, .stop = call.stop});
}

Result<ObjectInfo> AzureStore::wait_for_copy(const HttpCall& copy, const std::string& key,
                                             const std::string& copy_id, const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(const HttpCall http, object_call("HEAD", key));
  // Nobody can take it back: ended by hand, it would leave an empty object.
  const std::string_view goes_on =
      ": the service goes on with this copy, which may replace "
      "what is there later";
  std::chrono::milliseconds time{50};
  for (;;) {
    if (Status s = check_call(copy.what, call); !s.ok())
      return Status(s.code(), std::string(s.message()).append(goes_on));
    if (!pause_for(time, call.stop))
      return Status(Code::kCancelled, (copy.what + ": cancelled").append(goes_on));
    time = std::min(2 * time, kMaxCopyPause);
    auto answer = engine()->call(http, call);
    if (!answer) {
      return Status(answer.error().code(),
                    (copy.what + ": " + std::string(answer.error().message())).append(goes_on));
    }
    auto head = head_of(*answer);
    if (!head) return std::move(head).error().annotate(copy.what);
    if (head->header("x-ms-copy-id") != copy_id)
      return Status(Code::kChanged, copy.what + ": the object was written by others meanwhile");
    const std::string_view status = head->header("x-ms-copy-status");
    if (status == "pending") continue;
    if (status != "success") {
      return Status(Code::kUnavailable, copy.what + ": the service ended the copy as \"" +
                                            std::string(status.substr(0, 32)) + "\": " +
                                            std::string(head->header("x-ms-copy-status-"
                                                                     "description")));
    }
    auto info = blob_info(key, *head);
    if (!info) return std::move(info).error().annotate(copy.what);
    return info;
  }
}

Result<std::string> AzureStore::create_upload(const std::string& key, const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(const HttpCall http, object_call("PUT", key));
  const std::string what = "CREATE UPLOAD " + object_url(key);
  HEADRACE_TRY(check_call(what, call));
  auto fields = protocol_->fields_of_write(call.settings);
  if (!fields) return std::move(fields).error().annotate(what);
  return new_upload_id();
}

Result<ObjectInfo> AzureStore::complete_upload(const std::string& key, const std::string& upload_id,
                                               std::span<const UploadedPart> parts,
                                               const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(HttpCall http, object_call("PUT", key));
  http.what = "COMPLETE " + object_url(key);
  if (Status s = protocol_->check_upload(upload_id); !s.ok())
    return std::move(s).annotate(http.what);
  if (parts.empty()) return Status(Code::kInvalidArgument, http.what + ": no parts");
  std::vector<std::string> ids;
  std::uint32_t last = 0;
  std::uint64_t size_bytes = 0;
  bool is_size_known = true;
  for (const UploadedPart& part : parts) {
    if (part.part_number <= last || part.part_number > kTraits.max_parts) {
      return Status(Code::kInvalidArgument,
                    http.what + ": part numbers must ascend from 1 to 10000");
    }
    last = part.part_number;
    const BlockId id = block_id(upload_id, part.part_number);
    ids.emplace_back(id.data(), id.size());
    size_bytes += part.size_bytes;
    is_size_known = is_size_known && part.size_bytes > 0;
  }
  http.query = {{"comp", "blocklist"}};
  auto fields = protocol_->fields_of_write(call.settings);
  if (!fields) return std::move(fields).error().annotate(http.what);
  http.headers = *std::move(fields);
  http.headers.emplace_back("content-type", "application/xml");
  http.body = format_block_list(ids);
  // Blocks that are in the blob already may be named again: a repetition does the same.
  http.answer_timeout = kCompleteAnswerTime;
  HEADRACE_TRY_ASSIGN(
      const HttpAnswer answer,
      engine()->call(http, {engine()->deadline_of(call, kCompleteTime), call.stop}));
  if (!is_size_known) return head(key, call);
  auto head = head_of(answer);
  if (!head) return std::move(head).error().annotate(http.what);
  ObjectInfo info = object_info(key, *head);
  info.size_bytes = size_bytes;
  return info;
}

Status AzureStore::abort_upload(const std::string& key, const std::string& upload_id,
                                const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(const HttpCall http, object_call("PUT", key));
  HEADRACE_TRY(check_call("ABORT " + object_url(key), call));
  if (is_upload_id(upload_id)) protocol_->aborted_uploads().add(upload_id);
  return {};
}

Result<std::vector<UploadedPart>> AzureStore::list_parts(const std::string& key,
                                                         const std::string& upload_id,
                                                         const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(HttpCall http, object_call("GET", key));
  http.what = "LIST PARTS " + object_url(key);
  if (Status s = protocol_->check_upload(upload_id); !s.ok())
    return std::move(s).annotate(http.what);
  http.query = {{"comp", "blocklist"}, {"blocklisttype", "all"}};
  auto blocks = engine()->call(
      http, call, [](const HttpAnswer& answer) { return parse_block_list(answer.body); });
  std::vector<UploadedPart> parts;
  if (!blocks) {
    // No block of it has arrived, which cannot be told from an upload that was never begun.
    Status status = vendor::without_missing(std::move(blocks).error(), kNoContainer);
    if (status.ok()) return parts;
    return status;
  }
  for (const Block& block : *blocks) {
    const auto number = part_of_block(block.id, upload_id);
    if (!number) continue;
    if (block.is_committed)
      return Status(Code::kNotFound, http.what + ": no such upload: it was completed");
    parts.push_back({*number, "", block.size_bytes, ""});
  }
  std::sort(parts.begin(), parts.end(), [](const UploadedPart& a, const UploadedPart& b) {
    return a.part_number < b.part_number;
  });
  return parts;
}

std::vector<Status> AzureStore::remove_many(std::span<const std::string> keys,
                                            const CallOptions& call) {
  if (!call.version_id.empty()) return Store::remove_many(keys, call);
  std::vector<Status> results(keys.size());
  bool is_batch_good = keys.size() > 1;
  for (std::size_t begin = 0; begin < keys.size(); begin += kMaxBatch) {
    const std::size_t count = std::min(kMaxBatch, keys.size() - begin);
    const auto some = keys.subspan(begin, count);
    const auto outcomes = std::span(results).subspan(begin, count);
    if (is_batch_good) is_batch_good = remove_batch(some, call, outcomes);
    if (!is_batch_good) remove_singly(some, call, outcomes);
  }
  return results;
}

/// False when the service does not take the batch: nothing is known of its keys then.
bool AzureStore::remove_batch(std::span<const std::string> keys, const CallOptions& call,
                              std::span<Status> results) {
  HttpCall http;
  http.method = "POST";
  http.query = {{"restype", "container"}, {"comp", "batch"}};
  http.headers = {{"content-type", std::string(kBatchContentType)}};
  http.what = "DELETE " + std::to_string(keys.size()) + " objects in " + url();
  std::vector<std::size_t> sent;
  std::string head;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    results[i] = protocol_->check_key(keys[i]);
    if (!results[i].ok()) continue;
    head.clear();
    // Without credentials yet, single deletes wait for them.
    if (!protocol_->append_batch_delete(keys[i], clock_.wall_now(), head).ok()) return false;
    append_batch_part(sent.size(), head, http.body);
    sent.push_back(i);
  }
  if (sent.empty()) return true;
  finish_batch(http.body);
  auto answer = engine()->call(http, call);
  if (!answer) {
    const Status status = std::move(answer).error();
    const Code code = status.code();
    if (code == Code::kUnsupported || code == Code::kInvalidArgument || code == Code::kDenied)
      return false;
    for (const std::size_t i : sent) results[i] = status.clone();
    return true;
  }
  auto parsed = parse_batch(answer->body, sent.size());
  if (!parsed) return false;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const BatchResult& result = (*parsed)[i];
    const bool is_missing = result.http_status == 404 && result.error_code != "ContainerNotFound";
    const bool is_done = result.http_status >= 200 && result.http_status < 300;
    // A single delete retries, and has the words for a failure.
    if (!is_done && !is_missing) results[sent[i]] = remove(keys[sent[i]], call);
  }
  return true;
}

void AzureStore::remove_singly(std::span<const std::string> keys, const CallOptions& call,
                               std::span<Status> results) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next.fetch_add(1); i < keys.size(); i = next.fetch_add(1))
      results[i] = remove(keys[i], call);
  };
  std::vector<std::jthread> helpers;
  if (!keys.empty()) start_threads(helpers, std::min(kParallelDeletes, keys.size()) - 1, work);
  work();
}

Result<std::string> AzureStore::presign(const PresignRequest& request) {
  const std::string what = "PRESIGN " + object_url(request.key);
  if (Status s = protocol_->check_key(request.key); !s.ok()) return std::move(s).annotate(what);
  HEADRACE_TRY(vendor::check_presign(request, std::chrono::seconds::max()).annotate(what));
  const AzureConfig& config = protocol_->config();
  if (!config.credentials.signer) {
    return Status(Code::kUnsupported, what + ": signed URLs take an account key (credentials: " +
                                          config.credentials.source + ")");
  }
  auth::BlobSas sas;
  sas.container = config.container;
  sas.blob = protocol_->full_key(request.key);
  sas.permissions = request.op == Op::kGet ? "r" : "cw";
  sas.expires = clock_.wall_now() + request.lifetime;
  sas.version_id = request.version_id;
  if (config.endpoint.use_tls) sas.protocol = "https";
  return protocol_->blob_url(request.key) + "?" +
         auth::blob_sas_query(sas, *config.credentials.signer);
}

}  // namespace

Result<AzureConfig> resolve_azure_config(const StoreOptions& options, const StoreUrl& url,
                                         const Environment& environment,
                                         std::shared_ptr<auth::WebClient> web) {
  HEADRACE_TRY_ASSIGN(const AzureLocation location, parse_azure_location(url));
  const auth::FileReader read_file = auth::local_file_reader();
  HEADRACE_TRY_ASSIGN(const auto settings,
                      auth::resolve_azure_settings(location.account, environment, read_file));
  if (settings.identity && web == nullptr && !options.anonymous) {
    return Status(Code::kUnsupported, location.root_url + ": " + settings.credentials_source +
                                          " needs a token, and nothing here can fetch one");
  }
  const TokenFactory make_tokens = [&](auth::AzureIdentity identity, const std::string& source) {
    return auth::azure_tokens(std::move(identity), source, web, read_file, options.clock);
  };
  return make_azure_config(options, location, settings, make_tokens);
}

Result<std::unique_ptr<Store>> open_azure_store(const StoreOptions& options, const StoreUrl& url,
                                                const Environment& environment,
                                                std::shared_ptr<auth::WebClient> web) {
  HEADRACE_TRY_ASSIGN(AzureConfig config,
                      resolve_azure_config(options, url, environment, std::move(web)));
  auto protocol = std::make_shared<AzureProtocol>(std::move(config));
  HEADRACE_TRY_ASSIGN(auto engine, TransferEngine::create(protocol, options, environment));
  return std::unique_ptr<Store>(
      std::make_unique<AzureStore>(std::move(protocol), std::move(engine), options));
}

}  // namespace headrace::azure
