// What every store does with calls that block.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stop_token>
#include <string>
#include <vector>

#include "contract/store_contract.h"

namespace headrace::contract {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Every page of a listing.
struct Listing {
  std::vector<std::string> keys;
  std::vector<std::string> common_prefixes;
  std::size_t page_count = 0;
};

Listing list_pages(Store& store, ListRequest request) {
  Listing all;
  do {
    auto page = store.list(request);
    EXPECT_TRUE(page) << page.error().message();
    if (!page) return all;
    EXPECT_LE(page->objects.size() + page->common_prefixes.size(), request.page_size);
    for (const ObjectInfo& info : page->objects) all.keys.push_back(info.key);
    for (const std::string& prefix : page->common_prefixes) all.common_prefixes.push_back(prefix);
    request.continuation = page->continuation;
    ++all.page_count;
  } while (!request.continuation.empty() && all.page_count < 1000);
  return all;
}

TEST_P(StoreContract, HeadTellsSizeAndVersion) {
  const std::string etag = put("dir/x", "0123456789");
  auto info = store().head("dir/x");
  ASSERT_TRUE(info) << info.error().message();
  EXPECT_EQ(info->key, "dir/x");
  EXPECT_EQ(info->size_bytes, 10U);
  EXPECT_EQ(info->etag, etag);
  EXPECT_GT(info->modified_unix_s, 1'600'000'000);
  auto none = store().head("dir");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), Code::kNotFound);
  EXPECT_THAT(std::string(none.error().message()), HasSubstr("/dir"));
}

TEST_P(StoreContract, ListsInByteOrderOfTheKey) {
  for (const char* key : {"a/b", "a.b", "a", "a0", "b", "a/a/a", "a/a-", "B", "a/"}) {
    // A file system holds neither "a" beside "a/b" nor "a/".
    if (std::string_view(key) == "a" || std::string_view(key) == "a/") continue;
    put(key, key);
  }
  EXPECT_THAT(keys_below(""), ElementsAre("B", "a.b", "a/a-", "a/a/a", "a/b", "a0", "b"));
}

TEST_P(StoreContract, ListsWhatHeadTells) {
  put("dir/x", "0123456789");
  auto head = store().head("dir/x");
  auto all = list_all(store(), "");
  ASSERT_TRUE(head);
  ASSERT_TRUE(all);
  ASSERT_EQ(all->size(), 1U);
  EXPECT_EQ(all->front().size_bytes, head->size_bytes);
  EXPECT_EQ(all->front().etag, head->etag);
  EXPECT_EQ(all->front().modified_unix_s, head->modified_unix_s);
}

TEST_P(StoreContract, ListsOnlyKeysWithThePrefix) {
  for (const char* key : {"train/1", "train/2", "train-b/1", "trail", "val/1"}) put(key, "x");
  EXPECT_THAT(keys_below("train/"), ElementsAre("train/1", "train/2"));
  EXPECT_THAT(keys_below("train"), ElementsAre("train-b/1", "train/1", "train/2"));
  EXPECT_THAT(keys_below("train/1"), ElementsAre("train/1"));
  EXPECT_THAT(keys_below("none"), IsEmpty());
  EXPECT_THAT(keys_below("none/at/all"), IsEmpty());
}

TEST_P(StoreContract, ADelimiterRollsDeeperKeysUp) {
  for (const char* key : {"1", "a/1", "a/b/2", "b/c/3", "b.txt", "c"}) put(key, "x");
  const Listing top =
      list_pages(store(), {.prefix = "", .delimiter = "/", .continuation = "", .page_size = 1000});
  EXPECT_THAT(top.keys, ElementsAre("1", "b.txt", "c"));
  EXPECT_THAT(top.common_prefixes, ElementsAre("a/", "b/"));
  const Listing in_a = list_pages(
      store(), {.prefix = "a/", .delimiter = "/", .continuation = "", .page_size = 1000});
  EXPECT_THAT(in_a.keys, ElementsAre("a/1"));
  EXPECT_THAT(in_a.common_prefixes, ElementsAre("a/b/"));
  const Listing half =
      list_pages(store(), {.prefix = "b", .delimiter = "/", .continuation = "", .page_size = 1000});
  EXPECT_THAT(half.keys, ElementsAre("b.txt"));
  EXPECT_THAT(half.common_prefixes, ElementsAre("b/"));
}

TEST_P(StoreContract, PagesHoldEveryKeyOnce) {
  std::vector<std::string> keys;
  for (char dir = 'a'; dir < 'd'; ++dir) {
    for (char name = '0'; name < '5'; ++name) keys.push_back({dir, '/', name});
  }
  for (const std::string& key : keys) put(key, "x");
  for (const std::uint32_t page_size : {1U, 2U, 7U, 15U, 16U}) {
    const Listing all = list_pages(
        store(), {.prefix = "", .delimiter = "", .continuation = "", .page_size = page_size});
    EXPECT_EQ(all.keys, keys) << page_size;
    // A server may find out only by an empty page that there are no more keys (MinIO does).
    const std::size_t full_pages = (keys.size() + page_size - 1) / page_size;
    EXPECT_THAT(all.page_count, AnyOf(full_pages, full_pages + 1));
  }
}

TEST_P(StoreContract, PagesHoldEveryCommonPrefixOnce) {
  for (const char* key : {"a/1", "a/2", "a/3", "b", "c/1", "c/2", "d", "e/x/y"}) put(key, "x");
  const Listing all =
      list_pages(store(), {.prefix = "", .delimiter = "/", .continuation = "", .page_size = 2});
  EXPECT_THAT(all.keys, ElementsAre("b", "d"));
  EXPECT_THAT(all.common_prefixes, ElementsAre("a/", "c/", "e/"));
  EXPECT_EQ(all.page_count, 3U);
}

TEST_P(StoreContract, AContinuationIsGoodForAStoreThatWasOpenedLater) {
  for (const char* key : {"a", "b", "c", "d/1"}) put(key, "x");
  auto first = store().list({.prefix = "", .delimiter = "", .continuation = "", .page_size = 2});
  ASSERT_TRUE(first) << first.error().message();
  auto handle = store().new_handle();
  ASSERT_TRUE(handle) << handle.error().message();
  // Twice: the second cannot profit from anything that the store kept for it.
  for (int i = 0; i < 2; ++i) {
    const Listing rest = list_pages(
        **handle,
        {.prefix = "", .delimiter = "", .continuation = first->continuation, .page_size = 1000});
    EXPECT_THAT(rest.keys, ElementsAre("c", "d/1"));
  }
}

TEST_P(StoreContract, PageSizesOutOfRangeAreRefused) {
  put("x", "x");
  for (const std::uint32_t size : {0U, 1001U}) {
    auto page =
        store().list({.prefix = "", .delimiter = "", .continuation = "", .page_size = size});
    ASSERT_FALSE(page) << size;
    EXPECT_EQ(page.error().code(), Code::kInvalidArgument);
  }
}

TEST_P(StoreContract, RemovedObjectsAreGoneAndRemovingAgainSucceeds) {
  put("dir/x", "x");
  EXPECT_TRUE(store().remove("dir/x").ok());
  EXPECT_EQ(store().head("dir/x").error().code(), Code::kNotFound);
  EXPECT_TRUE(store().remove("dir/x").ok());
  EXPECT_TRUE(store().remove("never/was").ok());
  const Listing top =
      list_pages(store(), {.prefix = "", .delimiter = "/", .continuation = "", .page_size = 1000});
  EXPECT_THAT(top.common_prefixes, IsEmpty());
}

TEST_P(StoreContract, CopiesAreIndependent) {
  const std::string bytes = pattern(100'000);
  put("from", bytes);
  auto info = store().copy("from", "to/there");
  ASSERT_TRUE(info) << info.error().message();
  put("from", "other");
  EXPECT_EQ(get("to/there", 0, bytes.size()), bytes);
  auto head = store().head("to/there");
  ASSERT_TRUE(head);
  EXPECT_EQ(head->etag, info->etag);
  EXPECT_EQ(store().copy("none", "to").error().code(), Code::kNotFound);
}

TEST_P(StoreContract, CallsEndAtOnceWhenStoppedOrLate) {
  put("x", "x");
  std::stop_source stopped;
  stopped.request_stop();
  const CallOptions cancelled{.deadline = TimePoint::max(), .stop = stopped.get_token()};
  EXPECT_EQ(store().head("x", cancelled).error().code(), Code::kCancelled);
  EXPECT_EQ(store().list({}, cancelled).error().code(), Code::kCancelled);
  EXPECT_EQ(store().remove("x", cancelled).code(), Code::kCancelled);
  const CallOptions late{.deadline = system_clock().now() - std::chrono::seconds(1), .stop = {}};
  EXPECT_EQ(store().head("x", late).error().code(), Code::kDeadline);
  EXPECT_EQ(store().copy("x", "y", late).error().code(), Code::kDeadline);
  EXPECT_EQ(store().create_upload("x", late).error().code(), Code::kDeadline);
  EXPECT_TRUE(store().head("x"));
}

TEST_P(StoreContract, HelpersReadAndWriteWholeObjects) {
  for (const std::uint64_t size : {0U, 1U, 262'144U, 262'145U, 5'000'000U}) {
    const std::string bytes = pattern(size, size);
    auto written = write_object(store(), pool(), "index", bytes);
    ASSERT_TRUE(written) << written.error().message();
    ObjectInfo info;
    auto read = read_object(store(), pool(), "index", 10'000'000, {}, &info);
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(*read, bytes);
    EXPECT_EQ(info.size_bytes, size);
    EXPECT_EQ(info.etag, written->etag);
  }
  EXPECT_EQ(read_object(store(), pool(), "index", 4'999'999).error().code(), Code::kExhausted);
  EXPECT_EQ(read_object(store(), pool(), "none", 100).error().code(), Code::kNotFound);
}

TEST_P(StoreContract, MetricsAreNamedAndCount) {
  put("x", pattern(1000));
  get("x", 0, 1000);
  MetricList metrics;
  store().append_metrics(metrics);
  double received = 0;
  for (const Metric& metric : metrics) {
    EXPECT_THAT(metric.name, HasSubstr("."));
    if (metric.name == "store.received_bytes") received = metric.value;
  }
  EXPECT_GE(received, 1000);
}

TEST_P(StoreContract, ObjectUrlsStartWithTheRootAsWritten) {
  EXPECT_NE(store().url().back(), '/');
  EXPECT_EQ(store().object_url("a/b"), store().url() + "/a/b");
}

}  // namespace
}  // namespace headrace::contract
