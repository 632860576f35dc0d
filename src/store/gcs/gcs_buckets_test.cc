#include "store/gcs/gcs_buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace::gcs {
namespace {

std::string in_xml(int count) {
  std::string buckets;
  for (int i = 0; i < count; ++i)
    buckets += "<Bucket><Name>b" + std::to_string(i) +
               "</Name><CreationDate>1970-01-01T00:00:07.123Z</CreationDate></Bucket>";
  return "<?xml version='1.0' encoding='UTF-8'?><ListAllMyBucketsResult "
         "xmlns='http://doc.s3.amazonaws.com/2006-03-01'><Owner><ID>1</ID></Owner><Buckets>" +
         buckets + "</Buckets></ListAllMyBucketsResult>";
}

TEST(GcsBuckets, ReadsPages) {
  auto page = parse_bucket_page(
      R"({"kind": "storage#buckets", "nextPageToken": "more", "items": [)"
      R"({"name": "a", "timeCreated": "1970-01-01T00:01:00.000Z"}, {"name": "b.c"}]})");
  ASSERT_TRUE(page) << page.error().message();
  ASSERT_EQ(page->buckets.size(), 2U);
  EXPECT_EQ(page->buckets[0].url, "gs://a");
  EXPECT_EQ(page->buckets[0].created_unix_s, 60);
  EXPECT_EQ(page->buckets[1].name, "b.c");
  EXPECT_EQ(page->buckets[1].created_unix_s, 0);
  EXPECT_EQ(page->next, "more");
  auto none = parse_bucket_page(R"({"kind": "storage#buckets"})");
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->buckets.empty() && none->next.empty());
  for (const char* bad : {"", "[]", "{}", "<html/>", R"({"kind": "storage#buckets", "items": [1]})",
                          R"({"kind": "storage#buckets", "items": [{"name": 1}]})"}) {
    EXPECT_EQ(parse_bucket_page(bad).error().code(), Code::kCorrupt) << bad;
  }
}

TEST(GcsBuckets, ReadsXmlUnlessThereMayBeMore) {
  auto some = parse_all_buckets(in_xml(999));
  ASSERT_TRUE(some) << some.error().message();
  ASSERT_EQ(some->size(), 999U);
  EXPECT_EQ(some->front().url, "gs://b0");
  EXPECT_EQ(some->front().created_unix_s, 7);
  EXPECT_EQ(parse_all_buckets(in_xml(1000)).error().code(), Code::kUnsupported);
  EXPECT_EQ(parse_all_buckets("<html/>").error().code(), Code::kCorrupt);
  EXPECT_EQ(parse_all_buckets("").error().code(), Code::kCorrupt);
}

TEST(BucketOwner, IsAnAccountWithoutABucket) {
  for (const char* url :
       {"s3://", "gs://", "gcs://", "az://", "azure://", "az://account", "azure://account/"}) {
    EXPECT_TRUE(is_bucket_owner(url)) << url;
  }
  for (const char* url :
       {"", "s3:", "s3", "/", "://", "s3://b", "gs://b/", "az://account/container",
        "az://account?sig=x", "abfs://", "file://", "http://"}) {
    EXPECT_FALSE(is_bucket_owner(url)) << url;
  }
}

}  // namespace
}  // namespace headrace::gcs
