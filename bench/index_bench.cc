// Opens an index of many samples, warm, and prints one line of JSON: bytes a sample, seconds to
// make it, to map and check it, to cut it in blocks, to make the dataset; and samples looked up a
// second.
//   index_bench [samples=1000000000] [shards=1000000] [mean_sample_bytes=4096] [spread=0.5]
//   [directory=/tmp]
// Sizes of samples are uniform in mean * [1 - spread, 1 + spread]; 0: all equal.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/random.h"
#include "bench_common.h"
#include "bench_result.h"
#include "shard/dataset/indexed_dataset.h"

namespace {

using namespace headrace;
using namespace headrace::detail;
using bench::must;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string make_index(std::uint64_t samples, std::uint64_t shards, double mean, double spread) {
  IndexWriter writer;
  Random random(1);
  std::vector<std::uint64_t> bounds;
  const auto least = static_cast<std::uint64_t>(mean * (1 - spread));
  const auto range = static_cast<std::uint64_t>(2 * mean * spread) + 1;
  for (std::uint64_t s = 0; s < shards; ++s) {
    const std::uint64_t count = samples * (s + 1) / shards - samples * s / shards;
    bounds.assign(1, 4 * (count + 2));
    for (std::uint64_t i = 0; i < count; ++i)
      bounds.push_back(bounds.back() + least + random.below(range));
    ShardRecord shard;
    shard.sample_count = count;
    shard.stored_bytes = shard.raw_bytes = bounds.back();
    shard.bounds = writer.bounds().append(bounds);
    shard.first_object = writer.object_count();
    char key[32];
    std::snprintf(key, sizeof(key), "shard.%07llu.mds", static_cast<unsigned long long>(s));
    writer.add_object(key, "\"0123456789abcdef0123456789abcdef\"", shard.stored_bytes);
    writer.add_shard(shard);
  }
  return writer.finish({.format = Format::kMds,
                        .columns = {{.name = "text", .encoding = "str", .dtype = {}, .shape = {}}},
                        .source = {"index.json", "\"e\"", 1},
                        .block_bytes = 0});
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, double value) { return argc > i ? std::atof(argv[i]) : value; };
  const auto samples = static_cast<std::uint64_t>(argument(1, 1e9));
  const auto shards = static_cast<std::uint64_t>(argument(2, 1e6));
  const std::string path = std::string(argc > 5 ? argv[5] : "/tmp") + "/index_bench." +
                           std::to_string(getpid()) + ".hri";

  const double begun = now();
  std::uint64_t bytes = 0;
  {
    const std::string index = make_index(samples, shards, argument(3, 4096), argument(4, 0.5));
    bytes = index.size();
    const Status status = publish_file(path, index);
    if (!status.ok()) bench::die(status);
  }
  const double made = now();
  // Once to warm the page cache, as a second rank finds it.
  DatasetParts parts{.url = "bench:", .bytes = {}, .view = {}, .blocks = {}};
  double started = 0, checked = 0, cpu_started = 0;
  for (int round = 0; round < 2; ++round) {
    parts = {.url = "bench:", .bytes = {}, .view = {}, .blocks = {}};
    cpu_started = bench::cpu_now_s();
    started = now();
    parts.bytes = must(IndexBytes::read(path));
    parts.view = must(IndexView::parse(parts.bytes.bytes(), true, parts.bytes.pages()));
    checked = now();
    parts.blocks = must(make_blocks(parts.view, 0));
  }
  const double cut = now();
  const std::size_t blocks = parts.blocks.size();
  const auto dataset = must(make_dataset(std::move(parts), DatasetOptions{}));
  const double opened = now();
  const double cpu_opened = bench::cpu_now_s();
  Random random(2);
  std::vector<Extent> extents;
  constexpr int kLookUps = 1'000'000;
  for (int i = 0; i < kLookUps; ++i) {
    const std::uint64_t position = random.below(samples);
    const std::uint32_t block = dataset->block_of(position);
    const auto at = static_cast<std::uint32_t>(position - dataset->block(block).first_sample);
    extents.clear();
    dataset->append_extents(block, at, at + 1, extents);
  }
  const double looked_up = now();
  ::unlink(path.c_str());
  std::printf(
      "{\"samples\": %llu, \"shards\": %llu, \"blocks\": %zu, \"index_bytes\": %llu, "
      "\"bytes_a_sample\": %.3f, \"make_s\": %.2f, \"check_s\": %.3f, \"blocks_s\": %.3f, "
      "\"dataset_s\": %.3f, \"open_s\": %.3f, \"open_cpu_s\": %.3f, \"look_ups_a_second\": %.0f}\n",
      static_cast<unsigned long long>(samples), static_cast<unsigned long long>(shards), blocks,
      static_cast<unsigned long long>(bytes),
      static_cast<double>(bytes) / static_cast<double>(samples), made - begun, checked - started,
      cut - checked, opened - cut, opened - started, cpu_opened - cpu_started,
      kLookUps / (looked_up - opened));
  return 0;
}
