// numpy's own results (../shared/reference/orders/numpy_rng.json), draw by draw.
#include <gtest/gtest.h>

#include "order/numpy_random/generator.h"
#include "order/numpy_random/mt19937.h"
#include "order/numpy_random/target_stream.h"
#include "order/reference_cases.h"

namespace headrace::numpy_random {
namespace {

using order_test::expect_ids;
using order_test::hex_double;
using order_test::json;

/// Words of a decimal number of any size.
std::vector<std::uint32_t> decimal_words(const std::string& text) {
  std::vector<std::uint32_t> words{0};
  for (const char digit : text) {
    std::uint64_t carry = static_cast<std::uint64_t>(digit - '0');
    for (std::uint32_t& word : words) {
      carry += std::uint64_t{word} * 10;
      word = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0) words.push_back(static_cast<std::uint32_t>(carry));
  }
  return words;
}

std::vector<std::uint32_t> seed_words(const json& seed) {
  if (seed.is_string()) return decimal_words(seed);
  std::vector<std::uint32_t> words;
  for (const json& part : seed) {
    const auto more = decimal_words(part);
    words.insert(words.end(), more.begin(), more.end());
  }
  return words;
}

std::uint64_t number(const json& text) { return std::stoull(text.get<std::string>()); }
std::int64_t signed_number(const json& text) { return std::stoll(text.get<std::string>()); }

std::vector<std::int64_t> to_signed(const std::vector<std::uint64_t>& values) {
  return {values.begin(), values.end()};
}
std::vector<std::int64_t> iota(std::size_t n) {
  std::vector<std::int64_t> out(n);
  std::iota(out.begin(), out.end(), 0);
  return out;
}

void run_generator_op(Generator& rng, const json& op) {
  const std::string name = op["op"];
  const json& out = op["out"];
  if (name == "shuffle") {
    auto items = iota(op["n"]);
    rng.shuffle(std::span(items));
    expect_ids(out, items);
  } else if (name == "permutation") {
    expect_ids(out, to_signed(rng.permutation(op["n"])));
  } else if (name == "random") {
    EXPECT_EQ(rng.random(), hex_double(out));
  } else if (name == "raw") {
    EXPECT_EQ(rng.next64(), number(out));
  } else if (name == "integers") {
    EXPECT_EQ(rng.integers(signed_number(op["low"]), signed_number(op["high"])),
              signed_number(out));
  } else if (name == "integers_n") {
    for (const json& value : out) {
      EXPECT_EQ(rng.integers(signed_number(op["low"]), signed_number(op["high"])),
                signed_number(value));
    }
  } else if (name == "uniform") {
    for (const json& value : out) {
      EXPECT_EQ(rng.uniform(hex_double(op["low"]), hex_double(op["high"])), hex_double(value));
    }
  } else if (name == "choice") {
    expect_ids(out, to_signed(rng.choice(op["pop"], op["size"])));
  } else {
    FAIL() << "unknown operation " << name;
  }
}

void run_state_op(Mt19937& rng, const json& op) {
  const std::string name = op["op"];
  const json& out = op["out"];
  if (name == "permutation") {
    expect_ids(out, to_signed(rng.permutation(op["n"].get<std::size_t>())));
  } else if (name == "shuffle") {
    auto items = iota(op["n"]);
    rng.shuffle(std::span(items));
    expect_ids(out, items);
  } else if (name == "randint") {
    EXPECT_EQ(rng.randint(signed_number(op["low"]), signed_number(op["high"])), signed_number(out));
  } else if (name == "random") {
    EXPECT_EQ(rng.random(), hex_double(out));
  } else {
    FAIL() << "unknown operation " << name;
  }
}

TEST(NumpyRandom, EqualsNumpyInEveryReferenceCase) {
  HEADRACE_REFERENCE_CASES(cases, "numpy_rng.json");
  for (const json& test : cases) {
    SCOPED_TRACE(test["kind"].dump() + " " + test["seed"].dump());
    const auto words = seed_words(test["seed"]);
    if (test["kind"] == "SeedSequence") {
      const SeedSequence seed(words);
      const auto u32 = seed.generate_u32(test["state_u32"].size());
      for (std::size_t i = 0; i < u32.size(); ++i) EXPECT_EQ(u32[i], number(test["state_u32"][i]));
      const auto u64 = seed.generate_u64(test["state_u64"].size());
      for (std::size_t i = 0; i < u64.size(); ++i) EXPECT_EQ(u64[i], number(test["state_u64"][i]));
    } else if (test["kind"] == "default_rng") {
      Generator rng{SeedSequence(words)};
      for (const json& op : test["ops"]) run_generator_op(rng, op);
    } else {
      Mt19937 rng(words);
      for (const json& op : test["ops"]) run_state_op(rng, op);
    }
  }
}

TEST(NumpyRandom, PermutesTenAsNumpyDoes) {
  EXPECT_EQ(Generator(0).permutation(10),
            (std::vector<std::uint64_t>{4, 6, 2, 7, 3, 5, 9, 0, 8, 1}));
}

TEST(NumpyRandom, JumpsAndBlocksAreTheSameDraws) {
  for (const bool is_wide : {false, has_wide()}) {
    for (const std::size_t count : {0U, 1U, 3U, 4U, 7U, 15U, 16U, 17U, 64U, 1001U}) {
      Generator one(9176);
      Generator block(9176);
      Generator jump(9176);
      std::vector<std::uint64_t> drawn(count);
      block.fill64(drawn, is_wide);
      for (const std::uint64_t value : drawn) EXPECT_EQ(value, one.next64());
      jump.skip64(count);
      const std::uint64_t next = one.next64();
      EXPECT_EQ(block.next64(), next);
      EXPECT_EQ(jump.next64(), next);
    }
  }
}

TEST(NumpyRandom, ShufflesInBulkAsOneByOne) {
  std::vector<std::size_t> sizes(80);
  std::iota(sizes.begin(), sizes.end(), std::size_t{0});
  for (const std::size_t size : {255U, 256U, 257U, 2000U, 4095U, 4096U, 4097U, 300'000U}) {
    sizes.push_back(size);
  }
  for (const bool is_wide : {false, has_wide()}) {
    Generator one(5);
    Generator bulk(5);
    for (int round = 0; round < 20; ++round) {
      {
        TargetStream stream(bulk, is_wide);
        for (const std::size_t size : sizes) {
          std::vector<std::uint32_t> expected(size);
          std::iota(expected.begin(), expected.end(), 0U);
          std::vector<std::uint32_t> items = expected;
          one.shuffle(std::span(expected));
          shuffle_in_bulk(stream, std::span(items));
          ASSERT_EQ(items, expected) << size << " items, round " << round;
        }
      }
      ASSERT_EQ(bulk.next32(), one.next32());  // the next round starts with half a draw
    }
  }
}

TEST(NumpyRandom, HalvesOfADrawSurviveWholeDraws) {
  Generator rng(3);
  Generator plain(3);
  const std::uint64_t first = plain.next64();
  const std::uint64_t second = plain.next64();
  EXPECT_EQ(rng.next32(), static_cast<std::uint32_t>(first));
  EXPECT_EQ(rng.next64(), second);
  EXPECT_EQ(rng.next32(), static_cast<std::uint32_t>(first >> 32));
}

}  // namespace
}  // namespace headrace::numpy_random
