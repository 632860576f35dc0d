#include "store/hf/hf_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/hf/hf_listings.h"

namespace headrace::hf {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(HfTree, FilesAndFolders) {
  auto page = parse_tree(R"([
    {"type":"directory","oid":"1","size":0,"path":"data"},
    {"type":"file","oid":"git","size":7,"path":"README.md"},
    {"type":"file","oid":"pointer","size":5,"path":"a.bin","lfs":{"oid":"sha256:large","size":9000}},
    {"type":"file","oid":"plain","size":0,"path":"b","lfs":null},
    {"type":"submodule","path":"elsewhere"}])",
                         {});
  ASSERT_TRUE(page) << page.error().message();
  EXPECT_THAT(page->folders, ElementsAre("data"));
  EXPECT_THAT(page->next, IsEmpty());
  ASSERT_EQ(page->files.size(), 3U);
  EXPECT_EQ(page->files[0].etag, "\"git\"");
  EXPECT_EQ(page->files[1].etag, "\"large\"");
  EXPECT_EQ(page->files[1].size_bytes, 9000U);
  EXPECT_EQ(page->files[2].etag, "\"plain\"");
}

TEST(HfTree, WhatIsNoListingIsCorrupt) {
  for (const char* body :
       {"", "{}", "[1]", R"([{"type":"file"}])", R"([{"path":"a"}])",
        R"([{"type":"file","path":""}])", R"([{"type":"file","path":"a","size":1}])",
        R"([{"type":"file","path":"a","oid":"x"}])",
        R"([{"type":"file","path":"a","oid":"x","size":-1}])",
        R"([{"type":"file","path":"a","oid":"x","size":1,"lfs":{}}])",
        R"([{"type":["file"],"path":"a"}])"}) {
    const auto page = parse_tree(body, {});
    ASSERT_FALSE(page) << body;
    EXPECT_EQ(page.error().code(), Code::kCorrupt) << body;
  }
}

TEST(HfTree, TheNextPageIsTheQueryOfTheLink) {
  const auto next = next_query(
      "<https://hub/api/x?a=1>; rel=\"prev\", <https://hub/y?recursive=true&cursor=Z%3D>; "
      "rel=\"next\"");
  ASSERT_TRUE(next) << next.error().message();
  EXPECT_THAT(*next, ElementsAre(Pair("recursive", "true"), Pair("cursor", "Z=")));
  EXPECT_THAT(*next_query(""), IsEmpty());
  EXPECT_THAT(*next_query("<https://hub/x?a=1>; rel=\"last\""), IsEmpty());
  for (const char* link : {"<https://hub/x", "<https://hub/x>; rel=\"next\"",
                           "<https://hub/x?>; rel=next", "<https://hub/x?a=%>; rel=next"}) {
    ASSERT_FALSE(next_query(link)) << link;
    EXPECT_EQ(next_query(link).error().code(), Code::kCorrupt) << link;
  }
}

Listing listing_of(std::initializer_list<const char*> keys) {
  Listing listing;
  for (const char* key : keys) {
    ObjectInfo info;
    info.key = key;
    listing.push_back(info);
  }
  return listing;
}

ListRequest request_of(const std::string& prefix, const std::string& delimiter,
                       std::uint32_t page_size) {
  ListRequest request;
  request.prefix = prefix;
  request.delimiter = delimiter;
  request.page_size = page_size;
  return request;
}

/// All pages of `request`, as "key key | key ...".
std::string pages_of(const Listing& listing, std::string_view root, ListRequest request) {
  std::string text;
  do {
    auto page = page_of(listing, root, request);
    EXPECT_TRUE(page);
    if (!page) return text;
    for (const ObjectInfo& info : page->objects) text += info.key + " ";
    for (const std::string& prefix : page->common_prefixes) text += prefix + "* ";
    request.continuation = page->continuation;
    if (!request.continuation.empty()) text += "| ";
  } while (!request.continuation.empty());
  return text;
}

TEST(HfListings, PagesBelowARoot) {
  const Listing all = listing_of({"a", "data-x", "data/b/1", "data/b/2", "data/c", "data0", "e"});
  EXPECT_EQ(pages_of(all, "", {}), "a data-x data/b/1 data/b/2 data/c data0 e ");
  EXPECT_EQ(pages_of(all, "data/", {}), "b/1 b/2 c ");
  EXPECT_EQ(pages_of(all, "data/", request_of("", "/", 1)), "b/* | c ");
  EXPECT_EQ(pages_of(all, "", request_of("data", "", 2)),
            "data-x data/b/1 | data/b/2 data/c | data0 ");
  EXPECT_EQ(pages_of(all, "", request_of("data", "/", 1)), "data-x | data/* | data0 ");
  EXPECT_EQ(pages_of(all, "none/", {}), "");
  ListRequest foreign;
  foreign.continuation = "x";
  EXPECT_EQ(page_of(all, "", foreign).error().code(), Code::kInvalidArgument);
}

TEST(HfListings, ADeepListingServesWhatIsBelowIt) {
  HfListings listings;
  const auto deep = std::make_shared<const Listing>(listing_of({"data/b/1", "data/c"}));
  const auto flat = std::make_shared<const Listing>(listing_of({"x/", "y"}));
  listings.put("data/", true, deep);
  listings.put("", false, flat);
  EXPECT_EQ(listings.find("data/", true), deep);
  EXPECT_EQ(listings.find("data/b/", true), deep);
  EXPECT_EQ(listings.find("data/b/", false), deep);
  EXPECT_EQ(listings.find("", false), flat);
  EXPECT_EQ(listings.find("", true), nullptr);
  EXPECT_EQ(listings.find("x/", false), nullptr);
  EXPECT_TRUE(listings.file("data/c"));
  EXPECT_FALSE(listings.file("data/b"));
  for (int i = 0; i < 4; ++i) listings.put("other/", true, flat);
  EXPECT_EQ(listings.find("data/", true), nullptr);
}

}  // namespace
}  // namespace headrace::hf
