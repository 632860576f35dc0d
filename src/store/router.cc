// One queue over several stores: each has a pump, a thread that waits for its completions and
// pushes them into ours. Stores have reactors of their own and no common one to wait on; the price
// is one hand-over for each lot of completions.
//
// - A request is counted as accepted under the lock under which pumps push, so that no completion
//   comes before its request was accepted.
// - A pump starts with the first request to its store, and ends when the router is stopped and
//   nothing of it is under way.
// - Keys of other stores' numbers, and writes, are refused in a completion: submit() has no
//   errors.
#include "headrace/router.h"

#include <array>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "base/start_thread.h"
#include "store/completion_queue.h"
#include "store/route.h"

namespace headrace {
namespace {

/// Accepted and not taken yet, all stores together: four times what one store takes by default.
constexpr std::size_t kCapacity = std::size_t{1} << 14;

class Router final : public Store {
 public:
  explicit Router(std::vector<std::unique_ptr<Store>> stores) : queue_(kCapacity) {
    for (auto& store : stores) {
      url_ += (url_.empty() ? "" : " + ") + store->url();
      const StoreTraits& traits = store->traits();
      if (!traits.is_local) traits_.is_local = false;
      // Each way of finding sums is for all keys: what only some of the stores do, none does.
      const bool is_first = lines_.empty();
      const bool is_same = is_first || traits.object_sums == traits_.object_sums;
      traits_.object_sums = is_same ? traits.object_sums : ObjectSums::kWholeReads;
      traits_.checks_bodies = traits_.checks_bodies && traits.checks_bodies;
      lines_.push_back(std::make_unique<Line>());
      lines_.back()->store = std::move(store);
    }
  }

  ~Router() override {
    stop();
    for (auto& line : lines_) {
      if (line->pump.joinable()) line->pump.join();
    }
  }

  std::size_t submit(std::span<Request> requests) override {
    // Under the lock, so that a pump does not push what was not accepted yet.
    MutexLock lock(mutex_);
    if (is_stopped_) return 0;
    std::size_t count = 0;
    while (count < requests.size() && queue_.outstanding() < kCapacity) {
      const auto route = parse_route(requests[count].key, lines_.size());
      const Status problem =
          route ? start_pump(*lines_[route->store]) : refusal_of(requests[count]);
      if (!problem.ok()) {
        static_cast<void>(queue_.accept(1));
        end(requests[count], problem);
        ++count;
        continue;
      }
      Line& line = *lines_[route->store];
      Request& request = requests[count];
      const std::string_view whole = std::exchange(request.key, route->key);
      if (line.store->submit({&request, 1}) == 0) {
        // Not accepted: the caller keeps the request as it was.
        request.key = whole;
        break;
      }
      static_cast<void>(queue_.accept(1));
      ++line.in_flight;
      ++count;
    }
    return count;
  }

  std::size_t wait(std::span<Completion> out, TimePoint until, std::stop_token stop) override {
    return queue_.wait(out, until, std::move(stop));
  }
  void wake() noexcept override { queue_.wake(); }
  void cancel(std::uint64_t tag) override {
    for (auto& line : lines_) line->store->cancel(tag);
  }
  void stop() noexcept override {
    {
      MutexLock lock(mutex_);
      is_stopped_ = true;
      queue_.close();
    }
    for (auto& line : lines_) {
      line->store->stop();
      line->store->wake();
    }
  }
  Result<std::unique_ptr<Store>> new_handle() override {
    std::vector<std::unique_ptr<Store>> handles;
    for (auto& line : lines_) {
      HEADRACE_TRY_ASSIGN(auto handle, line->store->new_handle());
      handles.push_back(std::move(handle));
    }
    return std::unique_ptr<Store>(std::make_unique<Router>(std::move(handles)));
  }

  Result<ObjectInfo> head(const std::string& key, const CallOptions& call) override {
    const auto route = parse_route(key, lines_.size());
    if (!route) return unknown(key);
    HEADRACE_TRY_ASSIGN(auto info,
                        lines_[route->store]->store->head(std::string(route->key), call));
    info.key = key;
    return info;
  }
  Result<std::string> presign(const PresignRequest& request) override {
    const auto route = parse_route(request.key, lines_.size());
    if (!route) return unknown(request.key);
    PresignRequest inner = request;
    inner.key = std::string(route->key);
    return lines_[route->store]->store->presign(inner);
  }
  Result<ListPage> list(const ListRequest&, const CallOptions&) override { return read_only(); }
  Status remove(const std::string&, const CallOptions&) override { return read_only(); }
  Result<ObjectInfo> copy(const std::string&, const std::string&, const CallOptions&) override {
    return read_only();
  }
  Result<std::string> create_upload(const std::string&, const CallOptions&) override {
    return read_only();
  }
  Result<ObjectInfo> complete_upload(const std::string&, const std::string&,
                                     std::span<const UploadedPart>, const CallOptions&) override {
    return read_only();
  }
  Status abort_upload(const std::string&, const std::string&, const CallOptions&) override {
    return read_only();
  }

  bool wants_foresight() const noexcept override {
    return std::any_of(lines_.begin(), lines_.end(),
                       [](const auto& line) { return line->store->wants_foresight(); });
  }
  /// Counts of several stores are not one number: it names what they were.
  std::uint64_t read_count() const noexcept override {
    std::vector<std::uint64_t> counts;
    for (const auto& line : lines_) counts.push_back(line->store->read_count());
    MutexLock lock(counts_mutex_);
    if (counts_.size() == kMostCounts) counts_.erase(counts_.begin());
    counts_.emplace_back(++counted_, std::move(counts));
    return counted_;
  }
  void foresee(std::span<const ForeseenRead> reads, std::uint64_t since) override {
    std::vector<std::vector<ForeseenRead>> parts(lines_.size());
    for (ForeseenRead read : reads) {
      const auto route = parse_route(read.key, lines_.size());
      if (!route) continue;
      read.key = route->key;
      parts[route->store].push_back(read);
    }
    std::vector<std::uint64_t> counts;
    {
      MutexLock lock(counts_mutex_);
      for (const auto& [name, known] : counts_)
        if (name == since) counts = known;
    }
    for (std::size_t i = 0; i < parts.size(); ++i)
      lines_[i]->store->foresee(parts[i],
                                counts.empty() ? lines_[i]->store->read_count() : counts[i]);
  }
  bool holds(std::string_view key, std::string_view etag, std::uint64_t offset_bytes,
             std::uint64_t length_bytes) override {
    const auto route = parse_route(key, lines_.size());
    return route &&
           lines_[route->store]->store->holds(route->key, etag, offset_bytes, length_bytes);
  }

  const StoreTraits& traits() const noexcept override { return traits_; }
  const std::string& url() const noexcept override { return url_; }
  void append_metrics(MetricList& out) const override {
    MetricList all;
    for (const auto& line : lines_) line->store->append_metrics(all);
    for (Metric& metric : sum_of(all)) out.push_back(std::move(metric));
  }

 private:
  /// Moments that read_count() has named and foresee() may speak of.
  static constexpr std::size_t kMostCounts = 8;

  /// One of the stores and who waits for it.
  struct Line {
    std::unique_ptr<Store> store;
    std::thread pump;
    std::size_t in_flight = 0;  ///< Guarded by mutex_.
  };

  Status read_only() const {
    return Status(Code::kUnsupported, url_ + ": several stores as one can only be read");
  }
  Status unknown(std::string_view key) const {
    return Status(Code::kInvalidArgument,
                  url_ + ": '" + std::string(key) + "' does not begin with the number of a store");
  }
  Status refusal_of(const Request& request) const {
    return request.op == Op::kGet ? unknown(request.key) : read_only();
  }
  void end(Request& request, const Status& status) {
    Completion completion;
    completion.tag = request.tag;
    completion.status = status.clone();
    completion.slab = std::move(request.slab);
    queue_.push(std::move(completion));
  }

  /// kExhausted where the system allows no more threads.
  Status start_pump(Line& line) {
    if (line.pump.joinable()) return {};
    if (start_thread(line.pump, [this, &line] { pump(line); })) return {};
    return Status(Code::kExhausted, line.store->url() + ": no thread to wait for its answers");
  }

  bool is_drained(const Line& line) HEADRACE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return is_stopped_ && line.in_flight == 0;
  }

  void pump(Line& line) {
    std::array<Completion, 32> batch;
    while (!is_drained(line)) {
      const std::size_t count = line.store->wait(batch, TimePoint::max());
      MutexLock lock(mutex_);
      line.in_flight -= count;
      for (std::size_t i = 0; i < count; ++i) queue_.push(std::move(batch[i]));
    }
  }

  std::vector<std::unique_ptr<Line>> lines_;
  std::string url_;
  StoreTraits traits_{.can_write = false, .can_list = false, .is_local = true};
  CompletionQueue queue_;
  mutable Mutex counts_mutex_;
  mutable std::vector<std::pair<std::uint64_t, std::vector<std::uint64_t>>> counts_
      HEADRACE_GUARDED_BY(counts_mutex_);
  mutable std::uint64_t counted_ HEADRACE_GUARDED_BY(counts_mutex_) = 0;
  Mutex mutex_;
  bool is_stopped_ HEADRACE_GUARDED_BY(mutex_) = false;
};

}  // namespace

Result<std::unique_ptr<Store>> route_stores(std::vector<std::unique_ptr<Store>> stores) {
  if (stores.empty()) return Status(Code::kInvalidArgument, "no stores to make one of");
  return std::unique_ptr<Store>(std::make_unique<Router>(std::move(stores)));
}

}  // namespace headrace
