// The contract suite over the stores of this machine.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "base/temporary_directory.h"
#include "contract/store_contract.h"
#include "headrace/access_log.h"
#include "headrace/cache.h"
#include "headrace/forwarding_store.h"
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

/// Names the version of an object in every read of it, as readers of datasets do: without that a
/// cache is not asked.
class VersionedStore final : public ForwardingStore {
 public:
  explicit VersionedStore(std::unique_ptr<Store> inner) : ForwardingStore(std::move(inner)) {}

  std::size_t submit(std::span<Request> requests) override {
    MutexLock lock(mutex_);
    for (Request& request : requests) {
      if (request.op != Op::kGet || !request.etag.empty() || request.key.empty()) continue;
      auto info = inner().head(std::string(request.key));
      if (!info) continue;
      request.etag = *etags_.insert(info->etag).first;
      named_[request.tag] = request.etag;
    }
    return inner().submit(requests);
  }
  std::size_t wait(std::span<Completion> out, TimePoint until, std::stop_token stop) override {
    const std::size_t count = inner().wait(out, until, std::move(stop));
    MutexLock lock(mutex_);
    for (Completion& done : out.first(count)) {
      const auto named = named_.find(done.tag);
      if (named == named_.end()) continue;
      if (done.status.ok()) done.etag = named->second;
      named_.erase(named);
    }
    return count;
  }

 private:
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(std::make_unique<VersionedStore>(std::move(handle)));
  }

  Mutex mutex_;
  std::set<std::string> etags_;  // They stay where they are.
  std::map<std::uint64_t, std::string> named_;
};

/// Another world behind a cache, which is asked for every read.
template <class World>
class CachedWorld final : public ContractWorld {
 public:
  Result<std::unique_ptr<Store>> open(StoreOptions options) override {
    const std::size_t accept_limit = options.queue_capacity;
    HEADRACE_TRY_ASSIGN(auto store, world_.open(std::move(options)));
    HEADRACE_TRY_ASSIGN(auto cache, Cache::open({.directory = directory_.path()}));
    return std::unique_ptr<Store>(std::make_unique<VersionedStore>(
        cache_reads(std::move(store), std::move(cache), accept_limit)));
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
