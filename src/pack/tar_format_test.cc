#include "pack/tar_format.h"

#include "pack/pack_test_util.h"

namespace headrace::pack_detail {
namespace {

TEST(TarFormat, ShortNamesTakeOneBlock) {
  const std::string tar =
      tar_header("a/b.txt", 3) + "abc" + std::string(509, '\0') + std::string(1024, '\0');
  const auto members = pack_test::tar_members(tar);
  ASSERT_EQ(members.size(), 1U);
  EXPECT_EQ(members[0].first, "a/b.txt");
  EXPECT_EQ(members[0].second, "abc");
  EXPECT_EQ(std::strtoul(&tar[100], nullptr, 8), 0444U);
  EXPECT_EQ(std::strtoul(&tar[136], nullptr, 8), 0U) << "no time in it";
}

TEST(TarFormat, LongNamesAreCutAtASlash) {
  const std::string name = std::string(120, 'd') + "/" + std::string(90, 'f') + ".x";
  const auto members = pack_test::tar_members(tar_header(name, 0) + std::string(1024, '\0'));
  ASSERT_EQ(members.size(), 1U);
  EXPECT_EQ(members[0].first, name);
}

TEST(TarFormat, LongerNamesAndSizesHaveAPaxHeader) {
  const std::string name = std::string(300, 'n') + ".x";
  const std::string header = tar_header(name, 5);
  EXPECT_EQ(header.size(), tar_header_bytes(name, 5));
  EXPECT_EQ(header.size(), 1536U);
  EXPECT_EQ(header[156], 'x');
  EXPECT_EQ(header.substr(512, 312), "312 path=" + name + "\n");
  const std::string large = tar_header("x.bin", std::uint64_t{9} << 30);
  EXPECT_EQ(large.substr(512, 19), "19 size=9663676416\n");
  EXPECT_EQ(tar_header_bytes("x.bin", std::uint64_t{9} << 30), large.size());
}

TEST(TarFormat, PaxLengthCountsItself) {
  for (std::size_t length = 85; length < 1100; ++length) {
    const std::string name(length + 16, 'n');
    const std::string header = tar_header(name, 0);
    const std::size_t told = std::strtoul(&header[512], nullptr, 10);
    ASSERT_EQ(header[512 + told - 1], '\n') << length;
    ASSERT_EQ(header.size(), tar_header_bytes(name, 0));
  }
}

// The table of formats.md 4.3, as far as it says which names are taken for data.
TEST(TarFormat, GroupsAsWebDatasetDoes) {
  EXPECT_EQ(webdataset_group("a.jpg"), "a");
  EXPECT_EQ(webdataset_group("a.seg.png"), "a");
  EXPECT_EQ(webdataset_group("d.x/a.y"), "d.x/a");
  EXPECT_EQ(webdataset_group("__m__x.y"), "__m__x");
  EXPECT_EQ(webdataset_group("a.__key__.x"), "a");
  EXPECT_EQ(webdataset_group("a.__key__"), "") << "every sample has this field already";
  EXPECT_EQ(webdataset_group("a.__URL__"), "");
  EXPECT_EQ(webdataset_group("x/__y__/z.txt"), "x/__y__/z");
  EXPECT_EQ(webdataset_group("./a.b"), "./a");
  EXPECT_EQ(webdataset_group("..x/y../z.txt"), "..x/y../z");
  for (const char* name :
       {"noext", "d.x/noext", "d/.x", ".hidden", "a.", "__m__/a.b", "__meta__", "__a__b__/c.d",
        "a\n.b", "/etc/a.b", "../a.b", "d/../../a.b", "d//a.b", "d/...", ""}) {
    EXPECT_EQ(webdataset_group(name), "") << name;
  }
}

}  // namespace
}  // namespace headrace::pack_detail
