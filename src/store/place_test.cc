#include "store/place.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace headrace {
namespace {

std::string place(const std::string& url, const std::string& endpoint = "") {
  StoreOptions options;
  options.url = url;
  options.endpoint = endpoint;
  options.anonymous = true;
  auto store = open_store(options, {});
  EXPECT_TRUE(store) << url;
  return store ? place_of(**store) : "";
}

TEST(PlaceOf, EverySpellingOfAStoreIsOnePlace) {
  const std::string azure = place("az://account/container/a/b");
  for (const std::string url :
       {"azure://account/container/a/b/", "abfss://container@account.dfs.core.windows.net/a/b",
        "abfs://container@account.dfs.core.windows.net/a/b",
        "wasbs://container@account.blob.core.windows.net/a/b",
        "https://account.blob.core.windows.net/container/a/b"})
    EXPECT_EQ(place(url), azure) << url;
  EXPECT_EQ(place("gcs://bucket/a"), place("gs://bucket/a"));
  EXPECT_EQ(place("S3://bucket/a/"), place("s3://bucket/a"));
}

TEST(PlaceOf, OtherObjectsAreAnotherPlace) {
  const std::string server = "http://127.0.0.1:9000";
  const std::vector<std::string> places = {
      place("s3://bucket/a", server), place("s3://bucket/ab", server),
      place("s3://other/a", server), place("s3://bucket/a", "http://127.0.0.1:9001"),
      place("gs://bucket/a", server)};
  for (std::size_t i = 0; i < places.size(); ++i) {
    for (std::size_t j = 0; j < places.size(); ++j) {
      if (i == j) continue;
      EXPECT_FALSE(places[i].starts_with(places[j])) << places[i];
    }
  }
  EXPECT_TRUE(place("s3://bucket/a/b").starts_with(place("s3://bucket/a")));
}

}  // namespace
}  // namespace headrace
