#include "shard/index/bounds.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"

namespace headrace::detail {
namespace {

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// Sequences of the shapes that data sets have, and some that none has.
std::vector<std::uint64_t> random_sequence(Random& random) {
  std::vector<std::uint64_t> values(random.below(700));
  const std::uint64_t kind = random.below(6);
  const unsigned bits = static_cast<unsigned>(random.below(63)) + 1;
  std::uint64_t value = random.below(std::uint64_t{1} << bits);
  const std::uint64_t step = random.below(1000);
  for (std::uint64_t& out : values) {
    out = value;
    if (kind == 0) value += step;
    if (kind == 1) value += random.below(5000);
    if (kind == 2) value += random.below(100) == 0 ? random.below(std::uint64_t{1} << 33) : step;
    if (kind == 3) value = random.next();
    if (kind == 4) value = random.below(std::uint64_t{1} << bits);
    if (kind == 5) value += step + (random.below(50) == 0 ? 1 : 0);
  }
  return values;
}

TEST(Bounds, AgreeWithAPlainVector) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    BoundsWriter writer;
    std::vector<std::vector<std::uint64_t>> sequences;
    std::vector<BoundsRef> refs;
    for (int i = 0; i < 4; ++i) {
      sequences.push_back(random_sequence(random));
      refs.push_back(writer.append(sequences.back()));
    }
    const std::string packed = writer.take_packed();
    const BoundsView view(as_bytes(writer.groups()), as_bytes(packed));
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      ASSERT_TRUE(view.holds(refs[s], sequences[s].size()));
      for (std::size_t i = 0; i < sequences[s].size(); ++i)
        ASSERT_EQ(view.at(refs[s], i), sequences[s][i]) << i;
    }
  }
}

TEST(Bounds, StoreNothingForEqualSteps) {
  BoundsWriter writer;
  std::vector<std::uint64_t> values;
  for (std::uint64_t i = 0; i < 100'000; ++i) values.push_back(77 + i * 2050);
  const BoundsRef ref = writer.append(values);
  EXPECT_EQ(ref.first_group, kNoGroups);
  EXPECT_TRUE(writer.groups().empty());
  EXPECT_EQ(writer.take_packed().size(), kPackedPadBytes);
}

TEST(Bounds, TakeTwoBytesASampleForVaryingSizes) {
  Random random(7);
  BoundsWriter writer;
  std::vector<std::uint64_t> values{0};
  for (int i = 0; i < 100'000; ++i) values.push_back(values.back() + 90'000 + random.below(40'000));
  writer.append(values);
  const std::size_t bytes = writer.groups().size() + writer.take_packed().size();
  EXPECT_LT(bytes, values.size() * 3);
}

TEST(Bounds, SurviveHostileRecords) {
  Random random(11);
  for (int round = 0; round < 2000; ++round) {
    std::string groups(24 * (1 + random.below(4)), '\0');
    for (char& c : groups) c = static_cast<char>(random.next());
    if (random.below(2) == 0) groups[16] = static_cast<char>(random.below(70));
    if (random.below(2) == 0) groups.replace(17, 7, 7, '\0');
    std::string packed(random.below(64), 'x');
    const BoundsView view(as_bytes(groups), as_bytes(packed));
    const BoundsRef ref{.base = 0,
                        .stride = 0,
                        .first_group = random.below(3) == 0 ? random.next() : random.below(5)};
    for (std::uint64_t i : {std::uint64_t{0}, random.below(600), random.next()})
      (void)view.at(ref, i);
    (void)view.holds(ref, random.next());
  }
}

}  // namespace
}  // namespace headrace::detail
