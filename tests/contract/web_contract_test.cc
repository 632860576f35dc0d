// What a read-only web server must do, against nginx when HEADRACE_TEST_HTTP_ENDPOINT and
// HEADRACE_TEST_HTTP_DIRECTORY name one and its files (tests/with_servers starts it), and by TLS
// with HEADRACE_TEST_HTTPS_ENDPOINT.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "contract/server_world.h"
#include "contract/store_contract.h"
#include "headrace/environment.h"

namespace headrace::contract {
namespace {

using ::testing::HasSubstr;

class WebContract : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string endpoint = variable(GetParam());
    if (endpoint.empty()) GTEST_SKIP() << GetParam() << " is not set";
    name_ = "web-" + std::to_string(::getpid());
    directory_ = variable("HEADRACE_TEST_HTTP_DIRECTORY") + "/" + name_;
    std::filesystem::create_directories(directory_);
    pool_ = *SlabPool::create({});
    options_.url = endpoint + "/" + name_;
    options_.ca_bundle = variable("HEADRACE_TEST_CA");
    auto store = open_store(options_, Environment());
    ASSERT_TRUE(store) << store.error().message();
    store_ = *std::move(store);
  }
  void TearDown() override {
    store_.reset();
    if (!directory_.empty()) std::filesystem::remove_all(directory_);
  }
  void write(const std::string& key, const std::string& bytes) {
    const std::filesystem::path path = directory_ + "/" + key;
    std::filesystem::create_directories(path.parent_path());
    // A new file: another ETag, also within one second.
    std::filesystem::remove(path);
    std::ofstream(path, std::ios::binary) << bytes;
  }
  Completion get(const std::string& key, std::uint64_t offset, std::uint64_t length,
                 std::string_view etag = {}) {
    Request request;
    request.key = key;
    request.etag = etag;
    request.offset_bytes = offset;
    request.length_bytes = length;
    request.slab = *pool_->try_acquire(length);
    EXPECT_EQ(store_->submit({&request, 1}), 1U);
    Completion done;
    EXPECT_EQ(store_->wait({&done, 1}, far_future()), 1U);
    return done;
  }

  std::string name_, directory_;
  StoreOptions options_;
  std::unique_ptr<SlabPool> pool_;
  std::unique_ptr<Store> store_;
};

TEST_P(WebContract, ReadsExactlyTheRangeAskedFor) {
  const std::string bytes = pattern(3'000'000);
  write("a/b", bytes);
  for (const auto& [offset, length] :
       {std::pair{0U, 1U}, {1U, 999'999U}, {2'999'999U, 1U}, {0U, 3'000'000U}}) {
    const Completion done = get("a/b", offset, length);
    ASSERT_TRUE(done.status.ok()) << done.status.message();
    EXPECT_EQ(text_of(done), std::string_view(bytes).substr(offset, length));
    EXPECT_EQ(done.object_size_bytes, bytes.size());
    EXPECT_FALSE(done.etag.empty());
  }
  EXPECT_EQ(get("a/b", 2'999'999, 2).status.code(), Code::kCorrupt);
}

TEST_P(WebContract, HeadTellsSizeAndVersion) {
  write("x", "0123456789");
  auto info = store_->head("x");
  ASSERT_TRUE(info) << info.error().message();
  EXPECT_EQ(info->size_bytes, 10U);
  EXPECT_EQ(info->etag, get("x", 0, 10).etag);
  EXPECT_GT(info->modified_unix_s, 1'600'000'000);
  EXPECT_EQ(store_->head("none").error().code(), Code::kNotFound);
}

TEST_P(WebContract, AnotherVersionThanTheOneNamedIsChanged) {
  write("x", "version one");
  auto info = store_->head("x");
  ASSERT_TRUE(info);
  const Completion same = get("x", 0, 11, info->etag);
  EXPECT_TRUE(same.status.ok()) << same.status.message();
  write("x", "version two!");
  EXPECT_EQ(get("x", 0, 11, info->etag).status.code(), Code::kChanged);
}

TEST_P(WebContract, KeysAreBytesNotUrls) {
  for (const std::string key : {"with space", "plus+plus", "percent%20not-escaped", "a=b&c=d",
                                "question?mark#", "\xc3\xa4\xe2\x82\xac", "semi;colon:at@"}) {
    write(key, "content of " + key);
    const Completion done = get(key, 0, 11 + key.size());
    ASSERT_TRUE(done.status.ok()) << done.status.message();
    EXPECT_EQ(text_of(done), "content of " + key);
  }
}

TEST_P(WebContract, WritingAndListingAreUnsupportedAndSayWhy) {
  EXPECT_FALSE(store_->traits().can_write);
  EXPECT_FALSE(store_->traits().can_list);
  auto page = store_->list({});
  ASSERT_FALSE(page);
  EXPECT_EQ(page.error().code(), Code::kUnsupported);
  EXPECT_THAT(std::string(page.error().message()), HasSubstr("no listings"));
  EXPECT_EQ(store_->remove("x").code(), Code::kUnsupported);
  EXPECT_EQ(store_->copy("x", "y").error().code(), Code::kUnsupported);
  EXPECT_EQ(store_->create_upload("x").error().code(), Code::kUnsupported);
  EXPECT_EQ(store_->complete_upload("x", "id", {}).error().code(), Code::kUnsupported);
  EXPECT_EQ(store_->abort_upload("x", "id").code(), Code::kUnsupported);
  Request put;
  put.op = Op::kPut;
  put.key = "x";
  ASSERT_EQ(store_->submit({&put, 1}), 1U);
  Completion done;
  ASSERT_EQ(store_->wait({&done, 1}, far_future()), 1U);
  EXPECT_EQ(done.status.code(), Code::kUnsupported) << done.status.message();
}

INSTANTIATE_TEST_SUITE_P(Http, WebContract,
                         ::testing::Values("HEADRACE_TEST_HTTP_ENDPOINT",
                                           "HEADRACE_TEST_HTTPS_ENDPOINT"),
                         [](const auto& endpoint) {
                           return std::string(endpoint.param).find("HTTPS") == std::string::npos
                                      ? "Plain"
                                      : "Tls";
                         });

}  // namespace
}  // namespace headrace::contract
