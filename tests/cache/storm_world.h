#pragma once
/// \file
/// For the storm tests: a directory of files, a cache beside it, and processes in three jobs that
/// read the one through the other until they are killed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/random.h"
#include "base/temporary_directory.h"
#include "base/test_seed.h"
#include "cache/storm.h"
#include "headrace/cache.h"

namespace headrace {

class StormWorld : public ::testing::Test {
 protected:
  static constexpr std::size_t kProcesses = 8;
  static constexpr std::size_t kJobs = 3;

  struct Worker {
    pid_t process = -1;
    std::size_t job = 0;
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
  virtual std::string cache() const { return directory_.path() + "/cache"; }
  virtual std::uint64_t limit_bytes() const { return 0; }

  /// `preloaded`: a library for the worker; empty: none.
  Worker start(std::size_t job, const std::string& preloaded = {}) {
    std::array<int, 2> pipe{};
    EXPECT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
    const std::string limit = std::to_string(limit_bytes());
    const std::string seed = std::to_string(random_.next());
    const std::string which = std::to_string(job);
    const pid_t process = ::fork();
    if (process == 0) {
      ::dup2(pipe[1], 1);
      if (!preloaded.empty()) ::setenv("LD_PRELOAD", preloaded.c_str(), 1);
      ::execl(HEADRACE_STORM_WORKER, "storm_worker", source().c_str(), cache().c_str(),
              limit.c_str(), "0", which.c_str(), seed.c_str(), nullptr);
      ::_exit(5);
    }
    ::close(pipe[1]);
    return {process, job, Fd(pipe[0])};
  }
  /// Waits until it has written so many bytes: until it has read. False: it ended before.
  static bool says(const Worker& worker, std::size_t size = 6) {
    std::array<char, 64> words{};
    while (size > 0) {
      const ssize_t count = ::read(worker.output.get(), words.data(), std::min(size, words.size()));
      if (count <= 0) return false;
      size -= static_cast<std::size_t>(count);
    }
    return true;
  }
  /// What it says from now on it has read from now on.
  static void forget_what_it_said(const Worker& worker) {
    std::array<char, 4096> words{};
    ::fcntl(worker.output.get(), F_SETFL, O_NONBLOCK);
    while (::read(worker.output.get(), words.data(), words.size()) > 0) {
    }
    ::fcntl(worker.output.get(), F_SETFL, 0);
  }
  /// Kills it; it must not have ended by itself.
  static void kill(Worker& worker) {
    if (worker.process < 0) return;
    ::kill(worker.process, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(worker.process, &status, 0), worker.process);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        << "ended by itself with "
        << (WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    worker.process = -1;
  }

  /// Files in buckets, whatever their names; and those that have no business in the directory.
  std::vector<std::filesystem::path> extents() const { return files(true); }
  std::vector<std::filesystem::path> strangers() const { return files(false); }
  /// Of files: one that was killed while it gave an unfinished file its name leaves it with both.
  std::uint64_t held_bytes() const {
    std::uint64_t held = 0;
    std::set<ino_t> seen;
    for (const auto& path : extents()) {
      struct stat info {};
      const bool is_there = ::stat(path.c_str(), &info) == 0;
      if (is_there && seen.insert(info.st_ino).second)
        held += static_cast<std::uint64_t>(info.st_size);
    }
    return held;
  }

  /// Without any process: what is there is all that is there, and the ledger says the same.
  void expect_order() {
    auto opened = Cache::open({.directory = cache(), .limit_bytes = limit_bytes()});
    ASSERT_TRUE(opened) << opened.error().message();
    auto check = (*opened)->verify(nullptr);
    ASSERT_TRUE(check) << check.error().message();
    ASSERT_TRUE((*opened)->shrink(limit_bytes() / 2 + 1));  // Looks at plans, too.
    auto usage = (*opened)->usage();
    ASSERT_TRUE(usage) << usage.error().message();
    EXPECT_EQ(usage->extent_count, extents().size());
    EXPECT_EQ(usage->file_bytes, held_bytes());
    for (const auto& path : strangers()) ADD_FAILURE() << "left behind: " << path;
    MetricList metrics;
    (*opened)->append_metrics(metrics);
    const auto used = std::find_if(metrics.begin(), metrics.end(), [](const Metric& metric) {
      return metric.name == "cache.used_bytes";
    });
    ASSERT_NE(used, metrics.end());
    EXPECT_EQ(used->value, static_cast<double>(usage->file_bytes));
  }

  TemporaryDirectory directory_;
  Random random_{test_seed()};
  std::vector<Worker> workers_;

 private:
  std::vector<std::filesystem::path> files(bool in_buckets) const {
    std::vector<std::filesystem::path> found;
    std::error_code gone;
    const std::filesystem::path root = cache() + "/v1";
    for (const auto& entry : std::filesystem::directory_iterator(root, gone)) {
      const std::string name = entry.path().filename().string();
      const bool is_bucket = name.size() == 3 && entry.is_directory(gone);
      const bool is_own = name == "ledger" || name == "locks" || name == "plans";
      if (!in_buckets && !is_bucket && !is_own) found.push_back(entry.path());
      if (in_buckets ? !is_bucket : name != "plans") continue;
      for (const auto& file : std::filesystem::directory_iterator(entry.path(), gone))
        found.push_back(file.path());
    }
    return found;
  }
};

}  // namespace headrace
