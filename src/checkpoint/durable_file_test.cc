#include "checkpoint/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "base/temporary_directory.h"
#include "gtest/gtest.h"

namespace headrace::checkpoint {
namespace {

constexpr ::uid_t kNobody = 65534;

void make_directory_of_nobody(const std::string& path) {
  ASSERT_EQ(::mkdir(path.c_str(), 0777), 0);
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(path.c_str(), kNobody, kNobody), 0);
  }
}

/// Runs it as somebody who is not allowed everything: root may list any directory. The system call
/// itself changes one thread; that of libc would change all.
template <typename Function>
void run_unprivileged(Function function) {
  std::thread([&] {
    if (::geteuid() == 0) {
      ASSERT_EQ(::syscall(SYS_setresuid, kNobody, kNobody, kNobody), 0);
    }
    function();
  }).join();
}

TEST(DurableFile, TheDirectoryAboveNeedNotBeListed) {
  const TemporaryDirectory temporary;
  const std::string above = temporary.path() + "/scratch";
  const std::string root = above + "/run";
  ASSERT_EQ(::chmod(temporary.path().c_str(), 0711), 0);
  ASSERT_EQ(::mkdir(above.c_str(), 0777), 0);
  make_directory_of_nobody(root);
  ASSERT_EQ(::chmod(above.c_str(), 0311), 0);
  run_unprivileged([&] {
    EXPECT_LT(::open(above.c_str(), O_RDONLY | O_DIRECTORY), 0);
    const Status status = write_durable(root, "steps/1", "manifest", true);
    EXPECT_TRUE(status.ok()) << status.message();
  });
  ASSERT_EQ(::chmod(above.c_str(), 0711), 0);
  std::ifstream file(root + "/steps/1");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "manifest");
}

TEST(DurableFile, ARootThatMayNotBeListedIsAnError) {
  const TemporaryDirectory temporary;
  const std::string root = temporary.path() + "/run";
  ASSERT_EQ(::chmod(temporary.path().c_str(), 0711), 0);
  make_directory_of_nobody(root);
  ASSERT_EQ(::chmod(root.c_str(), 0311), 0);
  run_unprivileged(
      [&] { EXPECT_EQ(write_durable(root, "steps/1", "manifest", true).code(), Code::kDenied); });
  ASSERT_EQ(::chmod(root.c_str(), 0711), 0);
}

}  // namespace
}  // namespace headrace::checkpoint
