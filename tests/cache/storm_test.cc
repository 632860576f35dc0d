// Processes that share a cache are killed at random moments, and its files are damaged and deleted:
// no wrong byte, no read that does not end, never more than the limit, nothing left behind.
#include "cache/storm.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/random.h"
#include "base/temporary_directory.h"
#include "base/test_seed.h"
#include "headrace/cache.h"

namespace headrace {
namespace {

constexpr std::uint64_t kLimitBytes = std::uint64_t{4} << 20;  // A third of the files.
constexpr std::size_t kProcesses = 8;

class Storm : public ::testing::Test {
 protected:
  struct Worker {
    pid_t process = -1;
    Fd output;
  };

  void SetUp() override {
    std::filesystem::create_directories(source());
    for (std::uint64_t file = 0; file < kStormFiles; ++file) {
      std::string bytes(kStormFileBytes, '\0');
      for (std::uint64_t at = 0; at < bytes.size(); ++at)
        bytes[at] = static_cast<char>(storm_byte(file, at));
      std::ofstream(source() + "/" + storm_key(file), std::ios::binary) << bytes;
    }
  }
  void TearDown() override {
    for (Worker& worker : workers_) kill(worker);
  }

  std::string source() const { return directory_.path() + "/source"; }
  std::string cache() const { return directory_.path() + "/cache"; }

  Worker start() {
    std::array<int, 2> pipe{};
    EXPECT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
    const std::string limit = std::to_string(kLimitBytes);
    const std::string seed = std::to_string(random_.next());
    const pid_t process = ::fork();
    if (process == 0) {
      ::dup2(pipe[1], 1);
      ::execl(HEADRACE_STORM_WORKER, "storm_worker", source().c_str(), cache().c_str(),
              limit.c_str(), seed.c_str(), nullptr);
      ::_exit(5);
    }
    ::close(pipe[1]);
    return {process, Fd(pipe[0])};
  }
  /// Waits until it reads; false: it ended before.
  static bool is_ready(const Worker& worker) {
    std::array<char, 6> word{};
    return ::read(worker.output.get(), word.data(), word.size()) > 0;
  }
  /// Kills it; it must not have ended by itself.
  static void kill(Worker& worker) {
    if (worker.process < 0) return;
    ::kill(worker.process, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(worker.process, &status, 0), worker.process);
    EXPECT_TRUE(WIFSIGNALED(status)) << "ended by itself with " << WEXITSTATUS(status);
    worker.process = -1;
  }

  std::vector<std::filesystem::path> extents() const {
    std::vector<std::filesystem::path> found;
    std::error_code ignored;
    const std::filesystem::path root = cache() + "/v1";
    for (const auto& bucket : std::filesystem::directory_iterator(root, ignored)) {
      for (const auto& file : std::filesystem::directory_iterator(bucket.path(), ignored))
        found.push_back(file.path());
    }
    return found;
  }
  std::uint64_t held_bytes() const {
    std::uint64_t held = 0;
    std::error_code gone;
    for (const auto& path : extents()) {
      const std::uint64_t size = std::filesystem::file_size(path, gone);
      if (!gone) held += size;
    }
    return held;
  }
  void damage_one() {
    const auto all = extents();
    if (all.empty()) return;
    const auto& victim = all[random_.below(all.size())];
    std::error_code gone;
    const std::uint64_t size = std::filesystem::file_size(victim, gone);
    if (gone) return;
    switch (random_.below(3)) {
      case 0:
        std::filesystem::remove(victim, gone);
        return;
      case 1:
        std::filesystem::resize_file(victim, random_.below(size + 1), gone);
        return;
      default: {
        const Fd file(::open(victim.c_str(), O_WRONLY | O_CLOEXEC));
        const std::uint64_t garbage = random_.next();
        static_cast<void>(!::pwrite(file.get(), &garbage, sizeof(garbage),
                                    static_cast<off_t>(random_.below(size + 1))));
      }
    }
  }

  TemporaryDirectory directory_;
  Random random_{test_seed()};
  std::vector<Worker> workers_;
};

// HEADRACE_STORM_KILLS: 10,000 in the long set.
TEST_F(Storm, KillsLeaveNothingWrong) {
  const std::uint64_t kills = test_number("HEADRACE_STORM_KILLS", 300);
  for (std::size_t i = 0; i < kProcesses; ++i) workers_.push_back(start());
  for (std::uint64_t i = 0; i < kills; ++i) {
    Worker& worker = workers_[random_.below(kProcesses)];
    if (random_.below(4) != 0) {
      ASSERT_TRUE(is_ready(worker)) << "every start finds the cache usable";
    }
    // At any moment of its life, its start included.
    const timespec pause{.tv_sec = 0, .tv_nsec = static_cast<long>(random_.below(20'000'000))};
    ::nanosleep(&pause, nullptr);
    kill(worker);
    worker = start();
    if (random_.below(3) == 0) damage_one();
    // One extent for each process: written and about to be deleted as damaged.
    ASSERT_LE(held_bytes(), kLimitBytes + kProcesses * (kStormGrid + 4096)) << "after " << i;
  }
  for (Worker& worker : workers_) {
    EXPECT_TRUE(is_ready(worker));
    kill(worker);
  }
  // What is there is all that is there: no names but extents', and the sum is right again.
  auto opened = Cache::open({.directory = cache(), .limit_bytes = kLimitBytes});
  ASSERT_TRUE(opened) << opened.error().message();
  auto check = (*opened)->verify(nullptr);
  ASSERT_TRUE(check) << check.error().message();
  static_cast<void>((*opened)->shrink(kLimitBytes / 2));
  auto usage = (*opened)->usage();
  ASSERT_TRUE(usage) << usage.error().message();
  EXPECT_EQ(usage->extent_count, extents().size());
  EXPECT_GT(usage->extent_count, 0U) << "the storm left something to look at";
  MetricList metrics;
  (*opened)->append_metrics(metrics);
  const auto used = std::find_if(metrics.begin(), metrics.end(), [](const Metric& metric) {
    return metric.name == "cache.used_bytes";
  });
  ASSERT_NE(used, metrics.end());
  EXPECT_EQ(used->value, static_cast<double>(usage->file_bytes));
}

}  // namespace
}  // namespace headrace
