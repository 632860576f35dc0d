#include "store/transfer/node_share.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "base/cut_off.h"
#include "base/random.h"
#include "base/temporary_directory.h"

namespace headrace::transfer {
namespace {

using namespace std::chrono_literals;

const TimePoint kNow{1h};

ControlSample sample_of(std::uint64_t completions) {
  ControlSample sample;
  sample.completions = completions;
  sample.bytes = completions * 1000;
  sample.busy_s = 0.5;
  sample.throttles = 1;
  sample.used_s = 0.01;
  sample.in_flight_s = 0.08;
  return sample;
}

TEST(FairShare, DividesEquallyAndPassesOnWhatNobodyWants) {
  const std::uint32_t equal[] = {100, 100, 100, 100};
  EXPECT_EQ(fair_share(80, equal, 4, 0), 20U);
  const std::uint32_t uneven[] = {2, 100, 100};
  EXPECT_EQ(fair_share(80, uneven, 3, 0), 2U);
  EXPECT_EQ(fair_share(80, uneven, 3, 1), 39U);
  const std::uint32_t idle[] = {0, 100};
  EXPECT_EQ(fair_share(80, idle, 2, 0), 0U);
  EXPECT_EQ(fair_share(80, idle, 2, 1), 80U);
  const std::uint32_t many[] = {9, 9, 9};
  EXPECT_EQ(fair_share(2, many, 3, 2), 1U);  // nobody starves
}

TEST(FairShare, NeverGivesMoreThanThereIs) {
  Random random(3);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::uint32_t> demands(1 + random.below(10));
    for (auto& demand : demands) demand = static_cast<std::uint32_t>(random.below(100));
    const auto limit = static_cast<std::uint32_t>(demands.size() + random.below(200));
    std::uint64_t sum = 0;
    std::uint64_t wanted = 0;
    for (std::size_t i = 0; i < demands.size(); ++i) {
      sum += fair_share(limit, demands.data(), demands.size(), i);
      wanted += demands[i];
    }
    ASSERT_LE(sum, limit);
    ASSERT_GE(sum + demands.size(), std::min<std::uint64_t>(limit, wanted));
  }
}

class NodeShareTest : public testing::Test {
 protected:
  std::unique_ptr<NodeShare> open(std::uint64_t id, std::string_view endpoint = "store:80") {
    auto share = NodeShare::open(directory_.path(), endpoint, id);
    EXPECT_TRUE(share);
    return share ? *std::move(share) : nullptr;
  }
  std::string file() const { return NodeShare::path_in(directory_.path()); }
  TemporaryDirectory directory_;
};

TEST_F(NodeShareTest, OneProcessIsItsOwnLeader) {
  const auto share = open(1);
  share->exchange(sample_of(5), 10, kNow);
  const auto view = share->exchange(sample_of(7), 10, kNow + 10ms);
  EXPECT_TRUE(view.is_shared);
  EXPECT_TRUE(view.is_leader);
  EXPECT_EQ(view.process_count, 1U);
  EXPECT_EQ(view.sample.completions, 7U);
  EXPECT_EQ(view.sample.bytes, 7000U);
  EXPECT_NEAR(view.sample.busy_s, 0.5, 1e-6);
  EXPECT_EQ(share->share_of(64), 10U);
}

TEST_F(NodeShareTest, LeaderSeesWhatAllDidAndOthersFollow) {
  const auto a = open(1);
  const auto b = open(2);
  for (int i = 0; i < 2; ++i) {
    a->exchange(sample_of(1), 100, kNow);
    b->exchange(sample_of(1), 100, kNow);
  }
  b->exchange(sample_of(10), 100, kNow + 10ms);
  const auto view = a->exchange(sample_of(5), 100, kNow + 10ms);
  ASSERT_TRUE(view.is_leader);
  EXPECT_EQ(view.process_count, 2U);
  EXPECT_EQ(view.sample.completions, 16U);  // 5, and b's 1 + 10 since the last look
  EXPECT_EQ(view.sample.throttles, 3U);
  EXPECT_NEAR(view.sample.used_s, 0.02, 1e-6);  // at the same time
  a->publish_limit(48);
  const auto follower = b->exchange(sample_of(0), 100, kNow + 20ms);
  EXPECT_FALSE(follower.is_leader);
  EXPECT_EQ(follower.node_limit, 48U);
  EXPECT_EQ(b->share_of(follower.node_limit), 24U);
}

TEST_F(NodeShareTest, EndpointsDoNotMix) {
  const auto a = open(1, "a:80");
  const auto b = open(2, "b:80");
  a->exchange(sample_of(1), 8, kNow);
  const auto view = b->exchange(sample_of(1), 8, kNow);
  EXPECT_TRUE(view.is_leader);
  EXPECT_EQ(view.process_count, 1U);
}

TEST_F(NodeShareTest, SilentProcessLosesItsShareAndLeadership) {
  const auto a = open(1);
  const auto b = open(2);
  a->exchange(sample_of(1), 8, kNow);
  b->exchange(sample_of(1), 8, kNow);
  const auto view = b->exchange(sample_of(1), 8, kNow + kShareTimeout + 1ms);
  EXPECT_TRUE(view.is_leader);
  EXPECT_EQ(view.process_count, 1U);
  // It was only stopped: it comes back as one of two.
  a->exchange(sample_of(1), 8, kNow + kShareTimeout + 2ms);
  EXPECT_EQ(b->exchange(sample_of(1), 8, kNow + kShareTimeout + 3ms).process_count, 2U);
}

TEST_F(NodeShareTest, SlotsAreUsedAgainAndTheFileKeepsItsSize) {
  const auto size = [&] { return std::filesystem::file_size(file()); };
  open(1)->exchange(sample_of(1), 8, kNow);
  const auto before = size();
  for (std::uint64_t i = 0; i < 10 * kShareSlots; ++i) {
    const auto share = open(100 + i, "host" + std::to_string(i));
    ASSERT_TRUE(share->exchange(sample_of(1), 8, kNow + i * (kShareTimeout / 100)).is_shared);
  }
  EXPECT_EQ(size(), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.path()), {}), 1);
}

TEST_F(NodeShareTest, FullTableMeansToGoAlone) {
  std::vector<std::unique_ptr<NodeShare>> shares;
  for (std::uint64_t i = 0; i < kShareSlots; ++i) {
    shares.push_back(open(i + 1));
    ASSERT_TRUE(shares.back()->exchange(sample_of(1), 8, kNow).is_shared);
  }
  const auto one_more = open(9999);
  EXPECT_FALSE(one_more->exchange(sample_of(1), 8, kNow).is_shared);
  shares.clear();
  EXPECT_TRUE(one_more->exchange(sample_of(1), 8, kNow).is_shared);
}

TEST_F(NodeShareTest, HeartbeatsOfAnotherBootAreNobodys) {
  const auto a = open(1);
  a->exchange(sample_of(1), 8, kNow + 1000h);
  const auto b = open(2);
  EXPECT_EQ(b->exchange(sample_of(1), 8, kNow).process_count, 1U);
}

TEST_F(NodeShareTest, ForeignFileIsReplaced) {
  for (const std::size_t size_bytes : {std::size_t{5}, std::size_t{100'000}}) {
    std::filesystem::remove(file());
    std::ofstream(file()) << std::string(size_bytes, 'x');
    const auto share = open(1);
    ASSERT_TRUE(share);
    EXPECT_TRUE(share->exchange(sample_of(1), 8, kNow).is_shared);
  }
}

TEST_F(NodeShareTest, GarbageInAllSlotsHarmsNobody) {
  open(1)->exchange(sample_of(1), 8, kNow);
  std::string bytes(std::filesystem::file_size(file()), '\0');
  std::ifstream(file(), std::ios::binary)
      .read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  Random random(5);
  for (std::size_t i = 128; i < bytes.size(); ++i) bytes[i] = static_cast<char>(random.next());
  std::ofstream(file(), std::ios::binary) << bytes;
  const auto share = open(2);
  share->exchange(sample_of(1), 8, kNow);
  const auto view = share->exchange(sample_of(3), 8, kNow);
  EXPECT_TRUE(view.is_shared);
  EXPECT_EQ(view.process_count, 1U);
  EXPECT_EQ(view.sample.completions, 3U);
}

TEST_F(NodeShareTest, AFileThatIsCutOffEndsTheSharingNotTheProcess) {
  for (const off_t left : {off_t{0}, off_t{128}, off_t{5000}}) {
    std::filesystem::remove(file());
    const auto a = open(1);
    const auto b = open(2);
    a->exchange(sample_of(1), 8, kNow);
    ASSERT_EQ(b->exchange(sample_of(1), 8, kNow).process_count, 2U);
    cut_off(file(), left);  // SIGBUS, were it mapped.
    b->publish_limit(7);
    for (const auto& share : {a.get(), b.get()}) {
      const auto view = share->exchange(sample_of(1), 8, kNow + 10ms);
      EXPECT_FALSE(view.is_shared);
      EXPECT_EQ(view.process_count, 1U);
      share->leave();
    }
  }
}

TEST_F(NodeShareTest, AnEmptiedFileIsSharedAgainOnceSomebodyHasMadeItWhole) {
  const auto a = open(1);
  a->exchange(sample_of(1), 8, kNow);
  cut_off(file(), 0);
  EXPECT_FALSE(a->exchange(sample_of(1), 8, kNow + 10ms).is_shared);
  const auto b = open(2);
  b->exchange(sample_of(1), 8, kNow + 20ms);
  EXPECT_EQ(a->exchange(sample_of(1), 8, kNow + 30ms).process_count, 2U);
}

TEST_F(NodeShareTest, UnusableDirectoryIsAnError) {
  EXPECT_EQ(NodeShare::open("", "a", 1).error().code(), Code::kInvalidArgument);
  EXPECT_FALSE(NodeShare::open(directory_.path() + "/no/such", "a", 1));
  ASSERT_EQ(::symlink("/dev/null", file().c_str()), 0);
  EXPECT_FALSE(NodeShare::open(directory_.path(), "a", 1));  // a link may lead anywhere
}

TEST_F(NodeShareTest, KilledProcessesLeaveNothingBehind) {
  // Children write as fast as they can and are killed wherever they are.
  std::vector<pid_t> children;
  for (std::uint64_t i = 0; i < 4; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      auto share = NodeShare::open(directory_.path(), "store:80", 100 + i);
      for (;;) {
        const TimePoint now = system_clock().now();
        const auto view = (*share)->exchange(sample_of(1), 100, now);
        if (view.is_leader) (*share)->publish_limit(40);
      }
    }
    children.push_back(child);
  }
  const auto own = open(1);
  while (own->exchange(sample_of(0), 100, system_clock().now()).process_count < 5) ::usleep(100);
  for (const pid_t child : children) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  // Their slots time out; time is an argument.
  const TimePoint later = system_clock().now() + kShareTimeout + 10ms;
  const auto view = own->exchange(sample_of(2), 100, later);
  EXPECT_TRUE(view.is_leader);
  EXPECT_EQ(view.process_count, 1U);
  EXPECT_EQ(own->share_of(40), 40U);
  for (std::uint64_t i = 0; i < kShareSlots - 1; ++i)
    ASSERT_TRUE(open(1000 + i, "x")->exchange(sample_of(1), 1, later).is_shared);
}

}  // namespace
}  // namespace headrace::transfer
