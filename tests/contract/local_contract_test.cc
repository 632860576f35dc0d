// The contract suite over the stores of this machine.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>

#include "base/temporary_directory.h"
#include "contract/store_contract.h"
#include "headrace/access_log.h"
#include "headrace/cache.h"
#include "store/file/file_store.h"
#include "store/memory/memory_store.h"
#include "tier/cache_store.h"
#include "tier/fake_memcached.h"
#include "tier/memcached.h"
#include "tier/remote_tier.h"
#include "tier/store_cache.h"

namespace headrace::contract {
namespace {

class MemoryWorld final : public ContractWorld {
 public:
  Result<std::unique_ptr<Store>> open(StoreOptions options) override {
    options.url = "memory://contract";
    return open_memory_store(options);
  }
};

class FileWorld final : public ContractWorld {
 public:
  Result<std::unique_ptr<Store>> open(StoreOptions options) override {
    options.url = "file://" + directory_.path();
    return open_file_store(options);
  }

 private:
  TemporaryDirectory directory_;
};

/// Another world behind an access log.
template <class World>
class LoggedWorld final : public ContractWorld {
 public:
  Result<std::unique_ptr<Store>> open(StoreOptions options) override {
    Clock* const clock = options.clock;
    HEADRACE_TRY_ASSIGN(auto store, world_.open(std::move(options)));
    HEADRACE_TRY_ASSIGN(auto log,
                        AccessLog::create({.path = directory_.path() + "/log", .clock = clock}));
    return log_accesses(std::move(store), std::move(log), clock);
  }

 private:
  TemporaryDirectory directory_;
  World world_;
};

/// Another world behind a cache, which is asked for every read.
template <class World>
class CachedWorld final : public ContractWorld {
 public:
  Result<std::unique_ptr<Store>> open(StoreOptions options) override {
    const std::size_t accept_limit = options.queue_capacity;
    HEADRACE_TRY_ASSIGN(auto store, world_.open(std::move(options)));
    HEADRACE_TRY_ASSIGN(auto cache,
                        Cache::open({.directory = directory_.path(), .least_unnamed_bytes = 1}));
    return cache_reads(std::move(store), std::move(cache), accept_limit);
  }
  bool keeps_old_versions() const override { return true; }

 private:
  TemporaryDirectory directory_;
  World world_;
};

Result<std::unique_ptr<Store>> wrap_remote(std::unique_ptr<Store> store,
                                           std::unique_ptr<tier::RemoteCache> engine,
                                           std::size_t accept_limit) {
  HEADRACE_TRY_ASSIGN(auto tier,
                      tier::RemoteTier::create(
                          std::move(engine),
                          {.buffer_bytes = 64 << 20, .least_unnamed_bytes = 1, .clock = nullptr}));
  return tier::wrap_tier(std::move(store), std::move(tier), accept_limit);
}

/// Another world behind a cache of a cluster: servers that do as they should.
template <class World>
class MemcachedWorld final : public ContractWorld {
 public:
  Result<std::unique_ptr<Store>> open(StoreOptions options) override {
    const std::size_t accept_limit = options.queue_capacity;
    HEADRACE_TRY_ASSIGN(auto store, world_.open(std::move(options)));
    HEADRACE_TRY_ASSIGN(auto engine,
                        tier::open_memcached({.nodes = {servers_[0].name(), servers_[1].name()},
                                              .timeout = std::chrono::seconds(20)}));
    return wrap_remote(std::move(store), std::move(engine), accept_limit);
  }
  bool keeps_old_versions() const override { return true; }

 private:
  std::array<tier::FakeMemcached, 2> servers_;
  World world_;
};

/// Another world behind a hot store.
template <class World>
class HotWorld final : public ContractWorld {
 public:
  Result<std::unique_ptr<Store>> open(StoreOptions options) override {
    const std::size_t accept_limit = options.queue_capacity;
    HEADRACE_TRY_ASSIGN(auto store, world_.open(std::move(options)));
    StoreOptions place;
    place.url = "memory://hot";
    HEADRACE_TRY_ASSIGN(auto hot, open_memory_store(place));
    HEADRACE_TRY_ASSIGN(auto engine, tier::open_store_cache(std::move(hot), 64 << 20));
    return wrap_remote(std::move(store), std::move(engine), accept_limit);
  }
  bool keeps_old_versions() const override { return true; }

 private:
  World world_;
};

INSTANTIATE_TEST_SUITE_P(
    Memory, StoreContract,
    ::testing::ValuesIn(plain_and_faulty("Memory", [] { return std::make_unique<MemoryWorld>(); })),
    case_name);
INSTANTIATE_TEST_SUITE_P(
    File, StoreContract,
    ::testing::ValuesIn(plain_and_faulty("File", [] { return std::make_unique<FileWorld>(); })),
    case_name);
INSTANTIATE_TEST_SUITE_P(LoggedMemory, StoreContract,
                         ::testing::ValuesIn(plain_and_faulty(
                             "LoggedMemory",
                             [] { return std::make_unique<LoggedWorld<MemoryWorld>>(); })),
                         case_name);
INSTANTIATE_TEST_SUITE_P(LoggedFile, StoreContract,
                         ::testing::ValuesIn(plain_and_faulty(
                             "LoggedFile",
                             [] { return std::make_unique<LoggedWorld<FileWorld>>(); })),
                         case_name);

INSTANTIATE_TEST_SUITE_P(CachedMemory, StoreContract,
                         ::testing::ValuesIn(plain_and_faulty(
                             "CachedMemory",
                             [] { return std::make_unique<CachedWorld<MemoryWorld>>(); })),
                         case_name);
INSTANTIATE_TEST_SUITE_P(CachedFile, StoreContract,
                         ::testing::ValuesIn(plain_and_faulty(
                             "CachedFile",
                             [] { return std::make_unique<CachedWorld<FileWorld>>(); })),
                         case_name);
INSTANTIATE_TEST_SUITE_P(MemcachedMemory, StoreContract,
                         ::testing::ValuesIn(plain_and_faulty(
                             "MemcachedMemory",
                             [] { return std::make_unique<MemcachedWorld<MemoryWorld>>(); })),
                         case_name);
INSTANTIATE_TEST_SUITE_P(
    HotMemory, StoreContract,
    ::testing::ValuesIn(plain_and_faulty("HotMemory",
                                         [] { return std::make_unique<HotWorld<MemoryWorld>>(); })),
    case_name);

}  // namespace
}  // namespace headrace::contract
