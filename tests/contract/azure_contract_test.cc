// The contract suite over Azure's Blob service: against a real server (Azurite) when
// HEADRACE_TEST_AZURE_ENDPOINT names one (tests/with_servers starts it), by both pollers.
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "contract/server_world.h"
#include "contract/store_contract.h"
#include "headrace/environment.h"
#include "store/azure/azure_protocol.h"
#include "store/transfer/transfer_engine.h"

namespace headrace::contract {
namespace {

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
    static std::once_flag once;
    std::call_once(once, create_container);
  }
  ~AzureWorld() override { remove_all(open({})); }
  Result<std::unique_ptr<Store>> open(StoreOptions options) override {
    const StoreOptions server = server_options(poller_);
    options.url = server.url + "/" + root_;
    options.endpoint = server.endpoint;
    options.poller = poller_;
    return open_store(options, server_environment());
  }
  std::uint64_t load_request_count() const override { return 400; }
  /// Azure stores a backslash as a slash.
  bool takes_key(std::string_view key) const override {
    return key.find('\\') == std::string_view::npos;
  }
  /// Azurite 3.35 answers a range that starts at the object's end with 206 and "bytes 10-9/10";
  /// Azure with 416.
  bool answers_range_at_end() const override { return false; }

 private:
  const PollerKind poller_;
  const std::string root_ = own_prefix();
};

std::unique_ptr<ContractWorld> azure_world(PollerKind poller) {
  if (variable("HEADRACE_TEST_AZURE_ENDPOINT").empty()) return nullptr;
  if (poller == PollerKind::kUring) {
    // The kernel may refuse io_uring.
    if (!open_store(server_options(poller), server_environment())) return nullptr;
  }
  return std::make_unique<AzureWorld>(poller);
}

double requests_of(const Store& store) {
  MetricList metrics;
  store.append_metrics(metrics);
  for (const auto& metric : metrics) {
    if (metric.name == std::string_view("store.attempts")) return metric.value;
  }
  return -1;
}

/// What only Azure has.
class AzureServer : public ::testing::Test {
 protected:
  void SetUp() override {
    world_ = azure_world(PollerKind::kAuto);
    if (world_ == nullptr) GTEST_SKIP() << "HEADRACE_TEST_AZURE_ENDPOINT is not set";
    auto pool = SlabPool::create({});
    ASSERT_TRUE(pool);
    pool_ = *std::move(pool);
    auto store = world_->open({});
    ASSERT_TRUE(store) << store.error().message();
    store_ = *std::move(store);
  }
  Completion send(Request request, std::string_view bytes) {
    request.length_bytes = bytes.size();
    request.slab = *pool_->try_acquire(bytes.size());
    bytes.copy(reinterpret_cast<char*>(request.slab.bytes().data()), bytes.size());
    EXPECT_EQ(store_->submit({&request, 1}), 1U);
    Completion done;
    EXPECT_EQ(store_->wait({&done, 1}, far_future()), 1U);
    return done;
  }
  std::unique_ptr<ContractWorld> world_;
  std::unique_ptr<SlabPool> pool_;
  std::unique_ptr<Store> store_;
};

TEST_F(AzureServer, DeletesManyInOneRequest) {
  for (const char* key : {"a b", "c+d", "e/f%20"})
    ASSERT_TRUE(write_object(*store_, *pool_, key, "x"));
  const double before = requests_of(*store_);
  const std::vector<std::string> keys = {"a b", "never/was", "c+d", "", "e/f%20"};
  const auto results = store_->remove_many(keys);
  ASSERT_EQ(results.size(), keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(results[i].code(), keys[i].empty() ? Code::kInvalidArgument : Code::kOk)
        << keys[i] << ": " << results[i].message();
  }
  EXPECT_EQ(requests_of(*store_) - before, 1);
  auto left = list_all(*store_, "");
  ASSERT_TRUE(left);
  EXPECT_TRUE(left->empty());
}

TEST_F(AzureServer, AnUploadGoesOnWithWhatHasArrived) {
  auto upload = store_->create_upload("k");
  ASSERT_TRUE(upload);
  auto none = store_->list_parts("k", *upload);
  ASSERT_TRUE(none) << none.error().message();
  EXPECT_TRUE(none->empty());
  Request part;
  part.op = Op::kPutPart;
  part.key = "k";
  part.upload_id = *upload;
  for (const std::uint32_t number : {2U, 1U}) {
    part.part_number = number;
    const Completion done = send(std::move(part), number == 1 ? "one" : "second");
    ASSERT_TRUE(done.status.ok()) << done.status.message();
    part = Request();
    part.op = Op::kPutPart;
    part.key = "k";
    part.upload_id = *upload;
  }
  auto parts = store_->list_parts("k", *upload);
  ASSERT_TRUE(parts) << parts.error().message();
  ASSERT_EQ(parts->size(), 2U);
  EXPECT_EQ((*parts)[0].part_number, 1U);
  EXPECT_EQ((*parts)[1].size_bytes, 6U);
  for (int i = 0; i < 2; ++i) {  // again, as after a lost answer
    auto info = store_->complete_upload("k", *upload, *parts);
    ASSERT_TRUE(info) << info.error().message();
    EXPECT_EQ(info->size_bytes, 9U);
    EXPECT_EQ(info->etag, store_->head("k")->etag);
  }
  EXPECT_EQ(store_->list_parts("k", *upload).error().code(), Code::kNotFound);
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
