#pragma once
/// \file
/// For tests of the parts of a cache: a directory with its index, ledger and pins, and an evictor.
///
/// Threads: one.
#include <fcntl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/temporary_directory.h"
#include "gtest/gtest.h"
#include "headrace/cache.h"
#include "tier/cache_directory.h"
#include "tier/evictor.h"
#include "tier/folder.h"
#include "tier/pins.h"

namespace headrace::tier {

class CacheDirectoryFixture : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kLength = 10'000;  ///< Of the extents.

  void open_directory(const CacheOptions& options) {
    auto root = open_folder(AT_FDCWD, place_.path(), false);
    ASSERT_TRUE(root);
    auto directory = CacheDirectory::open(options, *std::move(root));
    ASSERT_TRUE(directory) << directory.error().message();
    directory_ = *std::move(directory);
    pins_ = std::make_unique<Pins>(place_.path(), directory_->root());
    evictor_ = std::make_unique<Evictor>(*directory_, *pins_, options);
  }
  static ExtentInfo info_of(const std::string& url) {
    return {.name = {object_id("h:1", url, "e"), 0, kLength},
            .object_size_bytes = kLength,
            .url = url,
            .etag = "e"};
  }

  TemporaryDirectory place_;
  std::unique_ptr<CacheDirectory> directory_;
  std::unique_ptr<Pins> pins_;
  std::unique_ptr<Evictor> evictor_;
};

}  // namespace headrace::tier
