#include "contract/store_contract.h"

#include <algorithm>
#include <cstring>
#include <ostream>
#include <set>
#include <utility>

#include "base/random.h"
#include "store/fault/fault_store.h"

namespace headrace::contract {
namespace {

constexpr std::uint64_t kPoolBytes = std::uint64_t{64} << 20;

}  // namespace

std::vector<ContractCase> plain_and_faulty(
    const std::string& name, std::function<std::unique_ptr<ContractWorld>()> make_world) {
  return {{.name = name, .make_world = make_world, .has_faults = false},
          {.name = name + "WithFaults", .make_world = make_world, .has_faults = true}};
}

void PrintTo(const ContractCase& contract_case, std::ostream* out) { *out << contract_case.name; }

std::string case_name(const ::testing::TestParamInfo<ContractCase>& info) {
  return info.param.name;
}

std::string pattern(std::uint64_t size_bytes, std::uint64_t seed) {
  Random random(seed);
  std::string bytes(size_bytes, '\0');
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    const std::uint64_t word = random.next();
    std::memcpy(bytes.data() + i, &word, std::min<std::size_t>(8, bytes.size() - i));
  }
  return bytes;
}

std::string_view text_of(const Completion& completion, std::size_t slab_offset_bytes) {
  const std::span<std::byte> bytes = completion.slab.bytes();
  if (bytes.empty()) return {};
  return {reinterpret_cast<const char*>(bytes.data()) + slab_offset_bytes, completion.length_bytes};
}

// Below ctest's limit, so that a lost completion is told by its test.
TimePoint far_future() { return system_clock().now() + std::chrono::seconds(240); }

void StoreContract::SetUp() {
  world_ = GetParam().make_world();
  if (world_ == nullptr) GTEST_SKIP() << GetParam().name << " is not available here";
  auto pool = SlabPool::create({.limit_bytes = kPoolBytes});
  ASSERT_TRUE(pool) << pool.error().message();
  pool_ = *std::move(pool);
  store_ = open();
  ASSERT_NE(store_, nullptr);
}

void StoreContract::TearDown() {
  store_.reset();
  if (pool_ != nullptr) {
    EXPECT_EQ(pool_->used_bytes(), 0U) << "slabs were lost";
  }
}

std::unique_ptr<Store> StoreContract::open(const StoreOptions& options) {
  auto opened = world_->open(options);
  if (!opened) {
    ADD_FAILURE() << opened.error().message();
    return nullptr;
  }
  if (!GetParam().has_faults) return *std::move(opened);
  return FaultStore::create(*std::move(opened),
                            {.seed = 7, .short_accept_share = 0.3, .hold_back_count = 3});
}

Request StoreContract::get_request(std::string_view key, std::uint64_t offset_bytes,
                                   std::uint64_t length_bytes) {
  Request request;
  request.key = keep(std::string(key));
  request.offset_bytes = offset_bytes;
  request.length_bytes = length_bytes;
  auto slab = pool_->acquire(length_bytes, far_future());
  EXPECT_TRUE(slab);
  if (slab) request.slab = *std::move(slab);
  return request;
}

Request StoreContract::put_request(std::string_view key, std::string_view bytes) {
  Request request;
  request.op = Op::kPut;
  request.key = keep(std::string(key));
  request.length_bytes = bytes.size();
  if (bytes.empty()) return request;
  auto slab = pool_->acquire(bytes.size(), far_future());
  EXPECT_TRUE(slab);
  if (!slab) return request;
  std::memcpy(slab->bytes().data(), bytes.data(), bytes.size());
  request.slab = *std::move(slab);
  return request;
}

std::vector<Completion> StoreContract::take(Store& store, std::size_t count) {
  std::vector<Completion> done(count);
  std::size_t taken = 0;
  const TimePoint until = far_future();
  while (taken < count && system_clock().now() < until) {
    taken += store.wait(std::span(done).subspan(taken), until);
  }
  EXPECT_EQ(taken, count) << "the store lost completions";
  done.resize(taken);
  return done;
}

std::vector<Completion> StoreContract::run(Store& store, std::vector<Request> requests) {
  std::set<std::uint64_t> expected;
  for (const Request& request : requests)
    EXPECT_TRUE(expected.insert(request.tag).second) << "tags must differ";
  std::vector<Completion> done;
  std::span<Request> rest(requests);
  while (done.size() < requests.size()) {
    rest = rest.subspan(store.submit(rest));
    const std::size_t in_flight = requests.size() - rest.size() - done.size();
    if (in_flight == 0) continue;  // a short accept of nothing
    std::vector<Completion> some = take(store, rest.empty() ? in_flight : 1);
    if (some.empty()) return done;
    std::move(some.begin(), some.end(), std::back_inserter(done));
  }
  for (const Completion& completion : done)
    EXPECT_EQ(expected.erase(completion.tag), 1U) << "a tag came twice";
  EXPECT_TRUE(expected.empty());
  return done;
}

Completion StoreContract::run_one(Request request) {
  std::vector<Request> requests;
  requests.push_back(std::move(request));
  std::vector<Completion> done = run(*store_, std::move(requests));
  return done.empty() ? Completion() : std::move(done.front());
}

Status StoreContract::put_with(std::string_view key, const ObjectSettings& settings) {
  Request request = put_request(key, "0123456789");
  request.settings = &settings;
  return std::move(run_one(std::move(request)).status);
}

std::string StoreContract::put(std::string_view key, std::string_view bytes) {
  Completion done = run_one(put_request(key, bytes));
  EXPECT_TRUE(done.status.ok()) << done.status.message();
  return std::move(done.etag);
}

std::string StoreContract::get(std::string_view key, std::uint64_t offset_bytes,
                               std::uint64_t length_bytes) {
  const Completion done = run_one(get_request(key, offset_bytes, length_bytes));
  EXPECT_TRUE(done.status.ok()) << done.status.message();
  return std::string(text_of(done));
}

std::vector<std::string> StoreContract::keys_below(const std::string& prefix) {
  auto all = list_all(*store_, prefix);
  EXPECT_TRUE(all) << all.error().message();
  std::vector<std::string> keys;
  if (!all) return keys;
  for (const ObjectInfo& info : *all) keys.push_back(info.key);
  return keys;
}

}  // namespace headrace::contract
