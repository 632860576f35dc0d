// Invariants:
// - All but inbox_ and is_stopping_ belongs to the thread. Others push and wake it.
// - A transfer has exactly one end: when the last of its items has one, or before it has items.
// - Of a node that failed, one transfer is under way at most until it has answered (Rest).
#include "tier/memcached.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "base/start_thread.h"
#include "net/poller.h"
#include "net/resolver.h"
#include "net/timer_heap.h"
#include "tier/memcached_connection.h"
#include "tier/rest.h"

namespace headrace::tier {
namespace {

constexpr std::uint16_t kPort = 11211;
/// Of an item, for its key, its header and what the server adds.
constexpr std::uint64_t kItemOverhead = 4096;
constexpr std::uint64_t kLeastItemBytes = 16 << 10, kMostItemBytes = std::uint64_t{1} << 30;
constexpr std::uint32_t kMostConnections = 64;
/// What is being put when the last user goes may take so long.
constexpr std::chrono::seconds kStopPatience{2};
static_assert(kMostRemoteHeaderBytes + 512 < kItemOverhead);

struct HostPort {
  std::string host;
  std::uint16_t port = kPort;
};

Result<HostPort> parse_node(const std::string& text) {
  const auto wrong = [&] {
    return Status(Code::kInvalidArgument,
                  "memcached: \"" + text + "\" is no server: give host, host:port or [::1]:port");
  };
  HostPort out;
  const std::size_t bracket = text.starts_with('[') ? text.find(']') : std::string::npos;
  const std::size_t colon = bracket == std::string::npos ? text.find(':') : bracket + 1;
  out.host = text.substr(0, colon);
  if (out.host.empty() || out.host.find_first_of(" \t\r\n/@") != std::string::npos) return wrong();
  if (colon == std::string::npos || colon == text.size()) return out;
  const std::string_view port = std::string_view(text).substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  const bool is_number = error == std::errc() && end == port.data() + port.size();
  if (text[colon] != ':' || !is_number || out.port == 0) return wrong();
  return out;
}

Status check(const MemcachedOptions& options) {
  const auto wrong = [](const std::string& what) {
    return Status(Code::kInvalidArgument, "memcached: " + what);
  };
  if (options.nodes.empty()) return wrong("name at least one server: memcached://host:11211");
  for (const std::string& node : options.nodes) {
    auto parsed = parse_node(node);
    if (!parsed) return std::move(parsed).error();
  }
  auto names = options.nodes;
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) return wrong(*twice + " is named twice");
  if (options.item_bytes < kLeastItemBytes || options.item_bytes > kMostItemBytes)
    return wrong("item_size= must be from 16KiB to 1GiB");
  if (options.read_connections == 0 || options.read_connections > kMostConnections)
    return wrong("connections= must be from 1 to 64");
  if (options.timeout.count() <= 0) return wrong("timeout= must be more than 0");
  return {};
}

struct Node {
  HostPort where;
  Rest rest;
  NameLookup lookup;
  std::optional<NetAddress> address;                              // None: to be looked up.
  std::vector<std::unique_ptr<MemcachedConnection>> connections;  // The last one writes.
};

class MemcachedCache final : public RemoteCache, public MemcachedConnection::Owner {
 public:
  MemcachedCache(const MemcachedOptions& options, std::unique_ptr<Poller> poller)
      : options_(options), poller_(std::move(poller)) {
    for (const std::string& name : options_.nodes) {
      nodes_.push_back(std::make_unique<Node>());
      nodes_.back()->where = *parse_node(name);
      for (std::uint32_t i = 0; i <= options_.read_connections; ++i) {
        nodes_.back()->connections.push_back(std::make_unique<MemcachedConnection>(
            *poller_, timers_, *this, nodes_.size() - 1, options_.timeout));
      }
    }
  }

  Status start() {
    if (start_thread(thread_, [this] { run(); })) return {};
    return Status(Code::kExhausted, "memcached: no thread can be started");
  }

  ~MemcachedCache() override {
    {
      MutexLock lock(mutex_);
      is_stopping_ = true;
    }
    poller_->wake();
    if (thread_.joinable()) thread_.join();
  }

  void get(Get&& get) override {
    auto transfer = std::make_shared<MemcachedTransfer>();
    transfer->get = std::move(get);
    push(std::move(transfer));
  }
  void put(Put&& put) override {
    auto transfer = std::make_shared<MemcachedTransfer>();
    transfer->put = std::move(put);
    transfer->kind = MemcachedTransfer::Kind::kPut;
    push(std::move(transfer));
  }
  void release(const ExtentInfo& extent) override {
    auto transfer = std::make_shared<MemcachedTransfer>();
    transfer->get.extent = extent;
    transfer->kind = MemcachedTransfer::Kind::kRelease;
    push(std::move(transfer));
  }
  void replace(const ExtentName&) override {}  // Every put does.
  std::uint64_t part_bytes() const noexcept override { return options_.item_bytes - kItemOverhead; }
  std::string_view kind() const noexcept override { return "memcached"; }

 private:
  using Transfer = std::shared_ptr<MemcachedTransfer>;

  void push(Transfer transfer) {
    bool was_empty = false;
    {
      MutexLock lock(mutex_);
      was_empty = inbox_.empty();
      inbox_.push_back(std::move(transfer));
    }
    if (was_empty) poller_->wake();
  }

  void run();
  /// False: it is over.
  bool take_inbox();
  void start(const Transfer& transfer);
  void add_items(const Transfer& transfer, MemcachedConnection& connection);
  void look_up(std::size_t index);
  void end_look_up(Node& node);
  void stop_all();
  bool is_all_closed() const;
  void end_transfer(MemcachedTransfer& transfer);
  void end_item(MemcachedConnection& connection, MemcachedItem& item, Outcome outcome) override;
  void note_failure(MemcachedConnection& connection) override;

  const MemcachedOptions options_;
  const std::unique_ptr<Poller> poller_;
  TimerHeap timers_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::size_t under_way_ = 0;
  std::optional<TimePoint> stop_by_;

  Mutex mutex_;
  std::vector<Transfer> inbox_ HEADRACE_GUARDED_BY(mutex_);
  bool is_stopping_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // Last: it uses all of the above.
};

void MemcachedCache::run() {
  std::array<PollEvent, 64> events;
  while (take_inbox()) {
    const TimePoint now = system_clock().now();
    while (Timer* due = timers_.pop_due(now))
      static_cast<MemcachedConnection*>(due->owner)->handle_timer();
    for (const auto& node : nodes_) end_look_up(*node);
    TimePoint until = timers_.next();
    if (stop_by_) until = std::min(until, *stop_by_);
    const std::chrono::nanoseconds wait =
        until == TimePoint::max() ? std::chrono::nanoseconds(-1)
                                  : std::max(std::chrono::nanoseconds(until - system_clock().now()),
                                             std::chrono::nanoseconds(0));
    const std::size_t count = poller_->poll(events, wait);
    for (std::size_t i = 0; i < count; ++i)
      static_cast<MemcachedConnection*>(events[i].socket->owner)->handle(events[i]);
  }
  for (const auto& node : nodes_) {
    for (const auto& connection : node->connections) connection->close();
  }
  while (!is_all_closed()) {
    const std::size_t count = poller_->poll(events, std::chrono::nanoseconds(-1));
    for (std::size_t i = 0; i < count; ++i)
      static_cast<MemcachedConnection*>(events[i].socket->owner)->handle(events[i]);
  }
}

bool MemcachedCache::take_inbox() {
  std::vector<Transfer> taken;
  bool is_stopping = false;
  {
    MutexLock lock(mutex_);
    taken.swap(inbox_);
    is_stopping = is_stopping_;
  }
  for (const Transfer& transfer : taken) start(transfer);
  if (!is_stopping) return true;
  const TimePoint now = system_clock().now();
  if (!stop_by_) stop_by_ = now + kStopPatience;
  if (now >= *stop_by_) stop_all();
  return under_way_ > 0;
}

void MemcachedCache::stop_all() {
  for (const auto& node : nodes_) {
    for (const auto& connection : node->connections) connection->fail();
  }
}

bool MemcachedCache::is_all_closed() const {
  return std::all_of(nodes_.begin(), nodes_.end(), [](const auto& node) {
    return std::all_of(node->connections.begin(), node->connections.end(),
                       [](const auto& connection) { return connection->is_closed(); });
  });
}

void MemcachedCache::start(const Transfer& transfer) {
  ++under_way_;
  const std::size_t index = node_of(transfer->extent().name, options_.nodes);
  Node& node = *nodes_[index];
  const TimePoint now = system_clock().now();
  const bool is_hasty = !transfer->is_put() && transfer->get.deadline < now + options_.timeout;
  if (is_hasty || !node.rest.may_try(now)) {
    transfer->outcome = Outcome::kResting;
    return end_transfer(*transfer);
  }
  auto connection = node.connections.end() - 1;
  if (transfer->kind == MemcachedTransfer::Kind::kGet) {
    connection = std::min_element(
        node.connections.begin(), connection,
        [](const auto& a, const auto& b) { return a->waiting_bytes() < b->waiting_bytes(); });
  }
  add_items(transfer, **connection);
  (*connection)->flush();
  if ((*connection)->wants_address()) look_up(index);
}

void MemcachedCache::add_items(const Transfer& transfer, MemcachedConnection& connection) {
  const ExtentInfo& extent = transfer->extent();
  const ExtentParts parts(extent.name.length_bytes, part_bytes());
  const std::size_t header = remote_header_bytes(extent);
  std::uint64_t at = 0;
  // What is claimed is the first part.
  const bool is_release = transfer->kind == MemcachedTransfer::Kind::kRelease;
  const std::uint64_t count = is_release ? 1 : parts.count();
  transfer->items_left = count;
  for (std::uint64_t i = 0; i < count; ++i) {
    const ExtentPart part = parts.part(i);
    MemcachedItem item{.transfer = transfer,
                       .key = memcached_key(extent.name, i, parts.count()),
                       .from_bytes = part.from_bytes,
                       .data = {},
                       .value = {}};
    if (transfer->is_put()) {
      item.value = transfer->put.slab.bytes().subspan(at, header + part.length_bytes);
      at += item.value.size();
    } else if (!is_release) {
      item.data = transfer->get.out.subspan(part.from_bytes, part.length_bytes);
    }
    connection.add(std::move(item));
  }
}

void MemcachedCache::look_up(std::size_t index) {
  Node& node = *nodes_[index];
  if (!node.address) node.address = parse_numeric_address(node.where.host, node.where.port);
  if (node.address) return end_look_up(node);
  if (node.lookup.is_running()) return;
  const Status started =
      node.lookup.start(node.where.host, node.where.port, [this] { poller_->wake(); });
  if (started.ok()) return;
  for (const auto& connection : node.connections) {
    if (connection->wants_address()) connection->fail();
  }
}

void MemcachedCache::end_look_up(Node& node) {
  bool has_failed = false;
  if (node.lookup.is_running()) {
    auto found = node.lookup.take();
    if (!found) return;
    has_failed = !*found;
    if (!has_failed) node.address = (*found)->front();
  }
  for (const auto& connection : node.connections) {
    if (!connection->wants_address()) continue;
    if (has_failed) connection->fail();
    if (!has_failed && node.address) connection->connect(*node.address);
  }
}

void MemcachedCache::note_failure(MemcachedConnection& connection) {
  Node& node = *nodes_[connection.node()];
  node.rest.note_failure(system_clock().now());
  node.address.reset();  // It may have moved.
}

void MemcachedCache::end_item(MemcachedConnection& connection, MemcachedItem& item,
                              Outcome outcome) {
  if (outcome != Outcome::kFailed) nodes_[connection.node()]->rest.note_success();
  MemcachedTransfer& transfer = *item.transfer;
  transfer.outcome = std::max(transfer.outcome, outcome);
  if (--transfer.items_left == 0) end_transfer(transfer);
}

void MemcachedCache::end_transfer(MemcachedTransfer& transfer) {
  --under_way_;
  if (transfer.kind == MemcachedTransfer::Kind::kRelease) return;
  if (!transfer.is_put()) return transfer.get.done(transfer.outcome, transfer.object_size_bytes);
  transfer.put.slab = Slab();
  transfer.put.done(transfer.outcome, 0);
}

}  // namespace

std::size_t node_of(const ExtentName& extent, const std::vector<std::string>& nodes) {
  const std::string key = file_name(extent);
  const XXH64_hash_t seed = XXH3_64bits(key.data(), key.size());
  std::size_t best = 0;
  XXH64_hash_t best_score = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const XXH64_hash_t score = XXH3_64bits_withSeed(nodes[i].data(), nodes[i].size(), seed);
    if (i > 0 && score <= best_score) continue;
    best = i;
    best_score = score;
  }
  return best;
}

Result<std::unique_ptr<RemoteCache>> open_memcached(const MemcachedOptions& options) {
  HEADRACE_TRY(check(options));
  HEADRACE_TRY_ASSIGN(auto poller, create_epoll_poller());
  auto cache = std::make_unique<MemcachedCache>(options, std::move(poller));
  HEADRACE_TRY(cache->start());
  return std::unique_ptr<RemoteCache>(std::move(cache));
}

}  // namespace headrace::tier
