// The contract suite over Google Cloud Storage's emulator, when HEADRACE_TEST_GCS_ENDPOINT names
// one (tests/with_servers starts it), by STORAGE_EMULATOR_HOST as programs do.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>

#include "contract/store_contract.h"
#include "headrace/environment.h"

namespace headrace::contract {
namespace {

std::string variable(const char* name) {
  const char* const value =
      std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets variables here
  return value == nullptr ? std::string() : value;
}

/// A prefix of its own in the emulator's bucket; removed afterwards.
class GcsWorld final : public ContractWorld {
 public:
  GcsWorld() {
    static std::atomic<int> next{0};
    root_ = "contract-" + std::to_string(::getpid()) + "-" + std::to_string(next.fetch_add(1));
  }
  ~GcsWorld() override {
    auto store = open({});
    if (!store) return;
    auto all = list_all(**store, "");
    if (!all) return;
    for (const ObjectInfo& info : *all) static_cast<void>((*store)->remove(info.key));
  }
  Result<std::unique_ptr<Store>> open(StoreOptions options) override {
    options.url = "gs://" + variable("HEADRACE_TEST_GCS_BUCKET") + "/" + root_;
    Environment environment;
    environment.variables = {{"STORAGE_EMULATOR_HOST", variable("HEADRACE_TEST_GCS_ENDPOINT")}};
    return open_store(options, environment);
  }
  std::uint64_t load_request_count() const override { return 400; }

 private:
  std::string root_;
};

std::unique_ptr<ContractWorld> gcs_world() {
  if (variable("HEADRACE_TEST_GCS_ENDPOINT").empty()) return nullptr;
  return std::make_unique<GcsWorld>();
}

INSTANTIATE_TEST_SUITE_P(Gcs, StoreContract,
                         ::testing::ValuesIn(plain_and_faulty("Gcs", gcs_world)), case_name);

}  // namespace
}  // namespace headrace::contract
