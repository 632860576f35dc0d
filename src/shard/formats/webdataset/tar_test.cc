#include "shard/formats/webdataset/tar.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "shard/formats/webdataset/tar_scan.h"
#include "shard/testing/drive_scan.h"
#include "shard/testing/make_tar.h"

namespace headrace::detail {
namespace {

using headrace::testing::make_tar;
using headrace::testing::pax_record;
using headrace::testing::sign_tar_header;
using headrace::testing::tar_header;
using headrace::testing::tar_member;

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(TarMember, ReadsAPlainHeader) {
  const std::string tar = tar_member("dir/a.txt", "hello");
  TarNameBuffer buffer;
  auto parsed = parse_tar_member(as_bytes(tar), buffer);
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->step, TarStep::kMember);
  EXPECT_EQ(parsed->member.name, "dir/a.txt");
  EXPECT_TRUE(parsed->member.is_regular);
  EXPECT_EQ(parsed->member.data_begin, 512U);
  EXPECT_EQ(parsed->member.data_bytes, 5U);
  EXPECT_EQ(parsed->member.end, 1024U);
}

TEST(TarMember, AsksForTheRestOfItsHeaders) {
  const std::string tar = tar_member("x", pax_record("path", std::string(3000, 'p') + ".a"), 'x') +
                          tar_member("y.b", "1");
  TarNameBuffer buffer;
  std::uint64_t have = 1;
  int rounds = 0;
  while (true) {
    auto parsed = parse_tar_member(as_bytes(tar).first(have), buffer);
    ASSERT_TRUE(parsed.has_value());
    if (parsed->step == TarStep::kMember) {
      EXPECT_EQ(parsed->member.name.size(), 3002U);
      EXPECT_EQ(parsed->member.data_begin, 512U + 3072U + 512U);
      break;
    }
    ASSERT_GT(parsed->needed_bytes, have);
    have = parsed->needed_bytes;
    ASSERT_LT(++rounds, 4);
  }
}

TEST(TarMember, JoinsPrefixAndName) {
  const std::string tar = tar_member("b.txt", "1", '0', "a/long/prefix");
  TarNameBuffer buffer;
  auto parsed = parse_tar_member(as_bytes(tar), buffer);
  EXPECT_EQ(parsed->member.name, "a/long/prefix/b.txt");
  EXPECT_TRUE(parsed->member.is_name_joined);
  // The longest there can be fits the buffer.
  const std::string longest = tar_member(std::string(100, 'n'), "1", '0', std::string(155, 'p'));
  parsed = parse_tar_member(as_bytes(longest), buffer);
  EXPECT_EQ(parsed->member.name.size(), 256U);
}

TEST(TarMember, FirstExtensionWins) {
  const std::string tar = tar_member("@L", "first.txt", 'L') +
                          tar_member("@P", pax_record("path", "second.txt"), 'x') +
                          tar_member("third.txt", "1");
  TarNameBuffer buffer;
  auto parsed = parse_tar_member(as_bytes(tar), buffer);
  EXPECT_EQ(parsed->member.name, "first.txt");
}

TEST(TarMember, RefusesWhatItCannotTrust) {
  struct Case {
    const char* what;
    std::string bytes;
    Code code;
  };
  std::string bad_sum = tar_member("a.x", "1");
  bad_sum[0] = 'b';
  std::string bad_size = tar_header("a.x", 1);
  bad_size.replace(124, 11, "00000000zz1", 11);
  sign_tar_header(bad_size.data());
  std::string negative = tar_header("a.x", 1);
  negative.replace(124, 12, std::string(12, '\xff'));
  sign_tar_header(negative.data());
  std::string huge = tar_header("a.x", 1);
  huge.replace(124, 12, std::string("\x80") + std::string(11, '\x7f'));
  sign_tar_header(huge.data());
  std::string huge_name = tar_header("@", std::size_t{1} << 30, 'L');
  const auto with_pax = [](const std::string& records) {
    return tar_member("@", records, 'x') + tar_member("a.x", "1");
  };
  const Case cases[] = {
      {"checksum", bad_sum, Code::kCorrupt},
      {"size", bad_size, Code::kCorrupt},
      {"negative", negative, Code::kCorrupt},
      {"huge", huge, Code::kCorrupt},
      {"huge name", huge_name, Code::kUnsupported},
      {"sparse", tar_member("a.x", "1", 'S'), Code::kUnsupported},
      {"pax sparse", with_pax(pax_record("GNU.sparse.major", "1")), Code::kUnsupported},
      {"pax length", with_pax("999 path=x\n"), Code::kCorrupt},
      {"pax no newline", with_pax("10 path=xx"), Code::kCorrupt},
      {"pax no equals", with_pax("9 pathxx\n"), Code::kCorrupt},
      {"pax no number", with_pax("path=x\n"), Code::kCorrupt},
      {"pax tiny", with_pax("2 \n"), Code::kCorrupt},
      {"pax size", with_pax(pax_record("size", "12x")), Code::kCorrupt},
      {"nothing after", tar_member("@", pax_record("path", "x"), 'x') + std::string(1024, '\0'),
       Code::kCorrupt},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    TarNameBuffer buffer;
    auto parsed = parse_tar_member(as_bytes(c.bytes), buffer);
    ASSERT_FALSE(parsed.has_value());
    EXPECT_EQ(parsed.error().code(), c.code);
  }
}

TEST(Tar, AGlobalHeaderHoldsForTheMemberBehindIt) {
  const std::string own = tar_member("@", pax_record("path", "own.x"), 'x');
  const std::string global =
      tar_member("@", pax_record("path", "g.x") + pax_record("size", "3"), 'g');
  const std::string reset = tar_member("@", pax_record("path", "") + pax_record("size", ""), 'g');
  struct Case {
    std::string bytes, name;
    std::uint64_t data_bytes;
  };
  const Case cases[] = {{global + tar_member("a.x", "12345"), "g.x", 3},
                        {global + own + tar_member("a.x", "12345"), "own.x", 3},
                        {own + global + tar_member("a.x", "12345"), "own.x", 3},
                        {global + reset + tar_member("a.x", "12345"), "a.x", 5}};
  for (const Case& c : cases) {
    TarNameBuffer buffer;
    auto parsed = parse_tar_member(as_bytes(c.bytes), buffer);
    ASSERT_TRUE(parsed.has_value()) << parsed.error().message();
    EXPECT_EQ(parsed->member.name, c.name);
    EXPECT_EQ(parsed->member.data_bytes, c.data_bytes);
  }
}

// Where the samples are: begin and end of each in turn.
Result<std::vector<std::uint64_t>> scan(const std::string& tar, std::uint64_t piece_bytes,
                                        bool is_lenient = false) {
  TarScan scan(is_lenient);
  HEADRACE_TRY(testing::drive_scan(scan, as_bytes(tar), piece_bytes));
  const FileSamples samples = scan.take();
  if (samples.has_gaps) return samples.bounds;
  std::vector<std::uint64_t> bounds;
  for (std::size_t i = 0; i < samples.sample_count(); ++i) {
    bounds.push_back(samples.bounds[i]);
    bounds.push_back(samples.bounds[i + 1]);
  }
  return bounds;
}

TEST(TarScan, RefusesWhatAGlobalHeaderFurtherUpSets) {
  const std::string global = tar_member("@", pax_record("path", "g.x"), 'g');
  const std::string own = tar_member("@", pax_record("path", "own.x"), 'x');
  const std::string reset = tar_member("@", pax_record("path", ""), 'g');
  const std::string member = tar_member("a.x", "1");
  const auto refused = scan(global + member + member, 512);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kUnsupported);
  EXPECT_NE(refused.error().message().find("at byte 2048"), std::string_view::npos)
      << refused.error().message();
  EXPECT_EQ(scan(global + member + own + member, 512)->size(), 4U);
  EXPECT_EQ(scan(global + member + reset + member, 512)->size(), 4U);
}

TEST(TarScan, FindsTheSameSamplesWhateverThePieces) {
  Random random(5);
  std::string tar;
  for (int i = 0; i < 60; ++i) {
    const std::string name =
        (random.below(4) == 0 ? std::string(200, 'd') + "/" : "") + "s" + std::to_string(i / 3);
    if (name.size() > 90) tar += tar_member("@", name + "." + std::to_string(i), 'L');
    tar += tar_member(name.substr(0, 90) + "." + std::to_string(i),
                      std::string(random.below(3000), 'x'));
    if (random.below(5) == 0) tar += tar_member("noext", "ignored");
  }
  tar += std::string(1024, '\0');
  auto whole = scan(tar, tar.size());
  ASSERT_TRUE(whole.has_value()) << whole.error().message();
  for (const std::uint64_t piece : {512U, 700U, 1024U, 4096U, 10'000U}) {
    auto pieces = scan(tar, piece);
    ASSERT_TRUE(pieces.has_value()) << pieces.error().message();
    EXPECT_EQ(*pieces, *whole) << piece;
  }
}

TEST(TarScan, RefusesFieldsThatEverySampleHas) {
  for (const char* suffix : {"__key__", "__url__", "__KEY__"}) {
    const auto result = scan(make_tar({{"a.x", "1"}, {std::string("a.") + suffix, "k"}}), 4096);
    ASSERT_FALSE(result.has_value()) << suffix;
    EXPECT_EQ(result.error().code(), Code::kCorrupt);
    EXPECT_NE(result.error().message().find("second field"), std::string_view::npos)
        << result.error().message();
  }
  EXPECT_EQ(scan(make_tar({{"a.x.__key__", "1"}}), 4096)->size(), 2U);
}

TEST(TarScan, SaysWhereItStopped) {
  std::string tar = make_tar({{"a.x", "1"}, {"b.x", "2"}});
  tar[1024] = 'c';
  auto result = scan(tar, 4096);
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().message().find("at byte 1024"), std::string_view::npos)
      << result.error().message();
}

TEST(TarScan, AcceptsAMissingEndAndMissingPadding) {
  const std::string tar = make_tar({{"a.x", "1"}, {"b.x", "22"}});
  auto result = scan(tar.substr(0, 1024 + 512 + 2), 4096);
  ASSERT_TRUE(result.has_value()) << result.error().message();
  EXPECT_EQ(*result, (std::vector<std::uint64_t>{0, 1024, 1024, 1538}));
  EXPECT_EQ(scan(tar.substr(0, 1024 + 512 + 1), 4096).error().code(), Code::kCorrupt);
}

TEST(TarScan, RefusesAFileOfZeros) {
  for (const bool is_lenient : {false, true}) {
    EXPECT_TRUE(scan(std::string(10240, '\0'), 4096, is_lenient)->empty());  // Of no files.
    EXPECT_EQ(scan(std::string(10752, '\0'), 4096, is_lenient).error().code(), Code::kCorrupt);
  }
}

TEST(TarScan, PassesOverInSilenceWhatWebDatasetDoesWhenLenient) {
  const std::vector<std::uint64_t> first{0, 1024};
  std::string tar = make_tar({{"a.x", "1"}, {"b.x", "2"}});
  EXPECT_EQ(*scan(tar.substr(0, 1024 + 300), 4096, true), first);
  std::string wrong = tar;
  wrong[1024] = 'c';
  EXPECT_EQ(*scan(wrong, 4096, true), first);
  wrong[0] = 'c';
  EXPECT_EQ(scan(wrong, 4096, true).error().code(), Code::kCorrupt);  // Not even a tar.
  EXPECT_EQ(*scan(tar.substr(0, 1024) + std::string(512, '\0') + tar.substr(1024), 512, true),
            first);
  // Data that are cut off are an error in webdataset too.
  EXPECT_EQ(scan(tar.substr(0, 1024 + 512), 4096, true).error().code(), Code::kCorrupt);
}

TEST(TarScan, KeepsItsFacts) {
  const TarFacts facts{.suffixes = {"jpg", "a\xff"}};
  auto again = TarFacts::from_text(facts.to_text());
  ASSERT_TRUE(again.has_value()) << again.error().message();
  EXPECT_EQ(again->suffixes, facts.suffixes);
  EXPECT_EQ(TarFacts::from_text("{}").error().code(), Code::kCorrupt);
}

TEST(TarScan, RefusesMoreFieldsThanAnySampleHas) {
  std::string tar;
  for (std::size_t i = 0; i <= kMostSuffixes; ++i) tar += tar_member("a." + std::to_string(i), "");
  EXPECT_EQ(scan(tar, 4096).error().code(), Code::kUnsupported);
}

TEST(TarScan, RefusesNamesThatAreNotUtf8) {
  for (const char* name : {"a\xff.txt", "a.t\xff"}) {
    auto result = scan(make_tar({{name, "1"}}), 4096);
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code(), Code::kUnsupported);
    EXPECT_NE(result.error().message().find("\\xff"), std::string_view::npos)
        << result.error().message();
  }
  EXPECT_TRUE(scan(make_tar({{"\xc3\xa9.txt", "1"}, {"no-field\xff", "1"}}), 4096).has_value());
}

}  // namespace
}  // namespace headrace::detail
