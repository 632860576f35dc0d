// An object's bytes never change; a write replaces the pointer. So a read copies under no lock,
// and what it copies is one version even while another one is being written. Everything else,
// conditions included, happens under one mutex: this store is for tests.
//
// ETags come from a counter: equal bytes written twice are two versions, as at stores with
// versions. Before it stands a number that no other store has: what somebody keeps of one of this
// name, of this process or another, is never taken for this one's.
#include "store/memory/memory_store.h"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "store/list_pager.h"
#include "store/local_store.h"

namespace headrace {
namespace {

constexpr std::string_view kScheme = "memory://";

/// Content never changes once stored; writers replace the pointer.
struct Object {
  std::shared_ptr<const std::string> bytes;
  std::string etag;
  std::int64_t modified_unix_s = 0;
  std::shared_ptr<const ObjectDetails> details;
};

class MemoryBackend final : public LocalBackend {
 public:
  explicit MemoryBackend(const Clock& clock) : clock_(clock) {}

  Status get(const Request& request, std::span<std::byte> bytes, const Interrupt&,
             Transferred& out) override {
    HEADRACE_TRY_ASSIGN(const Object object, find(request.key));
    if (!request.etag.empty() && request.etag != object.etag) return changed(object.etag);
    HEADRACE_TRY_ASSIGN(out.length_bytes, readable_bytes(request, object.bytes->size()));
    if (out.length_bytes > 0)
      std::memcpy(bytes.data(), object.bytes->data() + request.offset_bytes, out.length_bytes);
    out.object_size_bytes = object.bytes->size();
    out.etag = object.etag;
    if (request.wants_details) out.details = object.details;
    return {};
  }

  Status put(const Request& request, std::span<const std::byte> bytes, const Interrupt&,
             Transferred& out) override {
    auto content = std::make_shared<const std::string>(as_text(bytes));
    MutexLock lock(mutex_);
    const auto it = objects_.find(request.key);
    if (request.if_absent && it != objects_.end())
      return Status(Code::kChanged, "the object exists");
    if (!request.etag.empty()) {
      if (it == objects_.end()) return Status(Code::kNotFound, "no such object");
      if (it->second.etag != request.etag) return changed(it->second.etag);
    }
    out.etag = store(std::string(request.key), std::move(content), *request.settings).etag;
    out.length_bytes = bytes.size();
    return {};
  }

  Status put_part(const Request& request, std::span<const std::byte> bytes, const Interrupt&,
                  Transferred& out) override {
    auto content = std::make_shared<const std::string>(as_text(bytes));
    MutexLock lock(mutex_);
    HEADRACE_TRY_ASSIGN(Upload * upload, find_upload(request.key, request.upload_id));
    Object& part = upload->parts[request.part_number];
    part.bytes = std::move(content);
    part.etag = next_etag();
    out.etag = part.etag;
    out.length_bytes = bytes.size();
    return {};
  }

  Result<ObjectInfo> head(const std::string& key) override {
    HEADRACE_TRY_ASSIGN(const Object object, find(key));
    return info_of(key, object);
  }

  Result<ListPage> list(const ListRequest& request, const Interrupt& interrupt) override {
    ListPager pager(request);
    HEADRACE_TRY(pager.check());
    const std::string& token = request.continuation;
    MutexLock lock(mutex_);
    auto it = objects_.lower_bound(token.empty() ? std::string_view(request.prefix)
                                                 : std::string_view(token).substr(1));
    for (std::size_t seen = 0; it != objects_.end(); ++it) {
      const auto& [key, object] = *it;
      if (++seen % 1024 == 0) HEADRACE_TRY(interrupt.check());
      if (key > request.prefix && !key.starts_with(request.prefix)) break;
      if (!pager.wants(key)) continue;
      const std::string_view common = pager.rolled_up(key);
      if (!(common.empty() ? pager.add_object(listed(key, object))
                           : pager.add_common_prefix(common)))
        break;
    }
    return pager.take();
  }

  Status remove(const std::string& key) override {
    MutexLock lock(mutex_);
    objects_.erase(key);
    return {};
  }

  Result<ObjectInfo> copy(const std::string& from_key, const std::string& to_key,
                          const ObjectSettings& settings, const Interrupt&) override {
    HEADRACE_TRY_ASSIGN(const Object object, find(from_key));
    MutexLock lock(mutex_);
    return info_of(to_key,
                   store(to_key, object.bytes,
                         settings_over(settings, copied_settings(object.details->settings))));
  }

  Result<std::string> create_upload(const std::string& key,
                                    const ObjectSettings& settings) override {
    MutexLock lock(mutex_);
    std::string id = "upload-" + std::to_string(++last_version_);
    uploads_[id].key = key;
    uploads_[id].settings = settings;
    return id;
  }

  Result<ObjectInfo> complete_upload(const std::string& key, const std::string& upload_id,
                                     std::span<const UploadedPart> parts,
                                     const Interrupt&) override {
    MutexLock lock(mutex_);
    HEADRACE_TRY_ASSIGN(Upload * upload, find_upload(key, upload_id));
    std::string bytes;
    for (const UploadedPart& part : parts) {
      const auto it = upload->parts.find(part.part_number);
      if (it == upload->parts.end() || it->second.etag != part.etag) {
        return Status(Code::kInvalidArgument,
                      "part " + std::to_string(part.part_number) + " was not uploaded as named");
      }
      bytes += *it->second.bytes;
    }
    const ObjectSettings settings = std::move(upload->settings);
    uploads_.erase(upload_id);
    return info_of(key,
                   store(key, std::make_shared<const std::string>(std::move(bytes)), settings));
  }

  Status abort_upload(const std::string& key, const std::string& upload_id) override {
    MutexLock lock(mutex_);
    HEADRACE_TRY_ASSIGN(Upload * upload, find_upload(key, upload_id));
    static_cast<void>(upload);
    uploads_.erase(upload_id);
    return {};
  }

 private:
  struct Upload {
    std::string key;
    ObjectSettings settings;
    std::map<std::uint32_t, Object> parts;
  };

  static std::string_view as_text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  static Status changed(const std::string& etag) {
    return Status(Code::kChanged, "the object is now version " + etag);
  }
  static ObjectInfo listed(const std::string& key, const Object& object) {
    return {.key = key,
            .size_bytes = object.bytes->size(),
            .etag = object.etag,
            .modified_unix_s = object.modified_unix_s,
            .details = {},
            .storage_class = object.details->settings.storage_class};
  }
  static ObjectInfo info_of(const std::string& key, const Object& object) {
    ObjectInfo info = listed(key, object);
    info.details = object.details;
    return info;
  }
  Result<Object> find(std::string_view key) HEADRACE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const auto it = objects_.find(key);
    if (it == objects_.end()) return Status(Code::kNotFound, "no such object");
    return it->second;
  }
  Result<Upload*> find_upload(std::string_view key, std::string_view upload_id)
      HEADRACE_REQUIRES(mutex_) {
    const auto it = uploads_.find(upload_id);
    if (it == uploads_.end() || it->second.key != key)
      return Status(Code::kNotFound, "no such upload");
    return &it->second;
  }
  std::string next_etag() HEADRACE_REQUIRES(mutex_) {
    return fmt::format("\"{:016x}-{}\"", instance_, ++last_version_);
  }
  const Object& store(const std::string& key, std::shared_ptr<const std::string> bytes,
                      ObjectSettings settings) HEADRACE_REQUIRES(mutex_) {
    settings.acl.clear();  // as no store tells it
    Object& object = objects_[key];
    object = {std::move(bytes), next_etag(), clock_.wall_now().time_since_epoch().count(),
              std::make_shared<const ObjectDetails>(ObjectDetails{std::move(settings), {}})};
    return object;
  }

  static std::uint64_t random_number() {
    std::random_device random;
    return std::uint64_t{random()} << 32 | random();
  }

  const Clock& clock_;
  const std::uint64_t instance_ = random_number();
  Mutex mutex_;
  std::uint64_t last_version_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Object, std::less<>> objects_ HEADRACE_GUARDED_BY(mutex_);
  std::map<std::string, Upload, std::less<>> uploads_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace

Result<std::unique_ptr<Store>> open_memory_store(const StoreOptions& options) {
  std::string url = options.url;
  if (!url.starts_with(kScheme))
    return Status(Code::kInvalidArgument, url + ": not a memory:// URL");
  while (url.size() > kScheme.size() && url.back() == '/') url.pop_back();
  Clock& clock = options.clock != nullptr ? *options.clock : system_clock();
  return make_local_store(
      std::make_unique<MemoryBackend>(clock),
      {.url = std::move(url),
       .accept_limit = std::size_t{options.queue_capacity} + options.max_in_flight,
       .default_timeout = options.default_timeout,
       .clock = &clock,
       .keeps_settings = true,
       .settings = options.settings});
}

}  // namespace headrace
