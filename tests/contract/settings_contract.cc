// What every store does with the settings of objects: keeps them, or says that it cannot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "contract/store_contract.h"

namespace headrace::contract {
namespace {

using ::testing::AnyOf;

ObjectSettings type_and_encoding() {
  ObjectSettings settings;
  settings.content_type = "application/x-headrace";
  settings.content_encoding = "zstd";
  return settings;
}

/// What every vendor has.
ObjectSettings common_settings() {
  ObjectSettings settings = type_and_encoding();
  settings.content_language = "de";
  settings.content_disposition = "attachment; filename=\"a b\"";
  settings.cache_control = "max-age=60,  no-transform";
  settings.metadata = {{"zeta", "last"}, {"a_1", "two  spaces"}, {"run", "17"}, {"a", "x"}};
  return settings;
}

/// As many of them as the store keeps; none where it keeps nothing.
ObjectSettings settings_for(const Store& store) {
  for (ObjectSettings settings : {common_settings(), type_and_encoding()})
    if (store.check_settings(settings).ok()) return settings;
  return {};
}

/// What is told of an object, of the fields that common_settings() has. Runs of spaces are one to
/// HTTP and to signatures, and servers differ in which they keep.
ObjectSettings told(Result<ObjectInfo> info) {
  EXPECT_TRUE(info) << info.error().message();
  EXPECT_TRUE(info && info->details);
  if (!info || !info->details) return {};
  ObjectSettings out = copied_settings(info->details->settings);
  const auto squeeze = [](std::string& text) {
    for (std::size_t at = 0; (at = text.find("  ")) != std::string::npos;) text.erase(at, 1);
  };
  squeeze(out.cache_control);
  for (auto& [name, value] : out.metadata) squeeze(value);
  return out;
}

ObjectSettings squeezed(ObjectSettings settings) {
  if (!settings.cache_control.empty()) settings.cache_control = "max-age=60, no-transform";
  if (!settings.metadata.empty()) settings.metadata["a_1"] = "two spaces";
  return settings;
}

TEST_P(StoreContract, AWriteHasItsSettingsOrFails) {
  const ObjectSettings settings = settings_for(store());
  const ObjectSettings all = common_settings();
  const Status status = put_with("dir/x", all);
  if (settings != all) {
    EXPECT_EQ(status.code(), Code::kUnsupported) << status.message();
    EXPECT_EQ(store().head("dir/x").error().code(), Code::kNotFound);
  }
  if (settings.empty()) return;
  ASSERT_TRUE(put_with("dir/x", settings).ok());
  EXPECT_EQ(told(store().head("dir/x")), squeezed(settings));
  EXPECT_EQ(get("dir/x", 0, 10), "0123456789");
}

TEST_P(StoreContract, AReadTellsSettingsWhereItIsAskedTo) {
  const ObjectSettings settings = settings_for(store());
  ASSERT_TRUE(put_with("x", settings).ok());
  Request read = get_request("x", 2, 3);
  read.wants_details = true;
  const Completion done = run_one(std::move(read));
  ASSERT_TRUE(done.status.ok()) << done.status.message();
  EXPECT_EQ(text_of(done), "234");
  if (settings.empty()) return;
  ASSERT_TRUE(done.details);
  EXPECT_EQ(done.details->settings.content_type, settings.content_type);
  EXPECT_EQ(done.details->settings.metadata.contains("run"), !settings.metadata.empty());
  EXPECT_FALSE(run_one(get_request("x", 2, 3)).details);
}

TEST_P(StoreContract, AStoresOwnSettingsStandBelowThoseOfAWrite) {
  StoreOptions options;
  options.settings = settings_for(store());
  if (options.settings.empty()) GTEST_SKIP() << "keeps none; open_store() says so";
  const auto other = open(options);
  EXPECT_EQ(other->settings(), options.settings);
  ObjectSettings own;
  own.content_type = "text/plain";
  std::vector<Request> requests;
  requests.push_back(put_request("plain", "1"));
  requests.push_back(put_request("own", "2"));
  requests.back().settings = &own;
  requests.back().tag = 1;
  for (const Completion& done : run(*other, std::move(requests)))
    EXPECT_TRUE(done.status.ok()) << done.status.message();
  EXPECT_EQ(told(other->head("plain")), squeezed(options.settings));
  EXPECT_EQ(told(other->head("own")).content_type, "text/plain");
  EXPECT_EQ(told(other->head("own")).content_encoding, "zstd");
}

TEST_P(StoreContract, AnUploadHasItsSettingsOrFails) {
  const ObjectSettings settings = settings_for(store());
  const ObjectSettings all = common_settings();
  if (settings != all) {
    auto refused = store().create_upload("up", {.stop = {}, .settings = &all});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Code::kUnsupported) << refused.error().message();
  }
  const CallOptions call{.stop = {}, .settings = &settings};
  auto id = store().create_upload("up", call);
  ASSERT_TRUE(id) << id.error().message();
  Request part = put_request("up", "0123456789");
  part.op = Op::kPutPart;
  part.upload_id = *id;
  part.part_number = 1;
  const Completion sent = run_one(std::move(part));
  ASSERT_TRUE(sent.status.ok()) << sent.status.message();
  const std::vector<UploadedPart> parts{{1, sent.etag, 10, sent.checksum}};
  auto info = store().complete_upload("up", *id, parts, call);
  ASSERT_TRUE(info) << info.error().message();
  if (!settings.empty()) {
    EXPECT_EQ(told(store().head("up")), squeezed(settings));
  }
  EXPECT_EQ(get("up", 0, 10), "0123456789");
}

TEST_P(StoreContract, ACopyKeepsSettingsThatItDoesNotReplace) {
  const ObjectSettings settings = settings_for(store());
  ASSERT_TRUE(put_with("from", settings).ok());
  ASSERT_TRUE(store().copy("from", "same"));
  ObjectSettings own;
  own.content_type = "text/plain";
  auto copied = store().copy("from", "own", {.stop = {}, .settings = &own});
  if (settings.empty()) {
    ASSERT_FALSE(copied);
    EXPECT_EQ(copied.error().code(), Code::kUnsupported);
    return;
  }
  EXPECT_EQ(told(store().head("same")), squeezed(settings));
  if (!copied && copied.error().code() == Code::kUnsupported) return;
  ObjectSettings expected = squeezed(settings);
  expected.content_type = "text/plain";
  EXPECT_EQ(told(store().head("own")), expected);
  EXPECT_EQ(told(std::move(copied)), expected);
}

TEST_P(StoreContract, SettingsThatNoHeaderCanHoldAreRefused) {
  std::vector<ObjectSettings> bad(6);
  bad[0].content_type = "text/plain\r\nx-amz-acl: public-read";
  bad[1].metadata = {{"a b", "1"}};
  bad[2].metadata = {{"Upper", "1"}};
  bad[3].metadata = {{"name", "gr\xc3\xbc\xc3\x9f"}};
  bad[4].cache_control = " no-cache";
  for (int i = 0; i <= 64; ++i) bad[5].metadata["n" + std::to_string(i)] = "v";
  for (const ObjectSettings& settings : bad) {
    EXPECT_THAT(put_with("x", settings).code(), AnyOf(Code::kInvalidArgument, Code::kUnsupported));
    EXPECT_FALSE(store().create_upload("x", {.stop = {}, .settings = &settings}));
    EXPECT_FALSE(store().check_settings(settings).ok());
  }
  EXPECT_EQ(store().head("x").error().code(), Code::kNotFound);
}

/// One that the store, or the emulator of it, has beside the standard one.
std::string other_class(const Store& store) {
  const std::string& url = store.url();
  if (url.starts_with("gs://")) return "NEARLINE";
  return url.starts_with("az://") ? "Cool" : "REDUCED_REDUNDANCY";
}

TEST_P(StoreContract, AnObjectMovesToAnotherClassAsItIs) {
  const ObjectSettings settings = settings_for(store());
  ASSERT_TRUE(put_with("x", settings).ok());
  ObjectSettings wanted;
  wanted.storage_class = other_class(store());
  const bool has_classes = store().check_settings(wanted).ok();
  auto moved = store().set_storage_class("x", wanted.storage_class);
  if (!has_classes) {
    EXPECT_EQ(moved.error().code(), Code::kUnsupported) << moved.error().message();
    return;
  }
  if (!moved && moved.error().code() == Code::kUnsupported) return;  // An emulator without.
  ASSERT_TRUE(moved) << moved.error().message();
  // Some servers take the word and keep no classes.
  EXPECT_THAT(moved->details->settings.storage_class, AnyOf(wanted.storage_class, "", "STANDARD"));
  EXPECT_EQ(moved->size_bytes, 10U);
  EXPECT_EQ(told(store().head("x")), squeezed(settings));
  EXPECT_EQ(get("x", 0, 10), "0123456789");
  ListRequest below;
  below.prefix = "x";
  auto page = store().list(below);
  ASSERT_TRUE(page && page->objects.size() == 1);
  EXPECT_EQ(page->objects[0].etag, moved->etag);
  const std::string& told_class = moved->details->settings.storage_class;
  EXPECT_THAT(page->objects[0].storage_class,
              AnyOf(told_class.empty() ? "STANDARD" : told_class, told_class));
  EXPECT_TRUE(store().set_storage_class("x", wanted.storage_class));
  EXPECT_EQ(store().set_storage_class("none", wanted.storage_class).error().code(),
            Code::kNotFound);
}

TEST_P(StoreContract, AVersionThatIsNotThereIsAnError) {
  put("x", "0123456789");
  const CallOptions call{.stop = {}, .version_id = "17"};
  EXPECT_FALSE(store().head("x", call));
  Request read = get_request("x", 0, 1);
  read.version_id = "17";
  EXPECT_FALSE(run_one(std::move(read)).status.ok());
  EXPECT_FALSE(store().copy("x", "y", call));
  EXPECT_EQ(store().head("y").error().code(), Code::kNotFound);
  // Deleting what is not there succeeds, if the store knows that; what is there stays.
  static_cast<void>(store().remove("x", call));
  EXPECT_EQ(get("x", 0, 10), "0123456789");
}

}  // namespace
}  // namespace headrace::contract
