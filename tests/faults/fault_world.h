#pragma once
/// \file
/// For the fault matrix and the soak: a simulator with objects of known content, a store on it, and
/// a workload that checks every byte and every end.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/temporary_directory.h"
#include "headrace/environment.h"
#include "headrace/memory.h"
#include "headrace/sim.h"
#include "headrace/store.h"

namespace headrace::faults {

constexpr std::uint64_t kObjectBytes = std::uint64_t{4} << 20;
constexpr int kObjectCount = 6;

/// Object `key` holds word(key, i) at bytes [8i, 8i + 8): a misplaced range cannot look right.
inline std::uint64_t word(std::uint64_t key_hash, std::uint64_t index) {
  return mix64(key_hash ^ mix64(index + 1));
}

inline std::uint64_t key_hash(std::string_view key) {
  std::uint64_t hash = 1469598103934665603ULL;
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

/// \pre offset and size are multiples of 8.
inline void fill(std::string_view key, std::uint64_t offset_bytes, std::span<std::byte> out) {
  const std::uint64_t hash = key_hash(key);
  for (std::size_t i = 0; i < out.size(); i += 8) {
    const std::uint64_t value = word(hash, (offset_bytes + i) / 8);
    std::memcpy(&out[i], &value, 8);
  }
}

inline bool is_right(std::string_view key, std::uint64_t offset_bytes,
                     std::span<const std::byte> bytes) {
  std::vector<std::byte> expected(bytes.size());
  fill(key, offset_bytes, expected);
  return std::memcmp(expected.data(), bytes.data(), bytes.size()) == 0;
}

inline double metric_of(const Store& store, std::string_view name) {
  MetricList metrics;
  store.append_metrics(metrics);
  for (const Metric& metric : metrics) {
    if (metric.name == name) return metric.value;
  }
  ADD_FAILURE() << "no metric " << name;
  return -1;
}

/// The directory, the server and the credentials of one test.
class World {
 public:
  explicit World(SimOptions options = {}) {
    std::filesystem::create_directories(directory_.path() + "/bucket");
    for (int i = 0; i < kObjectCount; ++i) {
      keys.push_back("object-" + std::to_string(i));
      std::vector<std::byte> bytes(kObjectBytes);
      fill(keys.back(), 0, bytes);
      std::ofstream file(directory_.path() + "/bucket/" + keys.back(), std::ios::binary);
      file.write(reinterpret_cast<const char*>(bytes.data()),
                 static_cast<std::streamsize>(bytes.size()));
    }
    options.directory = directory_.path();
    auto started = SimServer::start(options);
    EXPECT_TRUE(started) << started.error().message();
    if (started) server = *std::move(started);
  }

  /// Options for this server with timeouts that suit a test.
  StoreOptions options(PollerKind poller) const {
    StoreOptions result;
    result.url = "s3://bucket";
    result.endpoint = server->endpoint();
    result.poller = poller;
    result.retry_seed = 17;
    result.max_in_flight = 32;
    result.default_timeout = std::chrono::seconds(60);
    return result;
  }
  static Environment environment() {
    Environment result;
    result.variables = {{"AWS_ACCESS_KEY_ID", "headrace"},
                        {"AWS_SECRET_ACCESS_KEY", "headrace-secret"}};
    return result;
  }
  std::unique_ptr<Store> open(const StoreOptions& options) const {
    auto store = open_store(options, environment());
    EXPECT_TRUE(store) << store.error().message();
    return store ? *std::move(store) : nullptr;
  }

  std::vector<std::string> keys;
  std::unique_ptr<SimServer> server;

 private:
  TemporaryDirectory directory_;
};

/// What became of a workload.
struct Outcomes {
  std::size_t ok = 0;
  std::map<Code, std::size_t> failures;
  std::string first_failure;
  std::uint32_t most_attempts = 0;
  std::size_t count(Code code) const {
    const auto found = failures.find(code);
    return found == failures.end() ? 0 : found->second;
  }
  std::size_t failed() const {
    std::size_t sum = 0;
    for (const auto& [code, count] : failures) sum += count;
    return sum;
  }
};

/// Reads random ranges, `in_flight` at a time, and checks each: exactly one end per request, in
/// time, with the right bytes or an error.
class RangeWorkload {
 public:
  struct Shape {
    std::size_t count = 400;
    std::size_t in_flight = 32;
    std::uint64_t range_bytes = 64 << 10;
    std::uint64_t seed = 1;
    bool whole_objects = false;
    std::map<std::string, std::string> etags = {};  ///< Expected versions by key.
  };
  RangeWorkload(Store& store, const std::vector<std::string>& keys, Shape shape)
      : store_(store), keys_(keys), shape_(std::move(shape)), random_(shape_.seed) {
    SlabPool::Options options;
    options.limit_bytes = std::uint64_t{256} << 20;
    pool_ = *SlabPool::create(options);
    if (shape_.whole_objects) shape_.range_bytes = kObjectBytes;
  }

  /// `each` runs after every completion, with the number of those so far.
  Outcomes run(const std::function<void(std::size_t)>& each = {}) {
    Outcomes outcomes;
    for (std::size_t done = 0; done < shape_.count;) {
      while (ranges_.size() < shape_.in_flight && submitted_ < shape_.count) submit();
      std::array<Completion, 16> completions;
      const std::size_t count = store_.wait(completions, system_clock().now() + kPatience);
      if (count == 0) {
        ADD_FAILURE() << ranges_.size() << " requests never ended";
        break;
      }
      for (std::size_t i = 0; i < count; ++i) {
        check(completions[i], outcomes);
        completions[i] = Completion{};
        if (each)
          each(++done);
        else
          ++done;
      }
    }
    EXPECT_TRUE(ranges_.empty());
    EXPECT_EQ(pool_->used_bytes(), 0U);
    return outcomes;
  }

 private:
  // Far beyond every deadline: nothing waits for it unless a request got lost.
  static constexpr std::chrono::seconds kPatience{120};
  struct Range {
    std::string_view key;
    std::uint64_t offset_bytes = 0;
  };

  void submit() {
    Range range{keys_[random_.below(keys_.size())], 0};
    if (!shape_.whole_objects)
      range.offset_bytes = random_.below((kObjectBytes - shape_.range_bytes) / 8) * 8;
    Request request;
    request.key = range.key;
    request.offset_bytes = range.offset_bytes;
    request.length_bytes = shape_.range_bytes;
    request.allow_short = shape_.whole_objects;
    request.slab = *pool_->try_acquire(shape_.range_bytes);
    request.tag = submitted_;
    if (const auto etag = shape_.etags.find(std::string(range.key)); etag != shape_.etags.end())
      request.etag = etag->second;
    ASSERT_EQ(store_.submit({&request, 1}), 1U);
    ranges_.emplace(submitted_++, range);
  }

  void check(const Completion& completion, Outcomes& outcomes) {
    const auto found = ranges_.find(completion.tag);
    ASSERT_NE(found, ranges_.end()) << "a second completion for one request";
    const Range range = found->second;
    ranges_.erase(found);
    outcomes.most_attempts = std::max(outcomes.most_attempts, completion.attempts);
    if (!completion.status.ok()) {
      ++outcomes.failures[completion.status.code()];
      if (outcomes.first_failure.empty())
        outcomes.first_failure = std::string(completion.status.message());
      return;
    }
    ++outcomes.ok;
    ASSERT_EQ(completion.length_bytes, shape_.range_bytes);
    EXPECT_TRUE(
        is_right(range.key, range.offset_bytes, completion.slab.bytes().first(shape_.range_bytes)))
        << "wrong bytes in " << range.key << " from " << range.offset_bytes;
  }

  Store& store_;
  const std::vector<std::string>& keys_;
  Shape shape_;
  Random random_;
  std::unique_ptr<SlabPool> pool_;
  std::size_t submitted_ = 0;
  std::map<std::uint64_t, Range> ranges_;
};

}  // namespace headrace::faults
