#include "tier/file_locks.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace headrace::tier {
namespace {

class FileLocksTest : public testing::Test {
 protected:
  FileLocksTest() {
    const Fd made(::mkstemp(path_.data()));
    EXPECT_TRUE(made);
  }
  ~FileLocksTest() override { ::unlink(path_.c_str()); }
  FileLocks open() const { return FileLocks(Fd(::open(path_.c_str(), O_RDWR | O_CLOEXEC))); }
  std::string path_ = testing::TempDir() + "locksXXXXXX";
};

TEST_F(FileLocksTest, AChildOfForkKeepsNone) {
  auto own = open();
  ASSERT_TRUE(*own.try_lock(7));
  const auto other = open();
  ASSERT_FALSE(*other.try_lock(7));
  int ready[2], end[2];
  ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(end, O_CLOEXEC), 0);
  const int file = own.file();
  char byte = 0;
  const pid_t child = ::fork();
  if (child == 0) {
    // It lives until the parent has seen what it wants; its descriptor is not the cache's.
    ::close(end[1]);
    const bool is_done = ::write(ready[1], &byte, 1) == 1 && ::read(end[0], &byte, 1) == 0;
    ::_exit(is_done && ::write(file, &byte, 1) < 0 ? 0 : 1);
  }
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_FALSE(*other.try_lock(7));  // The parent has it still.
  own = FileLocks();                 // As when the parent dies.
  EXPECT_TRUE(*other.try_lock(7));
  for (const int fd : {ready[0], ready[1], end[0], end[1]}) ::close(fd);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(FileLocksTest, MovesTakeTheFileWithThem) {
  auto first = open();
  ASSERT_TRUE(*first.try_lock(0));
  auto second = open();
  second = std::move(first);
  const auto other = open();
  EXPECT_FALSE(*other.try_lock(0));
  second = FileLocks();
  EXPECT_TRUE(*other.try_lock(0));
}

}  // namespace
}  // namespace headrace::tier
