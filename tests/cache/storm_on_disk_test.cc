// The same processes on a real file system of a few megabytes (ext4 on a loop device) that fills
// up, then finds an error and turns read-only under them, as a kernel does when a disk fails. As
// root, where mounting is allowed; skipped elsewhere.
#include <sched.h>
#include <sys/mount.h>

#include "cache/storm_world.h"

namespace headrace {
namespace {

constexpr std::uint64_t kDiskBytes = std::uint64_t{16} << 20;

bool succeeds(const std::string& command) {
  return std::system(("(" + command + ") >/dev/null 2>&1").c_str()) == 0;
}

class StormOnDisk : public StormWorld {
 protected:
  std::string cache() const override { return disk() + "/cache"; }
  std::string disk() const { return directory_.path() + "/disk"; }
  std::string image() const { return directory_.path() + "/image"; }

  void SetUp() override {
    StormWorld::SetUp();
    std::filesystem::create_directories(disk());
    std::ofstream(image()).put('\0');
    std::filesystem::resize_file(image(), kDiskBytes);
    // Mounts of a name space of its own go with this process.
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      GTEST_SKIP() << "may not mount file systems: run as root";
    if (!succeeds("mkfs.ext4 -q -F -m 0 " + image()) || !mount())
      GTEST_SKIP() << "needs mkfs.ext4 and loop devices";
  }
  void TearDown() override {
    StormWorld::TearDown();
    ::umount2(disk().c_str(), MNT_DETACH);
  }
  bool mount() const {
    return succeeds("mount -o loop,errors=remount-ro " + image() + " " + disk());
  }

  /// Takes all the room there is.
  void fill_up() const {
    std::ofstream ballast(disk() + "/ballast", std::ios::binary);
    const std::string zeros(64 << 10, '\0');
    while (ballast.write(zeros.data(), static_cast<std::streamsize>(zeros.size())).flush()) {
    }
  }
  bool find_an_error() const {
    return succeeds("echo storm > /sys/fs/ext4/$(basename $(findmnt -no SOURCE " + disk() +
                    "))/trigger_fs_error");
  }
  bool is_read_only() const { return !std::ofstream(disk() + "/probe"); }
  void expect_all_read_on() {
    for (const Worker& worker : workers_) EXPECT_TRUE(says(worker, 20));
  }
};

TEST_F(StormOnDisk, AFullDiskAndOneThatTurnsReadOnlyStopNobody) {
  for (std::size_t i = 0; i < kProcesses; ++i) workers_.push_back(start(i % kJobs));
  expect_all_read_on();
  for (int i = 0; i < 30; ++i) {
    if (i == 10) fill_up();
    if (i == 20) std::filesystem::remove(disk() + "/ballast");
    Worker& worker = workers_[random_.below(kProcesses)];
    kill(worker);
    worker = start(worker.job);
    EXPECT_TRUE(says(worker)) << "after kill " << i;
  }
  expect_all_read_on();
  if (!find_an_error()) GTEST_SKIP() << "this kernel makes no errors to order";
  ASSERT_TRUE(is_read_only());
  for (const Worker& worker : workers_) forget_what_it_said(worker);
  expect_all_read_on();
  for (Worker& worker : workers_) kill(worker);
  // Repaired as after a reboot.
  ASSERT_EQ(::umount(disk().c_str()), 0);
  succeeds("e2fsck -fp " + image());
  ASSERT_TRUE(mount());
  for (Worker& worker : workers_) worker = start(worker.job);
  expect_all_read_on();
  for (Worker& worker : workers_) kill(worker);
  expect_order();
}

}  // namespace
}  // namespace headrace
