#pragma once
/// \file
/// What the worlds on real servers share: variables that name a server (tests/with_servers), and a
/// prefix of their own in its bucket.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "headrace/store.h"

namespace headrace::contract {

inline std::string variable(const char* name) {
  const char* const value =
      std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets variables here
  return value == nullptr ? std::string() : value;
}

/// Another one each time.
inline std::string own_prefix() {
  static std::atomic<int> next{0};
  return "contract-" + std::to_string(::getpid()) + "-" + std::to_string(next.fetch_add(1));
}

/// For the end of a world; no store: nothing was written.
inline void remove_all(const Result<std::unique_ptr<Store>>& store) {
  if (!store) return;
  auto all = list_all(**store, "");
  if (!all) return;
  std::vector<std::string> keys;
  for (const ObjectInfo& info : *all) keys.push_back(info.key);
  for (const Status& status : (*store)->remove_many(keys))
    EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace headrace::contract
