// Planning speed of Mosaic's orders: time and memory to make the table of one epoch, and to read
// slots through it. Prints one JSON object. Usage: mosaic_order_bench [SAMPLES] [SHARD_SAMPLES]
// [CANONICAL_NODES] [ALGORITHM] [THREADS]; default 10^8, 2,000, 1, py1e, all threads.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "headrace/mosaic_order.h"

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

int fail(const headrace::Status& status) {
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, std::uint64_t otherwise) {
    return argc > i ? std::strtoull(argv[i], nullptr, 0) : otherwise;
  };
  const std::uint64_t samples = number(1, 100'000'000);
  const std::uint64_t shard_samples = number(2, 2'000);
  headrace::MosaicSpec spec;
  spec.shuffle = true;
  spec.num_canonical_nodes = static_cast<std::uint32_t>(number(3, 1));
  spec.shuffle_algo = argc > 4 ? argv[4] : "py1e";
  const auto threads = static_cast<std::uint32_t>(number(5, 0));
  headrace::MosaicStream stream;
  stream.shard_samples.assign(samples / shard_samples, shard_samples);
  const double base = peak_bytes();

  const auto start = Clock::now();
  auto epoch = headrace::MosaicEpoch::create(spec, {&stream, 1}, {1, 8, 8, 32}, {});
  if (!epoch) return fail(epoch.error());
  const double plan = seconds_since(start);
  auto list = headrace::make_mosaic_list(**epoch, threads);
  if (!list) return fail(list.error());
  const double table = seconds_since(start) - plan;
  const double bytes_a_sample = (peak_bytes() - base) / static_cast<double>(samples);

  std::vector<std::int64_t> batch(256);
  std::uint64_t sum = 0;
  const auto reading = Clock::now();
  constexpr std::uint64_t kReads = 20'000;
  for (std::uint64_t i = 0; i < kReads; ++i) {
    (*list)->read(i * 7919 * 256 % ((*list)->size() - 256), batch);
    for (const std::int64_t id : batch) sum += static_cast<std::uint64_t>(id);
  }
  const double read = seconds_since(reading) / (kReads * 256) * 1e9;
  std::printf(
      "{\"samples\": %llu, \"plan_s\": %.3f, \"table_s\": %.3f, \"bytes_a_sample\": %.2f, "
      "\"read_ns_a_slot\": %.1f, \"checksum\": %llu}\n",
      static_cast<unsigned long long>(samples), plan, table, bytes_a_sample, read,
      static_cast<unsigned long long>(sum));
  return 0;
}
