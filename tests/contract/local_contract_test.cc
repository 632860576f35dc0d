// The contract suite over the stores of this machine.
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "base/temporary_directory.h"
#include "contract/store_contract.h"
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

INSTANTIATE_TEST_SUITE_P(
    Memory, StoreContract,
    ::testing::ValuesIn(plain_and_faulty("Memory", [] { return std::make_unique<MemoryWorld>(); })),
    case_name);
INSTANTIATE_TEST_SUITE_P(
    File, StoreContract,
    ::testing::ValuesIn(plain_and_faulty("File", [] { return std::make_unique<FileWorld>(); })),
    case_name);

}  // namespace
}  // namespace headrace::contract
