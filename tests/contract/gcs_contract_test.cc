// The contract suite over Google Cloud Storage's emulator, when HEADRACE_TEST_GCS_ENDPOINT names
// one (tests/with_servers starts it), by STORAGE_EMULATOR_HOST as programs do.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "contract/server_world.h"
#include "contract/store_contract.h"
#include "headrace/environment.h"

namespace headrace::contract {
namespace {

/// A prefix of its own in the emulator's bucket; removed afterwards.
class GcsWorld final : public ContractWorld {
 public:
  ~GcsWorld() override { remove_all(open({})); }
  Result<std::unique_ptr<Store>> open(StoreOptions options) override {
    options.url = "gs://" + variable("HEADRACE_TEST_GCS_BUCKET") + "/" + root_;
    Environment environment;
    environment.variables = {{"STORAGE_EMULATOR_HOST", variable("HEADRACE_TEST_GCS_ENDPOINT")}};
    return open_store(options, environment);
  }
  std::uint64_t load_request_count() const override { return 400; }

 private:
  const std::string root_ = own_prefix();
};

std::unique_ptr<ContractWorld> gcs_world() {
  if (variable("HEADRACE_TEST_GCS_ENDPOINT").empty()) return nullptr;
  return std::make_unique<GcsWorld>();
}

INSTANTIATE_TEST_SUITE_P(Gcs, StoreContract,
                         ::testing::ValuesIn(plain_and_faulty("Gcs", gcs_world)), case_name);

}  // namespace
}  // namespace headrace::contract
