#include "headrace/object_settings.h"

#include <gtest/gtest.h>

#include "headrace/store.h"

namespace headrace {
namespace {

ObjectSettings full() {
  ObjectSettings out;
  out.content_type = "a/b";
  out.content_encoding = "gzip";
  out.metadata = {{"k", "v"}};
  out.storage_class = "GLACIER";
  out.encryption = "aws:kms";
  out.encryption_key = "key";
  out.acl = "private";
  return out;
}

TEST(ObjectSettings, WhatIsGivenStandsOverWhatIsBelow) {
  ObjectSettings given;
  given.content_type = "text/plain";
  given.metadata = {{"other", "1"}};
  ObjectSettings expected = full();
  expected.content_type = "text/plain";
  expected.metadata = {{"other", "1"}};
  EXPECT_EQ(settings_over(given, full()), expected);
  EXPECT_EQ(settings_over({}, full()), full());
  EXPECT_TRUE(settings_over({}, {}).empty());
}

TEST(ObjectSettings, ACopyTakesTheContentsSettingsNotThePlaces) {
  ObjectSettings expected;
  expected.content_type = "a/b";
  expected.content_encoding = "gzip";
  expected.metadata = {{"k", "v"}};
  EXPECT_EQ(copied_settings(full()), expected);
}

TEST(ObjectSettings, TypesAreGuessedByTheEndOfTheName) {
  EXPECT_EQ(guess_content_type("a/b.json"), "application/json");
  EXPECT_EQ(guess_content_type("a/B.JPG"), "image/jpeg");
  EXPECT_EQ(guess_content_type("x.tar.gz"), "application/gzip");
  EXPECT_EQ(guess_content_type("shard.00000.mds.zst"), "application/zstd");
  for (const char* name :
       {"", "a", "json", ".json", "a.json/b", "a.", "a.unknownextension", "a.mds"})
    EXPECT_EQ(guess_content_type(name), "") << name;
}

TEST(ObjectSettings, StoresThatKeepNothingSaySoWhenTheyAreOpened) {
  StoreOptions options;
  options.settings.storage_class = "STANDARD_IA";
  for (const char* url : {"/tmp", "http://127.0.0.1:1"}) {
    options.url = url;
    const auto store = open_store(options, {});
    ASSERT_FALSE(store) << url;
    EXPECT_EQ(store.error().code(), Code::kUnsupported);
    const std::string message(store.error().message());
    EXPECT_NE(message.find("storage_class"), std::string::npos) << message;
    EXPECT_NE(message.find(url), std::string::npos) << message;
  }
}

TEST(ObjectSettings, VendorsRefuseWhatTheyLack) {
  Environment environment;
  environment.variables = {{"AWS_ACCESS_KEY_ID", "a"},
                           {"AWS_SECRET_ACCESS_KEY", "b"},
                           {"AZURE_STORAGE_KEY", "aaaa"},
                           {"GOOGLE_APPLICATION_CREDENTIALS", ""}};
  const auto open = [&](const char* url, const ObjectSettings& settings) {
    StoreOptions options;
    options.url = url;
    options.anonymous = std::string_view(url).starts_with("gs");
    options.settings = settings;
    auto store = open_store(options, environment);
    return store ? Code::kOk : store.error().code();
  };
  const auto expect_codes = [&](const ObjectSettings& settings, Code s3, Code google, Code azure) {
    EXPECT_EQ(open("s3://b", settings), s3);
    EXPECT_EQ(open("gs://bucket", settings), google);
    EXPECT_EQ(open("az://account/container", settings), azure);
  };
  ObjectSettings key_alone, encryption, acl, hyphen;
  key_alone.encryption_key = "key";
  expect_codes(key_alone, Code::kInvalidArgument, Code::kOk, Code::kUnsupported);
  encryption.encryption = "AES256";
  expect_codes(encryption, Code::kOk, Code::kUnsupported, Code::kUnsupported);
  acl.acl = "bucket-owner-full-control";
  expect_codes(acl, Code::kOk, Code::kOk, Code::kUnsupported);
  hyphen.metadata = {{"my-key", "1"}};
  expect_codes(hyphen, Code::kOk, Code::kOk, Code::kInvalidArgument);
}

}  // namespace
}  // namespace headrace
