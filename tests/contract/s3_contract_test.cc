// The contract suite over S3: against the simulator in this process, by both pollers, and against a
// real server when HEADRACE_TEST_S3_ENDPOINT names one (tests/with_servers starts one).
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "base/temporary_directory.h"
#include "contract/server_world.h"
#include "contract/store_contract.h"
#include "headrace/environment.h"
#include "headrace/sim.h"

namespace headrace::contract {
namespace {

Environment environment_with_keys(const std::string& access_key, const std::string& secret_key) {
  Environment environment;
  environment.variables = {{"AWS_ACCESS_KEY_ID", access_key},
                           {"AWS_SECRET_ACCESS_KEY", secret_key}};
  return environment;
}

bool can_poll_by(PollerKind poller) {
  StoreOptions options;
  options.url = "s3://bucket";
  options.endpoint = "http://127.0.0.1:1";
  options.poller = poller;
  return open_store(options, environment_with_keys("a", "b")).has_value();
}

class SimWorld final : public ContractWorld {
 public:
  explicit SimWorld(PollerKind poller) : poller_(poller) {
    std::filesystem::create_directory(directory_.path() + "/bucket");
    SimOptions options;
    options.directory = directory_.path();
    auto server = SimServer::start(options);
    EXPECT_TRUE(server) << server.error().message();
    if (server) server_ = *std::move(server);
  }
  Result<std::unique_ptr<Store>> open(StoreOptions options) override {
    if (server_ == nullptr) return Status(Code::kUnavailable, "the simulator did not start");
    options.url = "s3://bucket/root";
    options.endpoint = server_->endpoint();
    options.poller = poller_;
    return open_store(options, environment_with_keys("headrace", "headrace-secret"));
  }
  std::uint64_t least_part_bytes() const override { return std::uint64_t{5} << 20; }

 private:
  const PollerKind poller_;
  TemporaryDirectory directory_;
  std::unique_ptr<SimServer> server_;
};

std::unique_ptr<ContractWorld> sim_world(PollerKind poller) {
  if (!can_poll_by(poller)) return nullptr;
  return std::make_unique<SimWorld>(poller);
}

/// A prefix of its own in a bucket of a real server; removed afterwards.
class ServerWorld final : public ContractWorld {
 public:
  ServerWorld(std::string endpoint, PollerKind poller)
      : endpoint_(std::move(endpoint)), poller_(poller) {}
  ~ServerWorld() override { remove_all(open({})); }
  Result<std::unique_ptr<Store>> open(StoreOptions options) override {
    options.url = "s3://" + variable("HEADRACE_TEST_S3_BUCKET") + "/" + root_;
    options.endpoint = endpoint_;
    options.poller = poller_;
    options.ca_bundle = variable("HEADRACE_TEST_CA");
    return open_store(options, environment_with_keys(variable("HEADRACE_TEST_S3_ACCESS_KEY"),
                                                     variable("HEADRACE_TEST_S3_SECRET_KEY")));
  }
  std::uint64_t least_part_bytes() const override { return std::uint64_t{5} << 20; }
  std::uint64_t load_request_count() const override { return 400; }

 private:
  const std::string endpoint_;
  const PollerKind poller_;
  const std::string root_ = own_prefix();
};

std::unique_ptr<ContractWorld> server_world(const char* endpoint_variable, PollerKind poller) {
  const std::string endpoint = variable(endpoint_variable);
  if (endpoint.empty() || !can_poll_by(poller)) return nullptr;
  return std::make_unique<ServerWorld>(endpoint, poller);
}

/// Servers by the variable that names their endpoint (see tests/with_servers), by both pollers.
std::vector<ContractCase> server_cases() {
  std::vector<ContractCase> cases;
  for (const auto& [name, endpoint_variable] :
       {std::pair{"VersityGw", "HEADRACE_TEST_S3_ENDPOINT"},
        std::pair{"VersityGwTls", "HEADRACE_TEST_S3_TLS_ENDPOINT"},
        std::pair{"MinIO", "HEADRACE_TEST_MINIO_ENDPOINT"}}) {
    for (const PollerKind poller : {PollerKind::kEpoll, PollerKind::kUring}) {
      const std::string suffix = poller == PollerKind::kEpoll ? "Epoll" : "Uring";
      for (ContractCase& contract_case :
           plain_and_faulty(name + suffix, [endpoint_variable = endpoint_variable, poller] {
             return server_world(endpoint_variable, poller);
           })) {
        cases.push_back(std::move(contract_case));
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(
    S3Epoll, StoreContract,
    ::testing::ValuesIn(plain_and_faulty("S3Epoll", [] { return sim_world(PollerKind::kEpoll); })),
    case_name);
INSTANTIATE_TEST_SUITE_P(
    S3Uring, StoreContract,
    ::testing::ValuesIn(plain_and_faulty("S3Uring", [] { return sim_world(PollerKind::kUring); })),
    case_name);
INSTANTIATE_TEST_SUITE_P(S3Server, StoreContract, ::testing::ValuesIn(server_cases()), case_name);

}  // namespace
}  // namespace headrace::contract
