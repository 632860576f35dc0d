#include "store/url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/environment.h"
#include "headrace/store.h"

namespace headrace {
namespace {

using testing::HasSubstr;

std::string parts(std::string_view text) {
  auto url = parse_store_url(text);
  if (!url) return std::string(code_name(url.error().code()));
  return url->scheme + "|" + url->bucket + "|" + url->path + "|" + url->root;
}

TEST(StoreUrl, SplitsEveryScheme) {
  EXPECT_EQ(parts("s3://bucket"), "s3|bucket||s3://bucket");
  EXPECT_EQ(parts("S3://bucket/a b%20c//d/"), "s3|bucket|a b%20c//d|s3://bucket/a b%20c//d");
  EXPECT_EQ(parts("file:///data/x/"), "file||/data/x|file:///data/x");
  EXPECT_EQ(parts("file://localhost/data"), "file||/data|file:///data");
  EXPECT_EQ(parts("file:///"), "file||/|file:///");
  EXPECT_EQ(parts("/data/x/"), "||/data/x|/data/x");
  EXPECT_EQ(parts("relative"), "||relative|relative");
  EXPECT_EQ(parts("a:b/c://d"), "||a:b/c://d|a:b/c://d");
  EXPECT_EQ(parts("memory://name/p"), "memory|name|p|memory://name/p");
}

TEST(StoreUrl, RefusesWhatNamesNothing) {
  for (std::string_view text :
       {"", "s3://", "s3:///key", "memory://", "file://host/x", "s3://b/\x01", "a\nb"}) {
    EXPECT_EQ(parts(text), "invalid_argument") << text;
  }
}

TEST(StoreUrl, AMistypedUrlIsNoDirectory) {
  const auto message = [](std::string_view text, bool exists = false) {
    const Status status = refuse_mistyped(text, [&](const std::string& path) {
      return exists && text.starts_with(path) && path.find('/') == std::string::npos;
    });
    return status.ok() ? "a path" : std::string(status.message());
  };
  for (const char* text : {"s3:/b/x", "S3:/b/x", "s3//b/x", " s3://b/x", "\ts3:/b/x"})
    EXPECT_THAT(message(text), HasSubstr("did you mean \"s3://b/x\"?")) << text;
  // What an earlier slip has left is no reason to go on with it; a name that was joined is.
  EXPECT_THAT(message("s3:/b/x", true), HasSubstr("did you mean \"s3://b/x\"?"));
  EXPECT_EQ(message("s3//b/x", true), "a path");
  EXPECT_THAT(message("file:/data"), HasSubstr("did you mean \"file:///data\"?"));
  EXPECT_THAT(message("gs:"), HasSubstr("did you mean \"gs://\"?"));
  EXPECT_THAT(message("s3:/KEY:SECRET@b/x"), testing::Not(HasSubstr("SECRET")));
  for (const char* text : {"", " ", "s3", "s3/b", "./s3:/b", "/s3:/b", "s3:b", "data:/x", "a//b",
                           "http", "s3/b//c", " data", "s3://b/x", "ftp://x", "memory://x"})
    EXPECT_EQ(message(text), "a path") << text;
}

TEST(OpenStore, RefusesOtherSchemesWithAHint) {
  const auto message = [](const std::string& url) {
    StoreOptions options;
    options.url = url;
    auto store = open_store(options, {});
    if (store) return std::string("opened");
    EXPECT_EQ(store.error().code(), Code::kUnsupported);
    return std::string(store.error().message());
  };
  EXPECT_THAT(message("ftp://x"),
              HasSubstr("use s3://bucket/prefix, file:///directory, a plain path, gs://"));
}

TEST(OpenStore, KnowsTheSchemesOfItsDrivers) {
  for (const char* url :
       {"gs://bucket/a", "az://account/container", "https://host/y", "memory://m", "s3://bucket"}) {
    StoreOptions options;
    options.url = url;
    options.anonymous = true;
    const auto store = open_store(options, {});
    EXPECT_TRUE(store.has_value()) << url << ": " << store.error().message();
  }
}

TEST(OpenStore, SaysWhatIsWrongBeforeContactingAnyone) {
  StoreOptions options;
  EXPECT_EQ(open_store(options, {}).error().code(), Code::kInvalidArgument);
  options.url = "az://account";
  EXPECT_EQ(open_store(options, {}).error().code(), Code::kInvalidArgument);  // no container
}

TEST(OpenStore, UrlsThatCannotBeUsedAreShownWithoutSecrets) {
  for (const char* url :
       {"az:///container?sv=1&sig=SECRET", "az://u:SECRET@account/c", "az://account?sig=SECRET/c",
        "az://account/container?sig=SECRET", "s3://KEY:SECRET@bucket/x",
        "s3://KEY:/SECRET@bucket/x", "s3://KEY:SECRET/x@bucket", "gs://u:SECRET@bucket/x",
        "hf://a b?token=SECRET", "hf://u:SECRET@org/name", "hf://buckets/x?token=SECRET",
        "https://user:VERY/SECRET@host/x", "https://user:VERY/SEC RET@host/x",
        "ftp://u:SECRET@host/x"}) {
    StoreOptions options;
    options.url = url;
    Environment environment;
    environment.variables = {{"AWS_PROFILE", "none"}, {"AWS_EC2_METADATA_DISABLED", "true"}};
    for (const bool is_anonymous : {false, true}) {
      options.anonymous = is_anonymous;
      const auto store = open_store(options, environment);
      ASSERT_FALSE(store) << url;
      EXPECT_THAT(std::string(store.error().message()), testing::Not(HasSubstr("SEC"))) << url;
    }
  }
  StoreOptions options;
  options.url = "s3://bucket";
  options.endpoint = "https://user:VE/SECRET@host";
  options.anonymous = true;
  EXPECT_THAT(std::string(open_store(options, {}).error().message()),
              testing::Not(HasSubstr("SECRET")));
}

}  // namespace
}  // namespace headrace
