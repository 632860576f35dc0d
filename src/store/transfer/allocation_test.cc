// Holds the promise that a GET allocates nothing at steady state, by counting calls of operator
// new.
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/sanitizer.h"
#include "net/tls_test_peer.h"
#include "store/transfer/scripted_server.h"
#include "store/transfer/transfer_engine.h"

#if !defined(HEADRACE_HAS_SANITIZER)  // they replace operator new themselves

namespace {

std::atomic<bool> g_is_counting{false};
std::atomic<int> g_allocation_count{0};

/// Allocations of the engine and of the consumer count, those of the scripted server's threads do
/// not.
bool is_counted_thread() {
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof(name));
  return std::strncmp(name, "hr-net-", 7) == 0 || std::strcmp(name, "hr-consumer") == 0;
}

}  // namespace

#if !defined(__clang__)
#pragma GCC diagnostic ignored \
    "-Wmismatched-new-delete"  // sees one half of the pair after inlining
#endif

void* operator new(std::size_t size_bytes) {
  if (g_is_counting.load(std::memory_order_relaxed) && is_counted_thread())
    g_allocation_count.fetch_add(1);
  void* memory = std::malloc(size_bytes > 0 ? size_bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace headrace {
namespace {

class AllocationTest : public testing::TestWithParam<PollerKind> {};

/// Counts over some rounds of gets, after others that warm everything up.
void expect_no_allocations(PollerKind kind, SSL_CTX* tls) {
  transfer::ScriptedServer server(nullptr, 1 << 20, tls);
  StoreOptions options;
  options.poller = kind;
  options.max_in_flight = 4;
  options.hedge_fraction = 0;  // on a busy machine a second attempt would open a connection
  options.tls_verify = false;
  const HttpEndpoint endpoint{"127.0.0.1", server.port(), tls != nullptr};
  auto engine = TransferEngine::create(std::make_shared<transfer::FakeProtocol>(endpoint), options);
  if (!engine) GTEST_SKIP() << engine.error().message();
  auto pool = SlabPool::create({});
  ASSERT_TRUE(pool);
  auto handle = (*engine)->new_handle();
  constexpr std::size_t kInFlight = 16;
  std::vector<Request> requests(kInFlight);
  std::vector<Completion> completions(kInFlight);
  std::vector<Slab> slabs;
  for (std::size_t i = 0; i < kInFlight; ++i) slabs.push_back(*(*pool)->try_acquire(40'000));
  const auto round = [&] {
    for (std::size_t i = 0; i < kInFlight; ++i) {
      requests[i] = Request{};
      requests[i].key = "object";
      requests[i].etag = "\"v1\"";
      requests[i].offset_bytes = i * 1000;
      requests[i].length_bytes = 40'000;
      requests[i].slab = std::move(slabs[i]);
    }
    if (handle->submit(requests) != kInFlight) std::abort();
    std::size_t done = 0;
    while (done < kInFlight) {
      const std::size_t count = handle->wait(completions, TimePoint::max());
      for (std::size_t i = 0; i < count; ++i) {
        if (!completions[i].status.ok()) std::abort();
        slabs[done++] = std::move(completions[i].slab);
      }
    }
  };
  for (int i = 0; i < 10; ++i) round();
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof(name));
  pthread_setname_np(pthread_self(), "hr-consumer");
  g_allocation_count = 0;
  g_is_counting = true;
  for (int i = 0; i < 10; ++i) round();
  g_is_counting = false;
  pthread_setname_np(pthread_self(), name);
  EXPECT_EQ(g_allocation_count.load(), 0);
}

TEST_P(AllocationTest, GetAllocatesNothingAtSteadyState) {
  expect_no_allocations(GetParam(), nullptr);
}

// Of ours: what OpenSSL takes by malloc() while it seals a request is not seen here.
TEST_P(AllocationTest, GetOverTlsAllocatesNothingAtSteadyState) {
  const TestAuthority authority;
  SSL_CTX* context = authority.server_context({});
  expect_no_allocations(GetParam(), context);
  SSL_CTX_free(context);
}

INSTANTIATE_TEST_SUITE_P(Kinds, AllocationTest,
                         testing::Values(PollerKind::kUring, PollerKind::kEpoll));

}  // namespace
}  // namespace headrace
#endif
