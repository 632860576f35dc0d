#pragma once
/// \file
/// What the fetch benchmarks share, so that they do the same work: the pattern of ranges, warm
/// buffers, arguments, the result.
#include <sys/mman.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headrace::bench {

/// `--name value` pairs.
class Arguments {
 public:
  Arguments(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) words_.emplace_back(argv[i]);
    taken_.resize(words_.size());
  }
  void take(std::string_view name, std::string& value) {
    for (std::size_t i = 0; i + 1 < words_.size(); ++i) {
      if (words_[i] != name) continue;
      value = words_[i + 1];
      taken_[i] = taken_[i + 1] = true;
    }
  }
  template <class Integer>
  void take(std::string_view name, Integer& value) {
    std::string text;
    take(name, text);
    if (!text.empty()) value = static_cast<Integer>(std::strtoull(text.c_str(), nullptr, 10));
  }
  /// Names what nobody took.
  bool all_taken() const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      if (taken_[i]) continue;
      std::fprintf(stderr, "unknown argument: %s\n", words_[i].c_str());
      return false;
    }
    return true;
  }

 private:
  std::vector<std::string> words_;
  std::vector<bool> taken_;
};

/// Ranges of `part_bytes`, one after the other over all objects or at random aligned offsets.
struct FetchPattern {
  std::size_t part_bytes = std::size_t{8} << 20;
  std::uint64_t object_bytes = std::uint64_t{256} << 20;
  std::uint64_t object_count = 4;
  bool is_random = false;
  std::uint64_t issued = 0;
  std::uint64_t random = 88172645463325252ULL;

  void take(Arguments& arguments) {
    std::uint64_t object_mib = object_bytes >> 20;
    std::string pattern = "sequential";
    arguments.take("--part", part_bytes);
    arguments.take("--object-mib", object_mib);
    arguments.take("--objects", object_count);
    arguments.take("--pattern", pattern);
    object_bytes = object_mib << 20;
    is_random = pattern == "random";
  }

  /// (object, offset in bytes)
  std::pair<std::uint64_t, std::uint64_t> next() {
    const std::uint64_t parts_per_object = object_bytes / part_bytes;
    std::uint64_t part = issued++;
    if (is_random) {
      random ^= random << 13;  // xorshift64, Marsaglia 2003
      random ^= random >> 7;
      random ^= random << 17;
      part = random;
    }
    part %= object_count * parts_per_object;
    return {part / parts_per_object, part % parts_per_object * part_bytes};
  }
};

/// Page-aligned memory with huge pages where allowed, touched. Never freed.
inline void* warm_buffer(std::size_t size_bytes) {
  constexpr std::size_t kHugePageBytes = 2 << 20;
  const std::size_t rounded_bytes =
      (size_bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  void* buffer = std::aligned_alloc(
      size_bytes >= kHugePageBytes ? kHugePageBytes : 4096,
      size_bytes >= kHugePageBytes ? rounded_bytes : (size_bytes + 4095) / 4096 * 4096);
  if (buffer == nullptr) std::abort();
  if (size_bytes >= kHugePageBytes) ::madvise(buffer, rounded_bytes, MADV_HUGEPAGE);
  std::memset(buffer, 0, size_bytes);
  return buffer;
}

/// User and system time of this process so far, seconds.
inline double cpu_now_s() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Wall and CPU time between start() and stop(), printed as one JSON line.
class FetchReport {
 public:
  FetchReport(std::string client, std::size_t part_bytes, std::size_t in_flight)
      : client_(std::move(client)), part_bytes_(part_bytes), in_flight_(in_flight) {}
  void start() {
    cpu_s_ = cpu_now_s();
    started_ = std::chrono::steady_clock::now();
  }
  void stop(std::uint64_t bytes) {
    wall_s_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
    cpu_s_ = cpu_now_s() - cpu_s_;
    bytes_ = bytes;
  }
  void print() const {
    const double gigabytes = static_cast<double>(bytes_) / 1e9;
    std::printf(
        "{\"client\":\"%s\",\"part_bytes\":%zu,\"in_flight\":%zu,\"bytes\":%llu,\"wall_s\":%.4f,"
        "\"GB_per_s\":%.3f,"
        "\"cpu_s\":%.4f,\"cpu_s_per_GB\":%.4f,\"requests_per_s\":%.0f}\n",
        client_.c_str(), part_bytes_, in_flight_, static_cast<unsigned long long>(bytes_), wall_s_,
        gigabytes / wall_s_, cpu_s_, cpu_s_ / gigabytes,
        static_cast<double>(bytes_) / static_cast<double>(part_bytes_) / wall_s_);
  }

 private:
  std::string client_;
  std::size_t part_bytes_;
  std::size_t in_flight_;
  std::chrono::steady_clock::time_point started_;
  double wall_s_ = 0;
  double cpu_s_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace headrace::bench
