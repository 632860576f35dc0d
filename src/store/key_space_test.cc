#include "store/key_space.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(KeySpace, KnowsNothingAtFirst) {
  const KeySpace space(2);
  EXPECT_EQ(space.position("p/abc"), 0);
  EXPECT_EQ(space.name_at(0.5, 1e-6), "");
}

TEST(KeySpace, TakesADigitForAllDigits) {
  KeySpace space(2);
  space.learn("p/key-000");
  EXPECT_DOUBLE_EQ(space.position("p/key-250"), 0.25);
  EXPECT_EQ(space.name_at(0.7505, 1e-3), "key-750");
  EXPECT_EQ(space.name_at(1.0, 1e-3), "key-999");
}

TEST(KeySpace, TakesTwoLettersForAllAndDigitsWithLettersForHex) {
  KeySpace letters;
  letters.learn("a");
  letters.learn("b");
  EXPECT_DOUBLE_EQ(letters.position("n"), 0.5);
  KeySpace hex;
  hex.learn("a");
  hex.learn("3");
  hex.learn("b");
  EXPECT_DOUBLE_EQ(hex.position("8"), 0.5);
}

TEST(KeySpace, PositionsRiseWithUnknownCharactersToo) {
  KeySpace space;
  space.learn("m5");
  EXPECT_LE(space.position("a"), space.position("m0"));
  EXPECT_LE(space.position("m9"), space.position("z"));
  EXPECT_LE(space.position("m9"), space.position("\xc3\xa9"));
}

}  // namespace
}  // namespace headrace
