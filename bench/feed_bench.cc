// Streams epochs of a dataset through a Loader and prints one line of JSON: samples/s, samples per
// CPU second, CPU seconds a GB, stalls by cause. CPU is user + system of this process, which must
// not hold the server.
//   feed_bench URL [batch_size=64] [memory_mib=1024] [epochs=1] [order=headrace] [block_mib=8]
//   [prefetch=16]
// Endpoint, region and credentials: as the AWS CLI finds them in the environment.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench_common.h"
#include "bench_result.h"
#include "headrace/loader.h"

namespace {

using namespace headrace;
using bench::must;

struct Totals {
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;
};

void run_epoch(Loader& loader, Totals& totals) {
  if (Status status = loader.start_epoch(); !status.ok()) bench::die(status);
  while (auto batch = must(loader.next(TimePoint::max()))) {
    totals.samples += batch->count();
    for (const BatchColumn& column : batch->columns()) totals.bytes += column.values.size();
    totals.checksum += static_cast<std::uint64_t>(batch->ids()[0]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr,
                 "usage: feed_bench URL [batch_size] [memory_mib] [epochs] [order] [block_mib] "
                 "[prefetch]\n");
    return 2;
  }
  const auto number = [&](int i, std::uint64_t otherwise) {
    return argc > i ? std::strtoull(argv[i], nullptr, 10) : otherwise;
  };
  StoreOptions store_options;
  store_options.url = argv[1];
  auto store = must(open_store(store_options, bench::environment()));
  std::shared_ptr<SlabPool> pool = must(SlabPool::create({.limit_bytes = number(3, 1024) << 20}));
  DatasetOptions dataset_options;
  dataset_options.block_bytes = number(6, 8) << 20;
  auto dataset = must(Dataset::open(*store, *pool, dataset_options));
  LoaderOptions options;
  options.batch_size = static_cast<std::uint32_t>(number(2, 64));
  options.prefetch_batches = static_cast<std::uint32_t>(number(7, 16));
  options.seed = 17;
  if (argc > 5) options.order = argv[5];

  const double cpu_before = bench::cpu_now_s();
  const auto wall_before = std::chrono::steady_clock::now();
  auto loader = must(Loader::create(dataset, std::move(store), pool, options));
  Totals totals;
  for (std::uint64_t epoch = 0; epoch < number(4, 1); ++epoch) run_epoch(*loader, totals);
  const double wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - wall_before).count();
  const double cpu = bench::cpu_now_s() - cpu_before;

  std::printf(
      "{\"samples\": %llu, \"bytes\": %llu, \"wall_s\": %.3f, \"cpu_s\": %.3f, \"samples_per_s\": "
      "%.0f, "
      "\"samples_per_cpu_s\": %.0f, \"cpu_s_per_gb\": %.3f, \"lanes\": %u, \"checksum\": %llu",
      static_cast<unsigned long long>(totals.samples),
      static_cast<unsigned long long>(totals.bytes), wall, cpu,
      static_cast<double>(totals.samples) / wall, static_cast<double>(totals.samples) / cpu,
      cpu / (static_cast<double>(totals.bytes) * 1e-9), loader->order_spec().lane_count,
      static_cast<unsigned long long>(totals.checksum));
  for (const Metric& metric : loader->stats())
    std::printf(", \"%s\": %.0f", metric.name.c_str(), metric.value);
  std::printf("}\n");
  return 0;
}
