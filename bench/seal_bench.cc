/// \file
/// What encryption costs: seconds of CPU for a GB of blocks, sealed, opened, and summed (CRC32C)
/// for comparison. Prints one JSON line a block size; of the rounds the least.
///
/// Usage: seal_bench [--mib N] [--rounds N]
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <span>
#include <string_view>
#include <vector>

#include "base/crc32c.h"
#include "seal/sealer.h"

namespace {

using namespace headrace;

double cpu_s() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// CPU s/GB of the quickest of `rounds` calls.
template <class Work>
double least_cost(std::size_t bytes, int rounds, const Work& work) {
  double least = 1e9;
  for (int i = 0; i < rounds; ++i) {
    const double before = cpu_s();
    work();
    least = std::min(least, cpu_s() - before);
  }
  return least / (static_cast<double>(bytes) * 1e-9);
}

void run(std::size_t block_bytes, std::size_t mib, int rounds) {
  const SealKey key(SealKey::Bytes{std::byte{1}});
  seal::Sealer sealer(key, "bench", seal::Salt{});
  const std::size_t count = (mib << 20) / block_bytes;
  // From one place to another, as checkpoints do it: blocks come from memory, not from a cache.
  std::vector<std::byte> from(count * block_bytes, std::byte{7}), to(from.size());
  std::vector<std::array<std::byte, seal::kTagBytes>> tags(count);
  const auto block = [&](auto& all, std::size_t i) {
    return std::span(all).subspan(i * block_bytes, block_bytes);
  };
  const double sealed = least_cost(from.size(), rounds, [&] {
    for (std::size_t i = 0; i < count; ++i)
      sealer.seal(i, {}, block(from, i), block(to, i), tags[i]);
  });
  bool is_good = true;
  const double opened = least_cost(from.size(), rounds, [&] {
    for (std::size_t i = 0; i < count; ++i)
      is_good = sealer.open(i, {}, block(to, i), block(from, i), tags[i]) && is_good;
  });
  std::uint32_t sum = 0;
  const double summed = least_cost(from.size(), rounds, [&] {
    for (std::size_t i = 0; i < count; ++i) sum ^= crc32c(block(from, i));
  });
  if (!is_good || from.back() != std::byte{7}) std::abort();
  std::printf(
      "{\"block_bytes\": %zu, \"seal_cpu_s_per_GB\": %.3f, \"open_cpu_s_per_GB\": %.3f, "
      "\"crc32c_cpu_s_per_GB\": %.3f, \"ignore\": %u}\n",
      block_bytes, sealed, opened, summed, sum & 1);
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t mib = 256;
  int rounds = 5;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string_view(argv[i]) == "--mib") mib = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::string_view(argv[i]) == "--rounds") rounds = std::atoi(argv[i + 1]);
  }
  for (const std::size_t block_bytes :
       {std::size_t{4} << 10, std::size_t{16} << 10, std::size_t{64} << 10, std::size_t{1} << 20})
    run(block_bytes, mib, rounds);
}
