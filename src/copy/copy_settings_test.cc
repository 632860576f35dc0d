#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log_capture.h"
#include "copy/copy_job_fixture.h"
#include "copy/kept_settings.h"
#include "copy/odd_store.h"
#include "headrace/forwarding_store.h"
#include "store/submit_queue.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Keeps no metadata with a hyphen, and no content language.
class PoorStore final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  explicit PoorStore(std::unique_ptr<Store> inner) : ForwardingStore(std::move(inner)) {}
  Status check_settings(const ObjectSettings& settings) const override {
    HEADRACE_TRY(inner().check_settings(settings));
    if (!settings.content_language.empty())
      return Status(Code::kUnsupported, "content_language: not here");
    for (const auto& [name, value] : settings.metadata)
      if (name.find('-') != std::string::npos)
        return Status(Code::kInvalidArgument, "metadata: no hyphens");
    return {};
  }

 private:
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(std::make_unique<PoorStore>(std::move(handle)));
  }
};

class CopySettingsTest : public CopyJobTest {
 protected:
  static ObjectSettings some_settings() {
    ObjectSettings settings;
    settings.content_type = "text/csv";
    settings.content_encoding = "gzip";
    settings.content_language = "de";
    settings.cache_control = "no-cache";
    settings.metadata = {{"run", "17"}, {"the-owner", "me"}};
    settings.storage_class = "GLACIER";
    return settings;
  }
  static std::unique_ptr<Store> open_with(const std::string& url, const ObjectSettings& settings) {
    StoreOptions options;
    options.url = url;
    options.settings = settings;
    auto store = open_store(options, {});
    EXPECT_TRUE(store) << url;
    return *std::move(store);
  }
  /// Small, large (in parts) and empty objects, with these settings.
  void fill_with(Store& store, const ObjectSettings& settings) {
    for (const auto& [key, text] : tree_)
      ASSERT_TRUE(write_object(store, *pool_, key, text, {.stop = {}, .settings = &settings}));
  }
  std::optional<ObjectSettings> settings_of(Store& store, const std::string& key) {
    auto info = store.head(key);
    EXPECT_TRUE(info) << key;
    if (!info || !info->details) return std::nullopt;
    return info->details->settings;
  }

  LogCapture log_{LogLevel::kInfo};
};

TEST_F(CopySettingsTest, CopiesBetweenStoresKeepTheSettingsOfTheContent) {
  const auto from = open("memory://with"), to = open("memory://without");
  fill_with(*from, some_settings());
  ObjectSettings expected = some_settings();
  expected.storage_class.clear();
  EXPECT_EQ(copy(*from, *to, everything()).done_count, tree_.size());
  for (const auto& [key, text] : tree_) EXPECT_EQ(settings_of(*to, key), expected) << key;
  EXPECT_EQ(contents(*to), tree_);
  EXPECT_THAT(log_.take(), IsEmpty());
}

TEST_F(CopySettingsTest, TheTargetsOwnSettingsReplaceThoseOfTheSource) {
  ObjectSettings own;
  own.content_type = "application/octet-stream";
  own.metadata = {{"by", "headrace"}};
  own.storage_class = "STANDARD_IA";
  const auto from = open("memory://with"), to = open_with("memory://own", own);
  fill_with(*from, some_settings());
  copy(*from, *to, everything());
  const ObjectSettings expected = settings_over(own, copied_settings(some_settings()));
  for (const auto& [key, text] : tree_) EXPECT_EQ(settings_of(*to, key), expected) << key;
  // By the store itself too.
  const auto same = open_with("memory://same", own);
  fill_with(*same, some_settings());
  CopyOptions options = everything();
  options.tasks = {{.from = "large", .to = "copy"}};
  copy(*same, *same, options);
  EXPECT_EQ(settings_of(*same, "copy"), expected);
}

TEST_F(CopySettingsTest, WhatTheTargetCannotKeepIsLeftOutAndTold) {
  const auto from = open("memory://with");
  PoorStore to(open("memory://poor"));
  fill_with(*from, some_settings());
  EXPECT_EQ(copy(*from, to, everything()).failed_count, 0U);
  ObjectSettings expected = copied_settings(some_settings());
  expected.content_language.clear();
  expected.metadata = {{"run", "17"}};
  for (const auto& [key, text] : tree_) EXPECT_EQ(settings_of(to, key), expected) << key;
  const auto lines = log_.take();
  ASSERT_FALSE(lines.empty());
  EXPECT_THAT(lines.back(), AllOf(HasSubstr("memory://poor"), HasSubstr("memory://with/"),
                                  HasSubstr("content_language, metadata the-owner")));
}

TEST_F(CopySettingsTest, AFileBecomesAnObjectOfTheTypeOfItsName) {
  const auto from = files("from");
  const auto to = open("memory://to");
  fill(*from, {{"a.json", "{}"}, {"a", "1"}, {"e.txt", ""}, {"large.tar", tree_.at("large")}});
  copy(*from, *to, everything());
  EXPECT_EQ(settings_of(*to, "a.json")->content_type, "application/json");
  EXPECT_EQ(settings_of(*to, "e.txt")->content_type, "text/plain");
  EXPECT_EQ(settings_of(*to, "large.tar")->content_type, "application/x-tar");
  EXPECT_TRUE(settings_of(*to, "a")->empty());
  ObjectSettings own;
  own.content_type = "text/x-own";
  const auto other = open_with("memory://other", own);
  copy(*from, *other, everything());
  for (const char* key : {"a.json", "a", "large.tar"})
    EXPECT_EQ(settings_of(*other, key)->content_type, "text/x-own");
}

TEST_F(CopySettingsTest, FilesKeepNoneWhichIsTold) {
  const auto from = open("memory://with");
  const auto to = files("to");
  fill_with(*from, some_settings());
  copy(*from, *to, everything());
  EXPECT_EQ(contents(*to), tree_);
  const auto lines = log_.take();
  EXPECT_THAT(lines, ::testing::Contains(AllOf(HasSubstr("content encoding"), HasSubstr("gzip"))));
  EXPECT_THAT(lines, ::testing::Contains(HasSubstr("user metadata")));
  // A type is nothing to tell: the name says it.
  ObjectSettings typed;
  typed.content_type = "text/csv";
  const auto plain = open("memory://plain");
  fill_with(*plain, typed);
  copy(*plain, *files("other"), everything());
  EXPECT_THAT(log_.take(), IsEmpty());
}

/// An upload that holds all parts of the file "x.txt" and was begun with other settings than the
/// copy of that file wants.
TEST_F(CopySettingsTest, AnUploadThatWasBegunWithOtherSettingsIsMadeAnew) {
  const std::string text = random_text(3 * (64 << 10), 5);
  const auto from = files("from");
  const auto to = open("memory://to");
  fill(*from, {{"x.txt", text}});
  ObjectSettings other;
  other.content_type = "text/html";
  auto id = to->create_upload("x.txt", {.stop = {}, .settings = &other});
  ASSERT_TRUE(id);
  std::vector<UploadedPart> parts;
  for (std::uint32_t i = 0; i < 3; ++i) {
    const std::string_view part = std::string_view(text).substr(i * (64 << 10), 64 << 10);
    Request request;
    request.op = Op::kPutPart;
    request.key = "x.txt";
    request.upload_id = *id;
    request.part_number = i + 1;
    request.length_bytes = part.size();
    request.slab = *pool_->try_acquire(part.size());
    part.copy(reinterpret_cast<char*>(request.slab.bytes().data()), part.size());
    const auto handle = *to->new_handle();
    const Completion done = run_request(*handle, std::move(request), {});
    ASSERT_TRUE(done.status.ok());
    parts.push_back({i + 1, done.etag, part.size(), checksum_of(std::string(part))});
  }
  OddStore::Hooks hooks;
  hooks.traits = to->traits();
  hooks.uploads = [&] { return std::vector<PendingUpload>{{"x.txt", *id, 0}}; };
  hooks.parts = [&] { return parts; };
  int created = 0;
  hooks.on_create = [&](const std::string&) { ++created; };
  OddStore target(*to->new_handle(), hooks);
  copy(*from, target, everything());
  EXPECT_THAT(failures_, IsEmpty());
  EXPECT_EQ(settings_of(*to, "x.txt")->content_type, "text/plain");
  EXPECT_EQ(contents(*to), (Tree{{"x.txt", text}}));
  EXPECT_EQ(created, 1);
}

TEST_F(CopySettingsTest, AVersionIsThatOfOneObject) {
  const auto from = open("memory://from"), to = open("memory://to");
  fill(*from, {{"a", "1"}});
  CopyOptions options = everything();
  options.tasks[0].version_id = "1";
  EXPECT_FALSE(CopyJob::create(*from, *to, options));
  options.tasks = {{.from = "a", .to = "a", .version_id = "1"}};
  auto job = CopyJob::create(*from, *to, options);
  ASSERT_TRUE(job);
  EXPECT_EQ((*job)->run().code(), Code::kUnsupported) << "memory has no versions";
}

TEST(HasSettings, ComparesWhatWasWanted) {
  using copy_detail::has_settings;
  ObjectSettings wanted, found;
  found.content_type = "binary/octet-stream";
  found.storage_class = "NEARLINE";
  found.encryption = "AES256";
  EXPECT_TRUE(has_settings(found, wanted)) << "a store's own choice";
  found.content_type = "text/plain";
  EXPECT_FALSE(has_settings(found, wanted)) << "somebody else's";
  wanted.content_type = "text/plain";
  EXPECT_TRUE(has_settings(found, wanted));
  found.metadata = {{"a", "1"}};
  EXPECT_FALSE(has_settings(found, wanted));
  wanted.metadata = {{"a", "1"}};
  wanted.storage_class = "STANDARD";
  EXPECT_FALSE(has_settings(found, wanted));
  found.storage_class.clear();
  EXPECT_TRUE(has_settings(found, wanted));
  wanted.encryption = "aws:kms";
  EXPECT_FALSE(has_settings(found, wanted));
  found.encryption = "aws:kms";
  wanted.encryption_key = "key/1";
  found.encryption_key = "arn:aws:kms:us-east-1:1:key/1";
  EXPECT_TRUE(has_settings(found, wanted));
  found.cache_control = "no-cache";
  EXPECT_FALSE(has_settings(found, wanted));
}

}  // namespace
}  // namespace headrace
