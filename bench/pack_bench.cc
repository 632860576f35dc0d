// Files per CPU second of pack() from a local directory. Makes the files first when the directory
// is missing. Usage: pack_bench DIRECTORY [FILES] [BYTES_PER_FILE] [FORMAT] [TOKENS]
// [WORKERS]; default 80,000 files of 16,000 bytes, mds. Writes DIRECTORY/source once and
// DIRECTORY/target-* anew. Prints one JSON object.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/random.h"
#include "headrace/pack.h"

namespace {

double cpu_seconds(const rusage& usage) {
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void make_files(const std::filesystem::path& root, std::uint64_t count, std::uint64_t bytes) {
  headrace::Random random(1);
  std::vector<std::uint64_t> words(bytes / 8 + 2);
  for (std::uint64_t& word : words) word = random.next();
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::filesystem::path directory = root / std::to_string(i / 1000);
    if (i % 1000 == 0) std::filesystem::create_directories(directory);
    words[0] = i;
    const std::uint64_t length = bytes / 2 + random.below(bytes);
    std::ofstream(directory / (std::to_string(i) + ".bin"), std::ios::binary)
        .write(reinterpret_cast<const char*>(words.data()),
               static_cast<std::streamsize>(std::min<std::uint64_t>(length, words.size() * 8)));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr,
                 "usage: pack_bench DIRECTORY [FILES] [BYTES_PER_FILE] [FORMAT] [TOKENS] "
                 "[WORKERS]\n");
    return 2;
  }
  const std::filesystem::path root = argv[1];
  const std::uint64_t files = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 80'000;
  const std::uint64_t bytes = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 16'000;
  headrace::PackOptions options;
  options.format = argc > 4 ? argv[4] : "mds";
  options.tokens_per_sample = argc > 5 ? static_cast<std::uint32_t>(std::atoi(argv[5])) : 0;
  options.worker_count = argc > 6 ? static_cast<std::uint32_t>(std::atoi(argv[6])) : 0;
  if (!std::filesystem::exists(root / "source")) make_files(root / "source", files, bytes);
  std::filesystem::remove_all(root / "target");

  headrace::StoreOptions source_options;
  source_options.url = (root / "source").string();
  headrace::StoreOptions target_options;
  target_options.url = (root / "target").string();
  auto source = headrace::open_store(source_options, {});
  auto target = headrace::open_store(target_options, {});
  if (!source || !target) return 1;
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  const auto start = std::chrono::steady_clock::now();
  auto result = headrace::pack(**source, **target, options);
  const double wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  if (!result) {
    std::fprintf(stderr, "%s\n", std::string(result.error().message()).c_str());
    return 1;
  }
  const double cpu = cpu_seconds(after) - cpu_seconds(before);
  std::printf(
      "{\"bench\": \"pack\", \"format\": \"%s\", \"tokens\": %u, \"files\": %llu, \"read_bytes\": "
      "%llu, \"shards\": %llu, "
      "\"wall_s\": %.2f, \"cpu_s\": %.2f, \"files_per_cpu_s\": %.0f, \"peak_mib\": %ld}\n",
      options.format.c_str(), options.tokens_per_sample,
      static_cast<unsigned long long>(result->file_count),
      static_cast<unsigned long long>(result->read_bytes),
      static_cast<unsigned long long>(result->shard_count), wall, cpu,
      static_cast<double>(result->file_count) / cpu, after.ru_maxrss / 1024);
  return 0;
}
