#pragma once
// A store of one's own: objects are what a function of the program gives, here those of a map in
// memory. Everything above a store (datasets, loaders, caches, copies) works on it.
//
// The whole contract is in headrace/store.h. What a store with slow objects does otherwise:
// submit() only queues, threads of its own move the bytes, and completions come in any order.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "headrace/store.h"

/// Read-only. Each handle has completions of its own; all share the objects, which never change.
class MapStore final : public headrace::Store {
 public:
  using Objects = std::map<std::string, std::string, std::less<>>;

  MapStore(std::string url, std::shared_ptr<const Objects> objects)
      : url_(std::move(url)), objects_(std::move(objects)) {}

  std::size_t submit(std::span<headrace::Request> requests) override {
    const std::lock_guard lock(mutex_);
    if (is_stopped_) return 0;
    // As many as this handle has room for; a short count is no error, callers try again.
    const std::size_t count = std::min(requests.size(), kMostOutstanding - done_.size());
    for (headrace::Request& request : requests.first(count)) done_.push_back(answer(request));
    changed_.notify_all();
    return count;
  }

  std::size_t wait(std::span<headrace::Completion> out, headrace::TimePoint until,
                   std::stop_token stop = {}) override {
    const std::stop_callback waker(stop, [this] { wake(); });
    std::unique_lock lock(mutex_);
    const auto has_news = [&] {
      return !done_.empty() || is_woken_ || is_stopped_ || stop.stop_requested();
    };
    // Without a deadline, since wait_until() may not count as far as TimePoint::max().
    if (until == headrace::TimePoint::max()) {
      changed_.wait(lock, has_news);
    } else {
      changed_.wait_until(lock, until, has_news);
    }
    is_woken_ = false;
    std::size_t count = 0;
    for (; count < out.size() && !done_.empty(); ++count) {
      out[count] = std::move(done_.front());
      done_.pop_front();
    }
    return count;
  }

  void wake() noexcept override {
    const std::lock_guard lock(mutex_);
    is_woken_ = true;
    changed_.notify_all();
  }

  // Whatever was accepted is done already.
  void cancel(std::uint64_t) override {}
  void stop() noexcept override {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    changed_.notify_all();
  }

  headrace::Result<std::unique_ptr<headrace::Store>> new_handle() override {
    return std::unique_ptr<headrace::Store>(std::make_unique<MapStore>(url_, objects_));
  }

  headrace::Result<headrace::ObjectInfo> head(const std::string& key,
                                              const headrace::CallOptions& = {}) override {
    const auto found = objects_->find(key);
    if (found == objects_->end()) return no_such_object(key);
    return info_of(*found);
  }

  headrace::Result<headrace::ListPage> list(const headrace::ListRequest& request,
                                            const headrace::CallOptions& = {}) override {
    headrace::ListPage page;
    std::string last = request.continuation;  // A key, or a common prefix.
    for (auto it = objects_->upper_bound(last); it != objects_->end(); ++it) {
      const std::string& key = it->first;
      if (!key.starts_with(request.prefix) || is_covered(key, last, request.delimiter)) continue;
      if (page.objects.size() + page.common_prefixes.size() == request.page_size) {
        page.continuation = last;
        break;
      }
      const std::size_t cut = request.delimiter.empty()
                                  ? std::string::npos
                                  : key.find(request.delimiter, request.prefix.size());
      if (cut == std::string::npos) {
        page.objects.push_back(info_of(*it));
        last = key;
      } else {
        last = key.substr(0, cut + request.delimiter.size());
        page.common_prefixes.push_back(last);
      }
    }
    return page;
  }

  headrace::Status remove(const std::string& key, const headrace::CallOptions& = {}) override {
    return read_only(key);
  }
  headrace::Result<headrace::ObjectInfo> copy(const std::string&, const std::string& to_key,
                                              const headrace::CallOptions& = {}) override {
    return read_only(to_key);
  }
  headrace::Result<std::string> create_upload(const std::string& key,
                                              const headrace::CallOptions& = {}) override {
    return read_only(key);
  }
  headrace::Result<headrace::ObjectInfo> complete_upload(
      const std::string& key, const std::string&, std::span<const headrace::UploadedPart>,
      const headrace::CallOptions& = {}) override {
    return read_only(key);
  }
  headrace::Status abort_upload(const std::string& key, const std::string&,
                                const headrace::CallOptions& = {}) override {
    return read_only(key);
  }

  const headrace::StoreTraits& traits() const noexcept override {
    static const headrace::StoreTraits kTraits = [] {
      headrace::StoreTraits traits;
      traits.can_write = false;
      traits.is_local = true;
      return traits;
    }();
    return kTraits;
  }
  const std::string& url() const noexcept override { return url_; }
  void append_metrics(headrace::MetricList&) const override {}

 private:
  static constexpr std::size_t kMostOutstanding = 1024;

  static headrace::ObjectInfo info_of(const Objects::value_type& object) {
    headrace::ObjectInfo info;
    info.key = object.first;
    info.size_bytes = object.second.size();
    info.etag = version();
    return info;
  }
  /// Objects never change: all have the same version.
  static std::string version() { return "\"1\""; }
  /// Whether a key lies below the common prefix that was listed last.
  static bool is_covered(std::string_view key, std::string_view last, std::string_view delimiter) {
    return !delimiter.empty() && last.ends_with(delimiter) && key.starts_with(last);
  }
  headrace::Status no_such_object(std::string_view key) const {
    return {headrace::Code::kNotFound, object_url(key) + ": no such object"};
  }
  headrace::Status read_only(std::string_view key) const {
    return {headrace::Code::kUnsupported, object_url(key) + ": this store is read-only"};
  }

  /// Each request that was accepted has one completion, and gets its slab back.
  headrace::Completion answer(headrace::Request& request) const {
    headrace::Completion completion;
    completion.tag = request.tag;
    completion.submitted = completion.sent = completion.first_byte = headrace::system_clock().now();
    completion.status = read(request, completion);
    completion.slab = std::move(request.slab);
    completion.finished = headrace::system_clock().now();
    return completion;
  }

  headrace::Status read(const headrace::Request& request, headrace::Completion& out) const {
    using headrace::Code;
    using headrace::Status;
    if (request.op != headrace::Op::kGet) return read_only(request.key);
    const auto found = objects_->find(request.key);
    if (found == objects_->end()) return no_such_object(request.key);
    const std::string& bytes = found->second;
    const std::string name = object_url(request.key);
    if (!request.etag.empty() && request.etag != version())
      return Status(Code::kChanged, name + ": the object is version " + version());
    const std::span<std::byte> slab = request.slab.bytes();
    if (request.slab_offset_bytes > slab.size() ||
        request.length_bytes > slab.size() - request.slab_offset_bytes)
      return Status(Code::kInvalidArgument, name + ": the slab is too small");
    const std::size_t begin = std::min<std::size_t>(request.offset_bytes, bytes.size());
    const std::size_t length = std::min<std::size_t>(request.length_bytes, bytes.size() - begin);
    if (length < request.length_bytes && !request.allow_short)
      return Status(Code::kCorrupt, name + ": the object ends before the range does");
    if (length > 0)
      std::memcpy(slab.data() + request.slab_offset_bytes, bytes.data() + begin, length);
    out.length_bytes = length;
    out.object_size_bytes = bytes.size();
    if (request.etag.empty()) out.etag = version();
    return {};
  }

  const std::string url_;
  const std::shared_ptr<const Objects> objects_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<headrace::Completion> done_;
  bool is_woken_ = false;
  bool is_stopped_ = false;
};
