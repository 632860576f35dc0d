// The contract suite over Azure's Blob service: against a real server (Azurite) when
// HEADRACE_TEST_AZURE_ENDPOINT names one (tests/with_servers starts it), by both pollers.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "contract/store_contract.h"
#include "headrace/environment.h"
#include "store/azure/azure_protocol.h"
#include "store/transfer/transfer_engine.h"

namespace headrace::contract {
namespace {

std::string variable(const char* name) {
  const char* const value =
      std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets variables here
  return value == nullptr ? std::string() : value;
}

Environment server_environment() {
  Environment environment;
  environment.variables = {{"AZURE_STORAGE_ACCOUNT", variable("HEADRACE_TEST_AZURE_ACCOUNT")},
                           {"AZURE_STORAGE_KEY", variable("HEADRACE_TEST_AZURE_KEY")}};
  return environment;
}

StoreOptions server_options(PollerKind poller) {
  StoreOptions options;
  options.url = "az://" + variable("HEADRACE_TEST_AZURE_ACCOUNT") + "/" +
                variable("HEADRACE_TEST_AZURE_CONTAINER");
  options.endpoint = variable("HEADRACE_TEST_AZURE_ENDPOINT");
  options.poller = poller;
  return options;
}

/// Makes the container, which no store does; that it exists is good as well.
void create_container() {
  const StoreOptions options = server_options(PollerKind::kAuto);
  auto location = azure::parse_azure_location(*parse_store_url(options.url));
  ASSERT_TRUE(location) << location.error().message();
  auto settings = auth::resolve_azure_settings(location->account, server_environment(),
                                               [](const std::string&) { return std::nullopt; });
  ASSERT_TRUE(settings) << settings.error().message();
  auto config = azure::make_azure_config(options, *location, *settings, nullptr);
  ASSERT_TRUE(config) << config.error().message();
  auto protocol = std::make_shared<azure::AzureProtocol>(*std::move(config));
  auto engine = TransferEngine::create(protocol, options);
  ASSERT_TRUE(engine) << engine.error().message();
  HttpCall call;
  call.method = "PUT";
  call.query = {{"restype", "container"}};
  call.what = "CREATE " + options.url;
  auto answer = (*engine)->call(call);
  if (answer) return;
  const std::string message(answer.error().message());
  ASSERT_NE(message.find("ContainerAlreadyExists"), std::string::npos) << message;
}

/// A prefix of its own in a container of a real server; removed afterwards.
class AzureWorld final : public ContractWorld {
 public:
  explicit AzureWorld(PollerKind poller) : poller_(poller) {
    static std::atomic<int> next{0};
    root_ = "contract-" + std::to_string(::getpid()) + "-" + std::to_string(next.fetch_add(1));
    static std::once_flag once;
    std::call_once(once, create_container);
  }
  ~AzureWorld() override {
    auto store = open({});
    if (!store) return;
    auto all = list_all(**store, "");
    if (!all) return;
    std::vector<std::string> keys;
    for (const ObjectInfo& info : *all) keys.push_back(info.key);
    for (const Status& status : (*store)->remove_many(keys))
      EXPECT_TRUE(status.ok()) << status.message();
  }
  Result<std::unique_ptr<Store>> open(StoreOptions options) override {
    const StoreOptions server = server_options(poller_);
    options.url = server.url + "/" + root_;
    options.endpoint = server.endpoint;
    options.poller = poller_;
    return open_store(options, server_environment());
  }
  /// Azure stores a backslash as a slash.
  bool takes_key(std::string_view key) const override {
    return key.find('\\') == std::string_view::npos;
  }
  /// Azurite 3.35 answers a range that starts at the object's end with 206 and "bytes 10-9/10";
  /// Azure with 416.
  bool answers_range_at_end() const override { return false; }

 private:
  const PollerKind poller_;
  std::string root_;
};

std::unique_ptr<ContractWorld> azure_world(PollerKind poller) {
  if (variable("HEADRACE_TEST_AZURE_ENDPOINT").empty()) return nullptr;
  if (poller == PollerKind::kUring) {
    // The kernel may refuse io_uring.
    if (!open_store(server_options(poller), server_environment())) return nullptr;
  }
  return std::make_unique<AzureWorld>(poller);
}

INSTANTIATE_TEST_SUITE_P(AzureEpoll, StoreContract,
                         ::testing::ValuesIn(plain_and_faulty(
                             "AzureEpoll", [] { return azure_world(PollerKind::kEpoll); })),
                         case_name);
INSTANTIATE_TEST_SUITE_P(AzureUring, StoreContract,
                         ::testing::ValuesIn(plain_and_faulty(
                             "AzureUring", [] { return azure_world(PollerKind::kUring); })),
                         case_name);

}  // namespace
}  // namespace headrace::contract
