// The contract suite over the stores of this machine.
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "base/temporary_directory.h"
#include "contract/store_contract.h"
#include "headrace/access_log.h"
#include "headrace/cache.h"
#include "store/file/file_store.h"
#include "store/memory/memory_store.h"

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

}  // namespace
}  // namespace headrace::contract
