#pragma once
/// \file
/// FakeStore: objects in a map, served in the thread that waits (or closes the handle); counts
/// requests and misbehaves on demand. For tests of src/io and src/shard: contract-true enough for
/// whoever reads, far from a store.
///
/// Threads: one.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "base/crc32c.h"
#include "headrace/store.h"

namespace headrace::testing {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  return std::move(content).str();
}

class FakeStore final : public Store {
 public:
  struct Object {
    std::string bytes;
    std::string etag;
  };
  struct Shared {
    std::map<std::string, Object> objects;
    std::atomic<std::uint64_t> get_count = 0;
    std::atomic<std::uint64_t> get_bytes = 0;
    std::atomic<std::uint64_t> missed_count = 0;  ///< GETs of keys that are not there.
    std::atomic<std::size_t> most_in_flight = 0;  ///< Requests not taken, of one handle.
    std::atomic<std::uint64_t> head_count = 0;
    std::atomic<std::uint64_t> list_count = 0;
    std::atomic<std::uint64_t> next_version = 1;
    std::function<void()> after_list;  ///< Runs when a listing has been made.
    /// What the wire does to the bytes of a GET of a key.
    std::function<void(std::string_view, std::span<std::byte>)> on_get;
    StoreTraits traits;                        ///< Set before handles are made.
    std::atomic<std::uint64_t> sum_count = 0;  ///< kHead requests.
    Code sum_error = Code::kOk;                ///< Of kHead requests.
  };

  explicit FakeStore(std::string url = "fake://data")
      : url_(std::move(url)), shared_(std::make_shared<Shared>()) {}

  /// As a store's own threads may, reads the names of requests in flight to the end.
  FakeStore(FakeStore&&) = default;
  FakeStore& operator=(FakeStore&&) = default;
  ~FakeStore() override {
    for (Request& request : waiting_) serve(std::move(request));
  }

  /// Adds every file below `root`.
  void load(const std::filesystem::path& root) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      if (entry.is_regular_file()) {
        set(std::filesystem::relative(entry.path(), root).string(), read_file(entry.path()));
      }
    }
  }
  /// Writes an object, under a new version.
  void set(const std::string& key, std::string bytes) {
    shared_->objects[key] = {std::move(bytes),
                             "\"v" + std::to_string(shared_->next_version++) + "\""};
  }
  Shared& shared() { return *shared_; }
  std::uint64_t request_count() const {
    return shared_->get_count + shared_->head_count + shared_->list_count;
  }

  std::size_t submit(std::span<Request> requests) override {
    for (Request& request : requests) waiting_.push_back(std::move(request));
    std::size_t most = shared_->most_in_flight;
    while (most < waiting_.size() &&
           !shared_->most_in_flight.compare_exchange_weak(most, waiting_.size())) {
    }
    return requests.size();
  }
  std::size_t wait(std::span<Completion> out, TimePoint, std::stop_token) override {
    std::size_t count = 0;
    while (count < out.size() && !waiting_.empty()) {
      out[count++] = serve(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    return count;
  }
  void wake() noexcept override {}
  void cancel(std::uint64_t) override {}
  void stop() noexcept override {}
  Result<std::unique_ptr<Store>> new_handle() override {
    auto handle = std::make_unique<FakeStore>(url_);
    handle->shared_ = shared_;
    return std::unique_ptr<Store>(std::move(handle));
  }
  Result<ObjectInfo> head(const std::string& key, const CallOptions&) override {
    ++shared_->head_count;
    const auto found = shared_->objects.find(key);
    if (found == shared_->objects.end()) return Status(Code::kNotFound, "HEAD " + object_url(key));
    return info_of(*found);
  }
  Result<ListPage> list(const ListRequest& request, const CallOptions&) override {
    ++shared_->list_count;
    ListPage page;
    for (const auto& object : shared_->objects) {
      if (object.first.starts_with(request.prefix)) page.objects.push_back(info_of(object));
    }
    if (shared_->after_list) shared_->after_list();
    return page;
  }
  Status remove(const std::string& key, const CallOptions&) override {
    shared_->objects.erase(key);
    return Status();
  }
  Result<ObjectInfo> copy(const std::string&, const std::string&, const CallOptions&) override {
    return unsupported();
  }
  Result<std::string> create_upload(const std::string&, const CallOptions&) override {
    return unsupported();
  }
  Result<ObjectInfo> complete_upload(const std::string&, const std::string&,
                                     std::span<const UploadedPart>, const CallOptions&) override {
    return unsupported();
  }
  Status abort_upload(const std::string&, const std::string&, const CallOptions&) override {
    return unsupported();
  }
  const std::string& url() const noexcept override { return url_; }
  const StoreTraits& traits() const noexcept override { return shared_->traits; }
  void append_metrics(MetricList&) const override {}

 private:
  static Status unsupported() { return Status(Code::kUnsupported, "FakeStore reads only"); }
  static ObjectInfo info_of(const std::pair<const std::string, Object>& object) {
    ObjectInfo info;
    info.key = object.first;
    info.size_bytes = object.second.bytes.size();
    info.etag = object.second.etag;
    return info;
  }
  Completion serve(Request request) {
    Completion done;
    done.tag = request.tag;
    done.slab = std::move(request.slab);
    const bool is_head = request.op == Op::kHead;
    ++(is_head ? shared_->sum_count : shared_->get_count);
    const auto found = shared_->objects.find(std::string(request.key));
    if (request.op != Op::kGet && !is_head) {
      done.status = unsupported();
    } else if (is_head && shared_->sum_error != Code::kOk) {
      done.status = Status(shared_->sum_error, "HEAD " + object_url(request.key) + ": refused");
    } else if (found == shared_->objects.end()) {
      ++shared_->missed_count;
      done.status = Status(Code::kNotFound, "GET " + object_url(request.key) + ": not found");
    } else if (!request.etag.empty() && request.etag != found->second.etag) {
      done.status = Status(Code::kChanged, "GET " + object_url(request.key) + ": changed");
    } else {
      if (is_head) done.object_size_bytes = found->second.bytes.size();
      if (!is_head) fill(request, found->second, done);
      const ObjectSums sums = traits().object_sums;
      if (sums == (is_head ? ObjectSums::kHead : ObjectSums::kEveryGet))
        done.object_checksum = {ChecksumKind::kCrc32c,
                                crc32c(std::as_bytes(std::span(found->second.bytes)))};
    }
    return done;
  }
  void fill(const Request& request, const Object& object, Completion& done) {
    done.object_size_bytes = object.bytes.size();
    if (request.etag.empty()) done.etag = object.etag;
    if (request.offset_bytes > object.bytes.size() ||
        (!request.allow_short &&
         request.length_bytes > object.bytes.size() - request.offset_bytes)) {
      done.status =
          Status(Code::kCorrupt, "GET " + object_url(request.key) + ": object is shorter");
      return;
    }
    done.length_bytes =
        std::min<std::uint64_t>(request.length_bytes, object.bytes.size() - request.offset_bytes);
    std::memcpy(done.slab.bytes().data() + request.slab_offset_bytes,
                object.bytes.data() + request.offset_bytes, done.length_bytes);
    if (shared_->on_get && done.length_bytes > 0) {
      shared_->on_get(request.key,
                      done.slab.bytes().subspan(request.slab_offset_bytes, done.length_bytes));
    }
    shared_->get_bytes += done.length_bytes;
  }

  std::string url_;
  std::shared_ptr<Shared> shared_;
  std::deque<Request> waiting_;
};

}  // namespace headrace::testing
