#include "base/errno_names.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

namespace headrace {
namespace {

constexpr int kPastLinux = 200;  // EHWPOISON, the last, is 133; larger numbers are free

TEST(ErrnoNames, AreThoseOfTheCLibrary) {
  for (int error = 1; error < kPastLinux; ++error)
    EXPECT_STREQ(errno_name(error), ::strerrorname_np(error)) << error;
}

TEST(ErrnoNames, TextsAreThoseOfTheCLibrary) {
  for (int error = 1; error < kPastLinux; ++error)
    EXPECT_STREQ(errno_text(error), ::strerrordesc_np(error)) << error;
}

TEST(ErrnoNames, NumbersThatLinuxDoesNotHave) {
  for (const int error : {-1, 0, 41, 12345}) {
    EXPECT_EQ(errno_name(error), nullptr) << error;
    EXPECT_EQ(errno_text(error), nullptr) << error;
  }
}

}  // namespace
}  // namespace headrace
