#include "headrace/machine.h"

#include <gtest/gtest.h>

#include <map>

namespace headrace {
namespace {

using Files = std::map<std::string, std::string>;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

MachineShare share_of(const Files& files) {
  const TextReader read = [&files](const std::string& path) -> std::optional<std::string> {
    const auto found = files.find(path);
    if (found == files.end()) return std::nullopt;
    return found->second;
  };
  return machine_share(read, {.cores = 64, .memory_bytes = 256 * kGiB});
}

// As Debian 12, Ubuntu 22.04 and Kubernetes 1.25 or newer have it.
const std::string kUnified =
    "30 23 0:26 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate\n";
// As in a container of Docker on a machine with version 1.
const std::string kVersion1 =
    "40 39 0:30 /docker/c0ffee /sys/fs/cgroup/memory ro,nosuid - cgroup cgroup rw,memory\n"
    "41 39 0:31 /docker/c0ffee /sys/fs/cgroup/cpu,cpuacct ro,nosuid - cgroup cgroup "
    "rw,cpu,cpuacct\n";

TEST(MachineShareTest, WithoutGroupsItIsTheWholeMachine) {
  const MachineShare share = share_of({});
  EXPECT_EQ(share.cores, 64U);
  EXPECT_EQ(share.memory_bytes, 256 * kGiB);
  EXPECT_EQ(share.memory_limit_file, "");
}

TEST(MachineShareTest, ContainerOfVersion2) {
  const MachineShare share = share_of({{"/proc/self/cgroup", "0::/\n"},
                                       {"/proc/self/mountinfo", kUnified},
                                       {"/sys/fs/cgroup/cpu.max", "250000 100000\n"},
                                       {"/sys/fs/cgroup/memory.max", "2147483648\n"},
                                       {"/sys/fs/cgroup/memory.high", "max\n"}});
  EXPECT_EQ(share.cores, 3U) << "2.5 CPUs";
  EXPECT_EQ(share.memory_bytes, 2 * kGiB);
  EXPECT_EQ(share.memory_limit_file, "/sys/fs/cgroup/memory.max");
}

TEST(MachineShareTest, TheLeastLimitAboveTheProcessWins) {
  const std::string slice = "/sys/fs/cgroup/system.slice";
  const MachineShare share = share_of({{"/proc/self/cgroup", "0::/system.slice/job.scope/step\n"},
                                       {"/proc/self/mountinfo", kUnified},
                                       {slice + "/job.scope/step/cpu.max", "max 100000\n"},
                                       {slice + "/job.scope/step/memory.max", "max\n"},
                                       {slice + "/job.scope/cpu.max", "400000 50000\n"},
                                       {slice + "/job.scope/memory.high", "4294967296\n"},
                                       {slice + "/job.scope/memory.max", "8589934592\n"},
                                       {slice + "/cpu.max", "1000000 100000\n"}});
  EXPECT_EQ(share.cores, 8U);
  EXPECT_EQ(share.memory_bytes, 4 * kGiB);
  EXPECT_EQ(share.memory_limit_file, slice + "/job.scope/memory.high");
}

TEST(MachineShareTest, ContainerOfVersion1) {
  const MachineShare share = share_of(
      {{"/proc/self/cgroup",
        "11:cpuset:/docker/c0ffee\n9:memory:/docker/c0ffee\n4:cpu,cpuacct:/docker/c0ffee\n"},
       {"/proc/self/mountinfo", kVersion1},
       {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n"},
       {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"},
       {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n"}});
  EXPECT_EQ(share.cores, 1U) << "half a CPU is one thread";
  EXPECT_EQ(share.memory_bytes, kGiB);
}

TEST(MachineShareTest, UnlimitedInVersion1) {
  const MachineShare share =
      share_of({{"/proc/self/cgroup", "9:memory:/docker/c0ffee\n4:cpu,cpuacct:/docker/c0ffee\n"},
                {"/proc/self/mountinfo", kVersion1},
                {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"},
                {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"},
                {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"}});
  EXPECT_EQ(share.cores, 64U);
  EXPECT_EQ(share.memory_bytes, 256 * kGiB);
}

TEST(MachineShareTest, PathOfAnotherNamespaceLeavesTheMount) {
  for (const char* path : {"0::/../../kubepods/pod1\n", "0::/kubepods/pod1/c1\n"}) {
    const std::string mount =
        "30 23 0:26 /kubepods/pod2/c2 /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
    const MachineShare share = share_of({{"/proc/self/cgroup", path},
                                         {"/proc/self/mountinfo", mount},
                                         {"/sys/fs/cgroup/cpu.max", "400000 100000\n"},
                                         {"/sys/fs/cgroup/memory.max", "1073741824\n"}});
    EXPECT_EQ(share.cores, 4U) << path;
    EXPECT_EQ(share.memory_bytes, kGiB) << path;
  }
}

TEST(MachineShareTest, WhatMakesNoSenseLimitsNothing) {
  for (const char* text : {"", "\n", "max", "x 100000", "100000 0", "100000", "1 2 3"}) {
    const MachineShare share = share_of({{"/proc/self/cgroup", "0::/a\nx\n:\n1:cpu\n"},
                                         {"/proc/self/mountinfo", "30 23\n- cgroup2\n" + kUnified},
                                         {"/sys/fs/cgroup/a/cpu.max", text},
                                         {"/sys/fs/cgroup/a/memory.max", "many"}});
    EXPECT_EQ(share.cores, 64U) << text;
    EXPECT_EQ(share.memory_bytes, 256 * kGiB) << text;
  }
}

TEST(MachineShareTest, OfThisProcess) {
  const MachineShare share = machine_share();
  EXPECT_GE(share.cores, 1U);
  EXPECT_GT(share.memory_bytes, 0U);
  EXPECT_EQ(available_cores(), share.cores);
}

}  // namespace
}  // namespace headrace
