#include "mem/private_mapping.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>

namespace headrace::mem {
namespace {

/// A file without a name, with pages of 'a', 'b', ...
class MemoryFile {
 public:
  explicit MemoryFile(std::size_t pages) : fd_(::memfd_create("test", MFD_CLOEXEC)) {
    for (std::size_t i = 0; i < pages; ++i) write(i, static_cast<char>('a' + i % 26));
  }
  ~MemoryFile() { ::close(fd_); }
  void write(std::size_t page, char letter) const {
    const std::string bytes(4096, letter);
    EXPECT_EQ(::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(page * 4096)), 4096);
  }
  char read(std::size_t page) const {
    char letter = 0;
    EXPECT_EQ(::pread(fd_, &letter, 1, static_cast<off_t>(page * 4096)), 1);
    return letter;
  }
  int fd() const noexcept { return fd_; }

 private:
  const int fd_;
};

char& letter(const PrivateMapping& mapping, std::size_t page) {
  return reinterpret_cast<char&>(mapping.bytes()[page * 4096 + 17]);
}

TEST(PrivateMapping, ShowsAPartOfTheFileAndKeepsWritesToItself) {
  const MemoryFile file(4);
  const auto mapping = *PrivateMapping::create(file.fd(), 4096, 8192);
  ASSERT_EQ(mapping->bytes().size(), 8192U);
  EXPECT_EQ(letter(*mapping, 0), 'b');
  letter(*mapping, 0) = 'X';
  EXPECT_EQ(file.read(1), 'b');
  file.write(2, 'N');
  EXPECT_EQ(letter(*mapping, 1), 'N') << "pages that nobody wrote to follow the file";
}

TEST(PrivateMapping, LargeOnesBeginWhereAHugePageCould) {
  const std::size_t huge = std::size_t{2} << 20;
  const MemoryFile file(huge / 4096 + 1);
  const auto mapping = *PrivateMapping::create(file.fd(), 4096, huge);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(mapping->bytes().data()) % huge, 0U);
  EXPECT_EQ(letter(*mapping, 0), 'b');
}

TEST(PrivateMapping, WhatIsKeptDoesNotChangeAnyMore) {
  const MemoryFile file(3);
  const auto mapping = *PrivateMapping::create(file.fd(), 0, 3 * 4096);
  mapping->keep();
  for (std::size_t i = 0; i < 3; ++i) file.write(i, 'N');
  EXPECT_EQ(letter(*mapping, 0), 'a');
  EXPECT_EQ(letter(*mapping, 2), 'c');
}

TEST(PrivateMapping, WhatIsNoFileIsRefused) {
  const auto mapping = PrivateMapping::create(-1, 0, 4096);
  EXPECT_EQ(mapping.error().code(), Code::kExhausted);
  EXPECT_EQ(PrivateMapping::create(-1, 0, std::size_t{4} << 20).error().code(), Code::kExhausted);
}

TEST(PageMap, DropsWhatWasWrittenSoThatTheFileIsSeenAgain) {
  const MemoryFile file(5000);  // More than one look at the map.
  const auto mapping = *PrivateMapping::create(file.fd(), 0, std::size_t{5000} * 4096);
  for (const std::size_t page : {0U, 3U, 4U, 4095U, 4096U, 4999U}) letter(*mapping, page) = 'X';
  const PageMap map;
  if (!map.drop_written(mapping->bytes())) GTEST_SKIP() << "the kernel does not tell";
  for (std::size_t page = 0; page < 5000; ++page)
    ASSERT_EQ(letter(*mapping, page), static_cast<char>('a' + page % 26)) << page;
}

}  // namespace
}  // namespace headrace::mem
