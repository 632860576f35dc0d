#pragma once
/// \file
/// What the tests of whole copies share. Threads: one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "base/random.h"
#include "base/temporary_directory.h"
#include "headrace/copy.h"

namespace headrace {

using Tree = std::map<std::string, std::string>;

inline constexpr std::uint64_t kMiB = 1 << 20;

/// One bit of memory of a random text: cheap, and every range differs.
inline std::string random_text(std::size_t size, std::uint64_t seed) {
  Random random(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random.next());
  return text;
}

/// The same as UploadedPart::checksum.
inline std::string checksum_of(const std::string& text) {
  const std::uint64_t bits = std::uint64_t{crc32c(std::as_bytes(std::span(text)))} << 16;
  std::string out;
  for (int shift = 42; shift >= 12; shift -= 6)
    out += "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[(bits >> shift) & 63];
  return out + "==";
}

class CopyJobTest : public ::testing::Test {
 protected:
  static std::unique_ptr<Store> open(const std::string& url) {
    StoreOptions options;
    options.url = url;
    auto store = open_store(options, {});
    EXPECT_TRUE(store) << url;
    return *std::move(store);
  }
  std::unique_ptr<Store> files(const std::string& name) const {
    return open(directory_.path() + "/" + name);
  }
  void fill(Store& store, const Tree& tree) {
    for (const auto& [key, text] : tree) ASSERT_TRUE(write_object(store, *pool_, key, text)) << key;
  }
  Tree contents(Store& store) {
    Tree tree;
    auto all = list_all(store, "");
    if (!all) return tree;
    for (const ObjectInfo& info : *all) {
      auto text = read_object(store, *pool_, info.key, 1 << 30);
      EXPECT_TRUE(text) << info.key;
      if (text) tree[info.key] = *std::move(text);
    }
    return tree;
  }
  static CopyOptions everything() {
    CopyOptions options;
    options.tasks.push_back({.from = "", .to = "", .is_tree = true});
    options.part_bytes = 64 << 10;
    options.memory_bytes = 2 * kMiB;
    return options;
  }
  /// Runs a job that should work but for single objects.
  CopyProgress copy(Store& from, Store& to, const CopyOptions& options) {
    auto job = CopyJob::create(from, to, options);
    EXPECT_TRUE(job);
    if (!job) return {};
    status_ = (*job)->run();
    EXPECT_TRUE(status_.ok()) << status_.message();
    failures_ = (*job)->failures();
    events_ = (*job)->take_events();
    return (*job)->progress();
  }
  std::vector<std::string> hidden_names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_.path())) {
      const std::string name = entry.path().filename();
      if (name.starts_with(".headrace-")) found.push_back(name);
    }
    return found;
  }

  TemporaryDirectory directory_;
  std::unique_ptr<SlabPool> pool_ = *SlabPool::create({});
  Status status_;
  std::vector<CopyFailure> failures_;
  std::vector<CopyEvent> events_;
  const Tree tree_ = {{"a", "1"},
                      {"deep/er/b c", "23"},
                      {"deep/\xc3\xa9", random_text(50'000, 1)},
                      {"empty", ""},
                      {"large", random_text(1'000'000, 2)},
                      {"large-too", random_text(64 << 12, 3)}};
};

}  // namespace headrace
