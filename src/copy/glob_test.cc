#include <gtest/gtest.h>

#include "headrace/copy.h"

namespace headrace {
namespace {

Glob glob(std::string_view pattern) {
  auto parsed = Glob::parse(pattern);
  EXPECT_TRUE(parsed) << pattern;
  return *std::move(parsed);
}

struct Case {
  const char* pattern;
  const char* text;
  bool matches;
};

TEST(Glob, MatchesAsTheShellDoes) {
  const Case kCases[] = {
      {"a", "a", true},
      {"a", "ab", false},
      {"", "", true},
      {"*", "", true},
      {"*", "abc", true},
      {"*", "a/b", false},
      {"p/*.tar", "p/x.tar", true},
      {"p/*.tar", "p/q/x.tar", false},
      {"p/*.tar", "p/.tar", true},
      {"p/**.tar", "p/q/r/x.tar", true},
      {"p/**/x", "p/x", true},
      {"p/**/x", "p/a/b/x", true},
      {"p/**/x", "p/ax", false},
      {"**/x", "x", true},
      {"**/a/**/b", "x/a/y/a/b", true},
      {"**/a/**/b", "x/a/y/a/bb", false},
      {"**/a*/**/b", "a/xa/ab/c/b", true},
      {"p/**/**/x", "p/x", true},
      {"**/x", "ax", false},
      {"**/*.c/**", "a/b.c/d", true},
      {"**", "a/b/c", true},
      {"a*b*c", "a1b2b3c", true},
      {"a*b*c", "a1b2b3", false},
      {"*a*/b*", "xax/by", true},
      {"**a*c", "a/ab/abc", true},
      {"**/*.t?r", "a/b/c.tar", true},
      {"?", "/", false},
      {"s-[0-9][0-9]", "s-42", true},
      {"s-[0-9][0-9]", "s-4x", false},
      {"[b-d]", "d", true},
      {"[b-d]", "e", false},
      {"[b-d]", "Z", false},
      {"[b-dx]", "x", true},
      {"[!b-d]", "c", false},
      {"[!a]x", "bx", true},
      {"[!a]x", "ax", false},
      {"[^a]x", "/x", false},
      {"[]]", "]", true},
      {"[a-]", "-", true},
      {"{a,b}.txt", "b.txt", true},
      {"{a,b}.txt", "c.txt", false},
      {"{a,b{1,2}}", "b2", true},
      {"{a,b{1,2}}", "b", false},
      {"x{,y}", "x", true},
      {"\\*", "*", true},
      {"\\*", "a", false},
      {"a\\", "a\\", true},
      {"[{]", "{", true},
  };
  for (const Case& c : kCases)
    EXPECT_EQ(glob(c.pattern).matches(c.text), c.matches) << c.pattern << " " << c.text;
}

TEST(Glob, TakesCharactersNotBytes) {
  const Case kCases[] = {
      {"?", "ä", true},
      {"??", "ä", false},
      {"x?y", "x€y", true},
      {"*??", "€", false},
      {"**??", "€", false},
      {"*?", "x€", true},
      {"?", "\xF0\x9F\x98\x80", true},
      {"[äö]", "ö", true},
      {"[äö]", "ü", false},
      {"[äö]", "\xC3", false},
      {"[а-я]x", "жx", true},
      {"[а-я]x", "Жx", false},
      {"[!a]", "ä", true},
      {"[!ä]", "ä", false},
      {"[!ä]b", "öb", true},
      {"\\ä*", "äb", true},
      // What is no UTF-8 counts byte by byte: Latin 1, cut short, longer than need be, half a pair.
      {"?", "\xE4", true},
      {"??", "\xE4x", true},
      {"?", "\xE2\x82", false},
      {"??", "\xE2\x82", true},
      {"?", "\xC0\xAF", false},
      {"???", "\xED\xA0\x80", true},
      {"[\xE4]", "\xE4", true},
      {"[\xE4]", "ä", false},
      {"[!a]", "\xFF", true},
  };
  for (const Case& c : kCases)
    EXPECT_EQ(glob(c.pattern).matches(c.text), c.matches) << c.pattern << " " << c.text;
}

TEST(Glob, KnowsTheTextBeforeTheFirstWildcard) {
  EXPECT_EQ(glob("train/shard-*.tar").prefix(), "train/shard-");
  EXPECT_EQ(glob("{a,b}").prefix(), "");
  EXPECT_FALSE(glob("train/x").has_wildcard());
  EXPECT_TRUE(glob("train/?").has_wildcard());
}

TEST(Glob, MalformedPatternsAreInvalidArguments) {
  for (const char* pattern : {"[a", "{a,b", "a[!", "{[a}", "{a{b}"}) {
    auto parsed = Glob::parse(pattern);
    ASSERT_FALSE(parsed) << pattern;
    EXPECT_EQ(parsed.error().code(), Code::kInvalidArgument);
  }
  std::string many;
  for (int i = 0; i < 10; ++i) many += "{a,b}";
  EXPECT_FALSE(Glob::parse(many)) << "1024 alternatives";
}

TEST(Glob, ManyStarsTakeNoExponentialTime) {
  std::string pattern, text(2000, 'a');
  for (int i = 0; i < 30; ++i) pattern += "a*";
  EXPECT_FALSE(glob(pattern + "b").matches(text));
  EXPECT_TRUE(glob(pattern).matches(text));
}

TEST(Glob, ManyComponentsTakeNoExponentialTime) {
  std::string pattern, text;
  for (int i = 0; i < 30; ++i) pattern += "**/";
  for (int i = 0; i < 300; ++i) text += "a/";
  EXPECT_FALSE(glob(pattern + "b").matches(text + "a"));
  EXPECT_TRUE(glob(pattern + "b").matches(text + "b"));
}

TEST(NameFilter, IncludesFirstThenExcludes) {
  NameFilter filter;
  EXPECT_TRUE(filter.accepts("any/thing"));
  filter.exclude.push_back(glob("*.tmp"));
  EXPECT_FALSE(filter.accepts("deep/er/x.tmp"));
  filter.include.push_back(glob("*.tar"));
  EXPECT_TRUE(filter.accepts("deep/x.tar"));
  EXPECT_FALSE(filter.accepts("deep/x.bin"));
  filter.exclude.push_back(glob("deep/**"));
  EXPECT_FALSE(filter.accepts("deep/x.tar"));
  EXPECT_TRUE(filter.accepts("x.tar"));
}

}  // namespace
}  // namespace headrace
