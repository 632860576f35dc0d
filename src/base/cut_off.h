#pragma once
/// \file
/// Cuts files off under whoever has them open. For tests.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace headrace {

/// In a process of its own, as a clumsy clean-up would.
inline void cut_off(const std::string& path, off_t size_bytes) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::truncate(path.c_str(), size_bytes) == 0 ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
}

}  // namespace headrace
