#pragma once
/// \file
/// Helpers of the pack tests: stores with content, a store that stops a run, shards taken apart.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/endian.h"
#include "base/random.h"
#include "base/test_seed.h"
#include "headrace/forwarding_store.h"
#include "headrace/pack.h"
#include "store/memory/memory_store.h"

namespace headrace::pack_test {

using Files = std::map<std::string, std::string>;

inline std::unique_ptr<SlabPool> make_pool(std::uint64_t limit = 64 << 20) {
  auto pool = SlabPool::create({.limit_bytes = limit});
  EXPECT_TRUE(pool);
  return *std::move(pool);
}

inline StoreOptions at_url(const std::string& url) {
  StoreOptions options;
  options.url = url;
  return options;
}

inline std::unique_ptr<Store> make_store(const std::string& name, const Files& files = {}) {
  auto store = open_memory_store(at_url("memory://" + name));
  EXPECT_TRUE(store);
  const auto pool = make_pool();
  for (const auto& [key, text] : files) EXPECT_TRUE(write_object(**store, *pool, key, text)) << key;
  return *std::move(store);
}

/// All objects of a store that are not our records.
inline Files contents(Store& store, bool with_hidden = false) {
  Files out;
  auto list = list_all(store, "");
  EXPECT_TRUE(list);
  const auto pool = make_pool();
  for (const ObjectInfo& object : *list) {
    if (!with_hidden && object.key[0] == '.') continue;
    auto text = read_object(store, *pool, object.key, 32 << 20);
    EXPECT_TRUE(text) << object.key;
    out[object.key] = *text;
  }
  return out;
}

/// Passes everything on to a store; asks for a stop when `put_count` puts were submitted, and may
/// run a function after a listing.
class WatchedStore final : public ForwardingStore {
 public:
  struct Watch {
    std::atomic<std::uint64_t> puts{0};
    std::atomic<std::uint64_t> removes{0};
    std::uint64_t stop_at_put = ~std::uint64_t{0};
    std::stop_source stop;
    std::function<void()> after_list;
    bool lists_in_no_order = false;
    std::function<void()> before_first_put;
    std::atomic<std::uint64_t> gets{0};
    std::function<void()> before_first_get;
    std::string local_directory;  ///< What local_directory() tells.
  };
  WatchedStore(std::unique_ptr<Store> inner, std::shared_ptr<Watch> watch)
      : ForwardingStore(std::move(inner)), watch_(std::move(watch)) {}

  std::size_t submit(std::span<Request> requests) override {
    for (const Request& request : requests) {
      if (request.op == Op::kGet) {
        if (watch_->gets++ == 0 && watch_->before_first_get) watch_->before_first_get();
        continue;
      }
      const std::uint64_t put = watch_->puts++;
      if (put == 0 && watch_->before_first_put) watch_->before_first_put();
      if (put == watch_->stop_at_put) watch_->stop.request_stop();
    }
    return inner().submit(requests);
  }
  Result<ListPage> list(const ListRequest& request, const CallOptions& call) override {
    auto page = inner().list(request, call);
    if (watch_->after_list) watch_->after_list();
    if (page && watch_->lists_in_no_order) std::reverse(page->objects.begin(), page->objects.end());
    return page;
  }
  Status remove(const std::string& key, const CallOptions& call) override {
    ++watch_->removes;
    return inner().remove(key, call);
  }
  std::vector<Status> remove_many(std::span<const std::string> keys,
                                  const CallOptions& call) override {
    watch_->removes += keys.size();
    return inner().remove_many(keys, call);
  }
  std::string local_directory() const override { return watch_->local_directory; }

 private:
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(std::make_unique<WatchedStore>(std::move(handle), watch_));
  }

  std::shared_ptr<Watch> watch_;
};

inline std::uint32_t u32_at(const std::string& text, std::size_t offset) {
  return load_le<std::uint32_t>(reinterpret_cast<const std::byte*>(text.data()) + offset);
}

/// The samples of a raw MDS shard.
inline std::vector<std::string> mds_samples(const std::string& shard) {
  std::vector<std::string> out;
  const std::uint32_t count = u32_at(shard, 0);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t begin = u32_at(shard, 4 + 4 * i);
    out.push_back(shard.substr(begin, u32_at(shard, 8 + 4 * i) - begin));
  }
  EXPECT_EQ(u32_at(shard, 4 + 4 * count), shard.size());
  return out;
}

/// Members of a tar of short names and sizes, in order; checks header sums and the end.
inline std::vector<std::pair<std::string, std::string>> tar_members(const std::string& tar) {
  std::vector<std::pair<std::string, std::string>> out;
  std::size_t at = 0;
  for (; tar[at] != '\0'; at += 512) {
    const std::string header = tar.substr(at, 512);
    unsigned sum = 8 * ' ';
    for (std::size_t i = 0; i < 512; ++i)
      sum += i >= 148 && i < 156 ? 0 : static_cast<unsigned char>(header[i]);
    EXPECT_EQ(std::strtoul(&header[148], nullptr, 8), sum);
    const std::uint64_t size = std::strtoull(&header[124], nullptr, 8);
    std::string name =
        header[345] != '\0' ? std::string(header.substr(345, 155).c_str()) + "/" : "";
    name += header.substr(0, 100).c_str();
    out.emplace_back(name, tar.substr(at + 512, size));
    at += (size + 511) / 512 * 512;
  }
  EXPECT_EQ(tar.substr(at), std::string(1024, '\0'));
  return out;
}

/// Files of assorted sizes, empty ones included.
inline Files random_files(std::uint64_t seed, std::size_t count, std::uint64_t most_bytes = 3000) {
  Random random(seed);
  Files files;
  for (std::size_t i = 0; i < count; ++i) {
    std::string text(random.below(8) == 0 ? 0 : random.below(most_bytes), '\0');
    for (char& c : text) c = static_cast<char>(random.next());
    files["d" + std::to_string(random.below(5)) + "/file" + std::to_string(i) + ".bin"] =
        std::move(text);
  }
  return files;
}

}  // namespace headrace::pack_test
