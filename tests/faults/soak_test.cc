// Soak: random gets, puts, uploads, cancels and calls from several threads, over a server whose
// misbehaviour changes all the time. Every request ends once, every byte is right, everything is
// given back. HEADRACE_SOAK_SECONDS says how long (default 120).
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <thread>

#include "faults/fault_world.h"

namespace headrace::faults {
namespace {

constexpr std::size_t kMostInFlight = 48;
constexpr std::uint64_t kMostRangeBytes = 256 << 10;
constexpr std::size_t kOwnKeys = 12;  // of each thread, to write and delete

std::chrono::seconds soak_time() {
  const char* text = std::getenv("HEADRACE_SOAK_SECONDS");
  return std::chrono::seconds(text == nullptr ? 120 : std::atoi(text));
}

/// Faults that a store may show without anything being allowed to go wrong. Not RequestTimeout: the
/// answer to a HEAD has no body that could tell its 400 from a mistake of ours.
SimBehaviour random_behaviour(Random& random) {
  const auto rate = [&](double most) {
    return random.below(3) == 0 ? most * static_cast<double>(random.below(1000)) / 1000 : 0;
  };
  SimBehaviour behaviour;
  behaviour.throttle_rate = rate(0.1);
  behaviour.error_rate = rate(0.05);
  behaviour.reset_rate = rate(0.05);
  behaviour.truncate_rate = rate(0.05);
  behaviour.drop_rate = rate(0.05);
  behaviour.stall_rate = rate(0.005);
  behaviour.stall_ms = 2'000;
  behaviour.slow_first_byte_rate = rate(0.02);
  behaviour.slow_first_byte_ms = 1'000;
  behaviour.error_in_body_rate = rate(0.1);
  behaviour.close_after_requests = static_cast<double>(random.below(4) * 10);
  if (random.below(4) == 0) {
    behaviour.first_byte_p50_ms = 1;
    behaviour.first_byte_p99_ms = 20;
  }
  return behaviour;
}

/// One thread's work over a handle of its own.
class Worker {
 public:
  Worker(Store& store, SlabPool& pool, const std::vector<std::string>& shared_keys,
         std::uint64_t seed)
      : store_(store), pool_(pool), shared_keys_(shared_keys), random_(seed) {
    for (std::size_t i = 0; i < kOwnKeys; ++i)
      own_keys_.push_back("own-" + std::to_string(seed) + "/" + std::to_string(i));
  }

  void run(const std::atomic<bool>& is_over) {
    while (!is_over.load() && !::testing::Test::HasFailure()) round(is_over);
  }
  std::uint64_t ends() const { return ends_; }
  std::uint64_t right() const { return right_; }

 private:
  struct Flight {
    std::string key;
    Op op = Op::kGet;
    std::uint64_t offset_bytes = 0;
    std::uint64_t length_bytes = 0;
    bool is_own = false;  ///< May have been deleted, or not be there yet.
  };

  /// A handle lives for a round; some are destroyed with requests under way.
  void round(const std::atomic<bool>& is_over) {
    auto handle = store_.new_handle();
    ASSERT_TRUE(handle) << handle.error().message();
    const std::size_t steps = 200 + random_.below(2000);
    for (std::size_t i = 0; i < steps && !is_over.load(); ++i) {
      step(**handle);
      if (::testing::Test::HasFatalFailure()) return;
    }
    const std::uint64_t end_kind = random_.below(4);
    if (end_kind == 0) (*handle)->stop();
    if (end_kind != 1) drain(**handle);
    handle->reset();
    flights_.clear();
  }

  void step(Store& handle) {
    const std::uint64_t dice = random_.below(1000);
    if (dice < 700) {
      submit(handle, dice < 450 ? Op::kGet : Op::kPut);
    } else if (dice < 730 && !flights_.empty()) {
      handle.cancel(flights_.begin()->first + random_.below(kMostInFlight));
    } else if (dice < 740) {
      upload(handle);
    } else if (dice < 750) {
      call(handle);
    }
    take(handle, flights_.size() >= kMostInFlight);
  }

  void submit(Store& handle, Op op) {
    Flight flight;
    flight.op = op;
    flight.is_own = op == Op::kPut || random_.below(3) == 0;
    flight.key = flight.is_own ? own_keys_[random_.below(own_keys_.size())]
                               : shared_keys_[random_.below(shared_keys_.size())];
    flight.length_bytes = (1 + random_.below(kMostRangeBytes / 8)) * 8;
    if (!flight.is_own)
      flight.offset_bytes = random_.below((kObjectBytes - kMostRangeBytes) / 8) * 8;
    auto slab = pool_.try_acquire(flight.length_bytes);
    if (!slab) return;  // the memory is under way: take some ends first
    Request request;
    const std::uint64_t tag = next_tag_++;
    const auto placed = flights_.emplace(tag, std::move(flight)).first;
    const Flight& kept = placed->second;
    request.op = op;
    request.key = kept.key;
    request.offset_bytes = kept.offset_bytes;
    request.length_bytes = kept.length_bytes;
    request.allow_short = kept.is_own;
    request.slab = *std::move(slab);
    request.tag = tag;
    if (random_.below(50) == 0)
      request.deadline = system_clock().now() + std::chrono::milliseconds(random_.below(50));
    if (op == Op::kPut) fill(kept.key, 0, request.slab.bytes().first(kept.length_bytes));
    if (handle.submit({&request, 1}) == 0) flights_.erase(placed);
  }

  void take(Store& handle, bool must_wait) {
    std::array<Completion, 8> done;
    const TimePoint now = system_clock().now();
    const std::size_t count = handle.wait(done, must_wait ? now + std::chrono::seconds(150) : now);
    ASSERT_TRUE(count > 0 || !must_wait) << flights_.size() << " requests never ended";
    for (std::size_t i = 0; i < count; ++i) check(done[i]);
  }

  void drain(Store& handle) {
    while (!flights_.empty() && !::testing::Test::HasFatalFailure()) take(handle, true);
  }

  void check(const Completion& completion) {
    const auto found = flights_.find(completion.tag);
    ASSERT_NE(found, flights_.end()) << "a second completion for one request";
    const Flight flight = std::move(found->second);
    flights_.erase(found);
    ++ends_;
    const Code code = completion.status.code();
    if (!completion.status.ok()) {
      const bool is_expected = code == Code::kCancelled || code == Code::kDeadline ||
                               code == Code::kUnavailable || code == Code::kThrottled ||
                               (flight.is_own && code == Code::kNotFound) ||
                               (flight.is_own && code == Code::kCorrupt);
      EXPECT_TRUE(is_expected) << completion.status.message();
      return;
    }
    ++right_;
    if (flight.op != Op::kGet) return;
    const std::uint64_t whole_words = completion.length_bytes / 8 * 8;
    if (!flight.is_own) {
      EXPECT_EQ(completion.length_bytes, flight.length_bytes);
    }
    EXPECT_TRUE(
        is_right(flight.key, flight.offset_bytes, completion.slab.bytes().first(whole_words)))
        << "wrong bytes in " << flight.key << " from " << flight.offset_bytes;
  }

  /// A multipart upload that is completed, or aborted half way.
  void upload(Store& handle) {
    const std::string key = own_keys_[random_.below(own_keys_.size())];
    auto id = handle.create_upload(key);
    if (!id) return expect_transient(id.error());
    if (random_.below(2) == 0) {
      expect_transient(handle.abort_upload(key, *id));
    } else {
      auto slab = pool_.try_acquire(4096);
      if (slab) fill(key, 0, slab->bytes());
      std::vector<UploadedPart> parts;
      if (slab) put_part(key, *id, *std::move(slab), parts);
      if (parts.empty()) return expect_transient(handle.abort_upload(key, *id));
      auto info = handle.complete_upload(key, *id, parts);
      if (!info) return expect_transient(info.error());
      EXPECT_TRUE(info->size_bytes % 8 == 0);
    }
  }

  void put_part(const std::string& key, const std::string& id, Slab slab,
                std::vector<UploadedPart>& parts) {
    auto own = store_.new_handle();
    ASSERT_TRUE(own);
    Request request;
    request.op = Op::kPutPart;
    request.key = key;
    request.upload_id = id;
    request.part_number = 1;
    request.length_bytes = slab.bytes().size();
    request.slab = std::move(slab);
    ASSERT_EQ((*own)->submit({&request, 1}), 1U);
    Completion done;
    ASSERT_EQ((*own)->wait({&done, 1}, system_clock().now() + std::chrono::seconds(150)), 1U);
    if (!done.status.ok()) return expect_transient(done.status);
    UploadedPart part;
    part.part_number = 1;
    part.etag = done.etag;
    part.size_bytes = done.length_bytes;
    part.checksum = done.checksum;
    parts.push_back(std::move(part));
  }

  void call(Store& handle) {
    const std::string& key = own_keys_[random_.below(own_keys_.size())];
    switch (random_.below(3)) {
      case 0: {
        auto info = handle.head(key);
        if (!info) expect_transient(info.error());
        break;
      }
      case 1:
        expect_transient(handle.remove(key));
        break;
      default: {
        ListRequest request;
        request.prefix = "own-";
        auto page = handle.list(request);
        if (!page) expect_transient(page.error());
        break;
      }
    }
  }

  static void expect_transient(const Status& status) {
    const Code code = status.code();
    const bool is_expected = status.ok() || code == Code::kNotFound || code == Code::kUnavailable ||
                             code == Code::kThrottled || code == Code::kDeadline ||
                             code == Code::kInternal;
    EXPECT_TRUE(is_expected) << status.message();
  }

  Store& store_;
  SlabPool& pool_;
  const std::vector<std::string>& shared_keys_;
  Random random_;
  std::vector<std::string> own_keys_;
  std::map<std::uint64_t, Flight> flights_;
  std::uint64_t next_tag_ = 1;
  std::uint64_t ends_ = 0;
  std::uint64_t right_ = 0;
};

void soak(PollerKind poller, std::chrono::seconds time) {
  SimOptions sim;
  sim.seed = 23;
  sim.behaviour = SimBehaviour{};
  World world(sim);
  ASSERT_NE(world.server, nullptr);
  StoreOptions options = world.options(poller);
  options.reactor_count = 2;
  options.default_timeout = std::chrono::seconds(20);
  options.progress_timeout = options.first_byte_timeout = std::chrono::milliseconds(1'500);
  auto store = world.open(options);
  ASSERT_NE(store, nullptr);
  SlabPool::Options pool_options;
  pool_options.limit_bytes = std::uint64_t{24} << 20;
  auto pool = *SlabPool::create(pool_options);

  std::atomic<bool> is_over{false};
  std::deque<Worker> workers;
  std::vector<std::jthread> threads;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    Worker& worker = workers.emplace_back(*store, *pool, world.keys, seed);
    threads.emplace_back([&worker, &is_over] { worker.run(is_over); });
  }
  Random random(99);
  const TimePoint end = system_clock().now() + time;
  while (system_clock().now() < end && !::testing::Test::HasFailure()) {
    ASSERT_TRUE(world.server->set_behaviour(random_behaviour(random)).ok());
    if (random.below(8) == 0) {
      SimAddress gone;
      gone.state = SimAddress::State::kRefuse;
      ASSERT_TRUE(world.server->set_address(0, gone).ok());
      ASSERT_TRUE(world.server->set_address(0, SimAddress{}).ok());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  is_over = true;
  threads.clear();
  EXPECT_EQ(pool->used_bytes(), 0U);
  std::uint64_t right = 0;
  std::uint64_t ends = 0;
  for (const Worker& worker : workers) {
    right += worker.right();
    ends += worker.ends();
  }
  EXPECT_GT(right, 0U);
  std::printf("soak: %llu requests taken, %llu of them right, %.0f hedges, %.0f retries\n",
              static_cast<unsigned long long>(ends), static_cast<unsigned long long>(right),
              metric_of(*store, "store.hedges"), metric_of(*store, "store.retries"));
}

TEST(Soak, Epoll) { soak(PollerKind::kEpoll, soak_time() / 2); }

TEST(Soak, Uring) {
  StoreOptions options;
  options.url = "s3://bucket";
  options.endpoint = "http://127.0.0.1:1";
  options.poller = PollerKind::kUring;
  if (!open_store(options, World::environment())) GTEST_SKIP() << "no io_uring here";
  soak(PollerKind::kUring, soak_time() / 2);
}

}  // namespace
}  // namespace headrace::faults
