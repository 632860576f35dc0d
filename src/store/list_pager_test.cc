#include "store/list_pager.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "base/random.h"

namespace headrace {
namespace {

/// All pages over sorted keys, as a store without any index would make them.
std::vector<std::string> list_all_pages(const std::set<std::string>& keys, ListRequest request) {
  std::vector<std::string> names;
  do {
    ListPager pager(request);
    EXPECT_TRUE(pager.check().ok());
    for (const std::string& key : keys) {
      EXPECT_FALSE(pager.wants(key) && pager.skips_all_below(key)) << key;
      if (!pager.add({.key = key, .size_bytes = 0, .etag = "", .modified_unix_s = 0})) break;
    }
    const ListPage page = pager.take();
    for (const ObjectInfo& info : page.objects) names.push_back(info.key);
    for (const std::string& prefix : page.common_prefixes) names.push_back("p:" + prefix);
    request.continuation = page.continuation;
  } while (!request.continuation.empty());
  return names;
}

std::multiset<std::string> expected_names(const std::set<std::string>& keys,
                                          const ListRequest& request) {
  std::set<std::string> names;
  for (const std::string& key : keys) {
    if (key.compare(0, request.prefix.size(), request.prefix) != 0) continue;
    const std::size_t at = request.delimiter.empty()
                               ? std::string::npos
                               : key.find(request.delimiter, request.prefix.size());
    names.insert(at == std::string::npos ? key
                                         : "p:" + key.substr(0, at + request.delimiter.size()));
  }
  return {names.begin(), names.end()};
}

TEST(ListPager, AnyPageSizeListsEverythingOnce) {
  Random random(11);
  for (int round = 0; round < 300; ++round) {
    std::set<std::string> keys;
    for (std::uint64_t i = random.below(30); i > 0; --i) {
      std::string key;
      for (std::uint64_t length = 1 + random.below(5); length > 0; --length)
        key += "ab/-"[random.below(4)];
      keys.insert(key);
    }
    ListRequest request;
    request.prefix = std::string("ab/").substr(0, random.below(4));
    request.delimiter = std::string(random.below(2) == 0 ? "/" : "b-").substr(0, random.below(3));
    request.page_size = static_cast<std::uint32_t>(1 + random.below(5));
    const std::vector<std::string> names = list_all_pages(keys, request);
    ASSERT_EQ(std::multiset<std::string>(names.begin(), names.end()), expected_names(keys, request))
        << "round " << round;
  }
}

TEST(ListPager, AFullLastPageHasNoContinuation) {
  ListRequest request;
  request.page_size = 2;
  ListPager pager(request);
  EXPECT_TRUE(pager.add_object({.key = "a", .size_bytes = 0, .etag = "", .modified_unix_s = 0}));
  EXPECT_TRUE(pager.add_object({.key = "b", .size_bytes = 0, .etag = "", .modified_unix_s = 0}));
  EXPECT_TRUE(pager.take().continuation.empty());
}

TEST(ListPager, RefusesAForeignContinuation) {
  ListRequest request;
  request.continuation = "1ueGcxLPRx1Tr";
  EXPECT_EQ(ListPager(request).check().code(), Code::kInvalidArgument);
}

TEST(ListPager, APageThatGoesOnWhereItBeganIsAnError) {
  ListRequest request;
  ListPage page;
  EXPECT_TRUE(next_page(page, request)) << "the only one";
  page.continuation = "t";
  EXPECT_TRUE(next_page(page, request)) << "the first one";
  request.continuation = "s";
  EXPECT_TRUE(next_page(page, request));
  request.continuation = "t";
  EXPECT_EQ(next_page(page, request).error().code(), Code::kCorrupt);
  page.continuation.clear();
  EXPECT_TRUE(next_page(page, request)) << "the last one";
}

}  // namespace
}  // namespace headrace
