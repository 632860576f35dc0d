#include "order/numpy_random/generator.h"

#include <unordered_set>

namespace headrace::numpy_random {

std::uint64_t Generator::bounded(std::uint64_t max) noexcept {
  if (max == 0) return 0;
  if (max < kMax32) {
    const std::uint64_t span = max + 1;
    std::uint64_t product = next32() * span;
    if ((product & kMax32) < span) {
      const std::uint64_t threshold = (kMax32 - max) % span;
      while ((product & kMax32) < threshold) product = next32() * span;
    }
    return product >> 32;
  }
  if (max == kMax32) return next32();
  if (max == ~std::uint64_t{0}) return next64();
  const std::uint64_t span = max + 1;
  Wide product = static_cast<Wide>(next64()) * span;
  if (static_cast<std::uint64_t>(product) < span) {
    const std::uint64_t threshold = (~std::uint64_t{0} - max) % span;
    while (static_cast<std::uint64_t>(product) < threshold) {
      product = static_cast<Wide>(next64()) * span;
    }
  }
  return static_cast<std::uint64_t>(product >> 64);
}

std::vector<std::uint64_t> Generator::permutation(std::uint64_t n) {
  std::vector<std::uint64_t> out(n);
  std::iota(out.begin(), out.end(), std::uint64_t{0});
  shuffle(std::span(out));
  return out;
}

namespace {

/// Fisher-Yates from the end, as far as needed.
std::vector<std::uint64_t> choose_by_tail_shuffle(Generator& rng, std::uint64_t population,
                                                  std::uint64_t size) {
  std::vector<std::uint64_t> items(population);
  std::iota(items.begin(), items.end(), std::uint64_t{0});
  const std::uint64_t stop = std::max<std::uint64_t>(population - size, 1);
  for (std::uint64_t i = population; i-- > stop;) std::swap(items[i], items[rng.bounded(i)]);
  items.erase(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(population - size));
  return items;
}

/// Floyd's method, then a shuffle.
std::vector<std::uint64_t> choose_by_floyd(Generator& rng, std::uint64_t population,
                                           std::uint64_t size) {
  std::vector<std::uint64_t> items;
  items.reserve(size);
  std::unordered_set<std::uint64_t> taken;
  for (std::uint64_t j = population - size; j < population; ++j) {
    std::uint64_t value = rng.bounded(j);
    if (!taken.insert(value).second) {
      value = j;
      taken.insert(j);
    }
    items.push_back(value);
  }
  for (std::uint64_t i = size; i-- > 1;) std::swap(items[i], items[rng.bounded(i)]);
  return items;
}

}  // namespace

std::vector<std::uint64_t> Generator::choice(std::uint64_t population, std::uint64_t size) {
  // The two constants: Generator.choice of numpy.
  constexpr std::uint64_t kFloydPopulation = 10000;
  constexpr std::uint64_t kFloydShare = 50;
  if (population > kFloydPopulation && size > population / kFloydShare) {
    return choose_by_tail_shuffle(*this, population, size);
  }
  return choose_by_floyd(*this, population, size);
}

}  // namespace headrace::numpy_random
