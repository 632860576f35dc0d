// What each driver does when a server redirects, lists without end, or loses the answer to the end
// of an upload.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "headrace/environment.h"
#include "headrace/memory.h"
#include "headrace/store.h"
#include "store/transfer/scripted_server.h"

namespace headrace {
namespace {

using testing::HasSubstr;
using transfer::Peer;
using transfer::ScriptedServer;
using transfer::SeenRequest;

class DriversFaultTest : public testing::Test {
 protected:
  std::unique_ptr<Store> open(const std::string& url, const std::string& trusted = {}) const {
    StoreOptions options;
    const std::string endpoint = "http://127.0.0.1:" + std::to_string(server_->port());
    options.url = url;
    if (url.starts_with("/")) {
      options.url = endpoint + url;
    } else {
      options.endpoint = endpoint;
    }
    options.anonymous = url.starts_with("gs:");
    options.trusted_hosts = trusted;
    options.default_timeout = std::chrono::seconds(60);
    Environment environment;
    environment.variables = {{"AWS_ACCESS_KEY_ID", "AKIDSECRET"},
                             {"AWS_SECRET_ACCESS_KEY", "secret"},
                             {"AWS_SESSION_TOKEN", "SESSIONTOKEN"},
                             {"AZURE_STORAGE_KEY", "c2VjcmV0"}};
    auto store = open_store(options, environment);
    EXPECT_TRUE(store) << store.error().message();
    return store ? *std::move(store) : nullptr;
  }
  void serve(ScriptedServer::Script script) {
    server_ = std::make_unique<ScriptedServer>(std::move(script));
  }
  static std::string with_body(int status, const std::string& body, const std::string& more = {}) {
    return ScriptedServer::head(status, body.size(), more) + body;
  }

  static std::string upload_begun() {
    return with_body(200,
                     "<InitiateMultipartUploadResult><UploadId>u</UploadId>"
                     "</InitiateMultipartUploadResult>");
  }

  std::unique_ptr<ScriptedServer> server_;
};

// --- redirects ---

/// What another server is told that requests for it were redirected to.
class RedirectTest : public DriversFaultTest {
 protected:
  void TearDown() override {
    server_->stop();
    other_->stop();
  }
  /// Redirects all requests to http://localhost, which is not where they went: 127.0.0.1.
  Status get_by_redirect(const std::string& url, const std::string& trusted = {}) {
    // Threads of an earlier round read what is replaced here.
    if (server_) TearDown();
    other_ = std::make_unique<ScriptedServer>([this](const SeenRequest& request, Peer& peer) {
      heads_ += request.head;
      other_->answer(request, peer);
    });
    serve([this](const SeenRequest& request, Peer& peer) {
      const std::size_t begin = request.head.find(' ') + 1;
      const std::string target = request.head.substr(begin, request.head.find(' ', begin) - begin);
      peer.send(ScriptedServer::head(
          307, 0,
          "Location: http://localhost:" + std::to_string(other_->port()) + target + "\r\n"));
    });
    const auto store = open(url, trusted);
    auto pool = *SlabPool::create({});
    return read_object(*store, *pool, "key", 2 << 20).has_value()
               ? Status()
               : read_object(*store, *pool, "key", 2 << 20).error().clone();
  }
  std::unique_ptr<ScriptedServer> other_;
  std::string heads_;
};

TEST_F(RedirectTest, S3SendsNothingToAnotherHost) {
  const Status status = get_by_redirect("s3://bucket");
  EXPECT_EQ(status.code(), Code::kDenied);
  EXPECT_THAT(std::string(status.message()), HasSubstr("trusted_hosts"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("localhost:"));
  EXPECT_EQ(other_->request_count(), 0U);
}

TEST_F(RedirectTest, S3SignsForAHostThatIsNamed) {
  const Status status = get_by_redirect("s3://bucket", "node1,localhost");
  EXPECT_TRUE(status.ok()) << status.message();
  other_->stop();
  EXPECT_THAT(heads_, HasSubstr("AKIDSECRET"));
  EXPECT_THAT(heads_, HasSubstr("SESSIONTOKEN"));
}

TEST_F(RedirectTest, AzureAndGoogleFollowNobody) {
  for (const char* url : {"az://account/bucket", "gs://bucket"}) {
    EXPECT_FALSE(get_by_redirect(url).ok());
    EXPECT_EQ(other_->request_count(), 0U);
  }
}

TEST_F(RedirectTest, AWebServersSignatureStaysThere) {
  const Status status = get_by_redirect("/data?v=1&sig=HUNTER2");
  EXPECT_EQ(status.code(), Code::kDenied);
  EXPECT_THAT(std::string(status.message()), testing::Not(HasSubstr("HUNTER2")));
  EXPECT_EQ(other_->request_count(), 0U);
  EXPECT_TRUE(get_by_redirect("/data?v=1").ok());
  other_->stop();
  EXPECT_THAT(heads_, HasSubstr("/data/key?v=1"));
}

// --- lists ---

TEST_F(DriversFaultTest, AListThatRepeatsItsTokenIsAnError) {
  std::atomic<int> cycle{1};
  std::atomic<int> page{0};
  serve([&](const SeenRequest& request, Peer& peer) {
    const bool is_azure = request.head.find("comp=list") != std::string::npos;
    const std::string token = "t" + std::to_string(page++ % cycle);
    peer.send(with_body(
        200, is_azure ? "<EnumerationResults><Blobs/><NextMarker>" + token +
                            "</NextMarker></EnumerationResults>"
                      : "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>" +
                            token + "</NextContinuationToken></ListBucketResult>"));
  });
  for (const char* url : {"s3://bucket", "gs://bucket", "az://account/bucket"}) {
    SCOPED_TRACE(url);
    const auto store = open(url);
    cycle = 1;
    auto first = store->list({});
    ASSERT_TRUE(first) << first.error().message();
    ListRequest next;
    next.continuation = first->continuation;
    const auto second = store->list(next);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code(), Code::kCorrupt);
    EXPECT_THAT(std::string(second.error().message()), HasSubstr("LIST "));
    EXPECT_THAT(std::string(second.error().message()), HasSubstr("twice at the same place"));
    for (const int length : {1, 2, 5}) {
      cycle = length;
      EXPECT_EQ(list_all(*store, "").error().code(), Code::kCorrupt);
    }
  }
  server_->stop();
}

TEST_F(DriversFaultTest, AnEmulatorsPagesAreReadToTheEnd) {
  serve([](const SeenRequest& request, Peer& peer) {
    const auto page = [](const std::string& name, const std::string& more) {
      return with_body(200, R"({"items":[{"name":")" + name +
                                R"(","size":"1","generation":"1700000000000001"}])" + more + "}");
    };
    const bool is_second = request.head.find("pageToken=second") != std::string::npos;
    peer.send(is_second ? page("b", "") : page("a", R"(,"nextPageToken":"second")"));
  });
  StoreOptions options;
  options.url = "gs://bucket";
  Environment environment;
  environment.variables = {
      {"STORAGE_EMULATOR_HOST", "127.0.0.1:" + std::to_string(server_->port())}};
  const auto store = *open_store(options, environment);
  auto all = list_all(*store, "");
  ASSERT_TRUE(all) << all.error().message();
  ASSERT_EQ(all->size(), 2U);
  EXPECT_EQ((*all)[1].key, "b");
  server_->stop();
}

// --- what is there ---

TEST_F(DriversFaultTest, RemovingFromABucketThatIsNotThereIsAnError) {
  serve([](const SeenRequest& request, Peer& peer) {
    const bool is_first = request.head.find("/first ") != std::string::npos;
    const std::string code = is_first ? "NoSuchKey" : "NoSuchBucket";
    peer.send(with_body(404, "<Error><Code>" + code + "</Code></Error>"));
  });
  const auto store = open("s3://bucket");
  EXPECT_TRUE(store->remove("first").ok()) << "gone is what was wanted";
  EXPECT_EQ(store->remove("key").code(), Code::kNotFound);
  server_->stop();
}

TEST_F(DriversFaultTest, AWebServersHeadTellsTheSize) {
  serve([](const SeenRequest& request, Peer& peer) {
    const bool is_head = request.head.starts_with("HEAD ");
    peer.send(is_head ? ScriptedServer::head(200, 10) : with_body(200, "0123456789"));
  });
  const auto store = open("/data");
  auto info = store->head("key");
  ASSERT_TRUE(info) << info.error().message();
  EXPECT_EQ(info->size_bytes, 10U);
  EXPECT_EQ(server_->request_count(), 1U);
  server_->stop();
}

TEST_F(DriversFaultTest, AVeryLargeObjectIsCopiedInPartsEachOnce) {
  constexpr std::uint64_t kBytes = std::uint64_t{6} << 30;
  Mutex mutex;
  std::multiset<std::string> ranges;
  serve([&](const SeenRequest& request, Peer& peer) {
    const auto has = [&](const char* text) { return request.head.find(text) != std::string::npos; };
    if (request.head.starts_with("HEAD "))
      return peer.send(ScriptedServer::head(200, kBytes, "ETag: \"a\"\r\n"));
    if (request.head.starts_with("POST ") && has("uploads=")) return peer.send(upload_begun());
    if (request.head.starts_with("PUT ") && has("partNumber=")) {
      const std::size_t begin = request.head.find("bytes=") + 6;
      MutexLock lock(mutex);
      ranges.insert(request.head.substr(begin, request.head.find('\r', begin) - begin));
      return peer.send(with_body(200, "<CopyPartResult><ETag>\"p\"</ETag></CopyPartResult>"));
    }
    if (request.head.starts_with("POST "))
      return peer.send(with_body(200,
                                 "<CompleteMultipartUploadResult><ETag>\"b\"</ETag>"
                                 "</CompleteMultipartUploadResult>"));
    peer.send(with_body(400, "<Error><Code>InvalidRequest</Code></Error>"));
  });
  const auto store = open("s3://bucket");
  const auto copied = store->copy("from", "to");
  ASSERT_TRUE(copied) << copied.error().message();
  server_->stop();
  std::uint64_t sum = 0;
  for (const std::string& range : ranges) {
    const std::uint64_t begin = std::stoull(range);
    sum += std::stoull(range.substr(range.find('-') + 1)) + 1 - begin;
  }
  EXPECT_EQ(sum, kBytes);
  EXPECT_EQ(std::set<std::string>(ranges.begin(), ranges.end()).size(), ranges.size());
}

// --- the end of an upload ---

class LostCompleteTest : public DriversFaultTest {
 protected:
  /// Completes an upload of two parts whose answer is lost; afterwards it is gone, and the object
  /// has `etag` and `more` after `looks` HEADs.
  Result<ObjectInfo> complete(const std::string& etag, const std::string& more = {},
                              int looks = 0) {
    completes_ = heads_ = 0;
    serve([=, this](const SeenRequest& request, Peer& peer) {
      if (request.head.starts_with("POST ")) {
        if (completes_++ == 0) return peer.reset();
        return peer.send(with_body(404, "<Error><Code>NoSuchUpload</Code></Error>"));
      }
      if (heads_++ < looks) return peer.send(ScriptedServer::head(404, 0));
      peer.send(ScriptedServer::head(200, 10, "ETag: " + etag + "\r\n" + more));
    });
    const auto store = open("s3://bucket");
    const std::vector<UploadedPart> parts = {
        {1, "\"900150983cd24fb0d6963f7d28e17f72\"", 5, "AAAAAA=="},
        {2, "\"d41d8cd98f00b204e9800998ecf8427e\"", 5, "AAAAAA=="}};
    CallOptions call;
    call.deadline = system_clock().now() + std::chrono::seconds(2);
    auto done = store->complete_upload("key", "upload", parts, call);
    server_->stop();
    return done;
  }
  static constexpr const char* kETag = "\"fdf1fdf1567f6942ffe1743f1e72301e-2\"";  // MD5 of both
  static constexpr const char* kSum = "x-amz-checksum-crc32c: jCiyig==-2\r\n";    // of 8 zeros
  std::atomic<int> completes_{0};
  std::atomic<int> heads_{0};
};

TEST_F(LostCompleteTest, TheObjectsSumOfSumsTellsThatItIsWhole) {
  auto done = complete("\"opaque\"", kSum);
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_EQ(done->size_bytes, 10U);
  EXPECT_EQ(completes_, 1) << "it looks before it asks again";
}

TEST_F(LostCompleteTest, SoDoesItsETag) {
  auto done = complete(kETag);
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_EQ(done->etag, kETag);
}

TEST_F(LostCompleteTest, AnObjectThatAppearsLateIsWaitedFor) {
  auto done = complete("\"opaque\"", kSum, 2);
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_EQ(completes_, 2);
}

TEST_F(LostCompleteTest, AnotherObjectOfTheSameSizeIsNoProof) {
  auto done = complete("\"opaque\"", "x-amz-checksum-crc32c: AAAAAA==-2\r\n");
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code(), Code::kNotFound);
  EXPECT_THAT(std::string(done.error().message()), HasSubstr("NoSuchUpload"));
  EXPECT_THAT(std::string(done.error().message()), HasSubstr("may have completed it"));
}

// --- deletions ---

TEST_F(DriversFaultTest, KeysThatXmlCannotHoldAreDeletedOneByOne) {
  for (const char* url : {"s3://bucket", "gs://bucket"}) {
    std::vector<std::string> asked;
    serve([&](const SeenRequest& request, Peer& peer) {
      asked.push_back(request.head.substr(0, request.head.find(" HTTP/")));
      if (!request.head.starts_with("POST")) return peer.send(ScriptedServer::head(204, 0));
      asked.push_back(request.body.substr(request.body.find("<Object>")));
      peer.send(with_body(200, "<DeleteResult/>"));
    });
    const std::string keys[] = {"a", "b\x01"};
    for (const Status& status : open(url)->remove_many(keys))
      EXPECT_TRUE(status.ok()) << status.message();
    server_->stop();
    EXPECT_THAT(asked, testing::UnorderedElementsAre("DELETE /bucket/b%01",
                                                     testing::StartsWith("POST /bucket"),
                                                     "<Object><Key>a</Key></Object></Delete>"))
        << url;
  }
}

TEST_F(DriversFaultTest, AFailureOfAKeyThatNobodyNamedIsOneOfTheWholeBatch) {
  for (const char* url : {"s3://bucket", "gs://bucket"}) {
    serve([](const SeenRequest&, Peer& peer) {
      peer.send(with_body(200,
                          "<DeleteResult><Error><Key>A</Key><Code>AccessDenied</Code></Error>"
                          "</DeleteResult>"));
    });
    const std::string keys[] = {"a", "b"};
    for (const Status& status : open(url)->remove_many(keys))
      EXPECT_EQ(status.code(), Code::kCorrupt) << url << ": " << status.message();
    server_->stop();
  }
}

TEST_F(DriversFaultTest, AKeyThatIsNamedTwiceFailsTwice) {
  for (const char* url : {"s3://bucket", "gs://bucket"}) {
    serve([](const SeenRequest&, Peer& peer) {
      peer.send(with_body(200,
                          "<DeleteResult><Error><Key>a</Key><Code>AccessDenied</Code></Error>"
                          "</DeleteResult>"));
    });
    const std::string keys[] = {"a", "b", "a"};
    const std::vector<Status> outcomes = open(url)->remove_many(keys);
    server_->stop();
    EXPECT_EQ(outcomes[0].code(), Code::kDenied) << url;
    EXPECT_TRUE(outcomes[1].ok()) << url;
    EXPECT_EQ(outcomes[2].code(), Code::kDenied) << url;
  }
}

TEST_F(DriversFaultTest, WhoMayOnlyWriteHearsWhatTheAnswerTells) {
  for (const auto& [url, version] :
       {std::pair("s3://bucket", "\"e\""), std::pair("gs://bucket", "7")}) {
    serve([](const SeenRequest& request, Peer& peer) {
      if (request.head.starts_with("HEAD ")) return peer.send(with_body(403, ""));
      peer.send(with_body(200,
                          "<CompleteMultipartUploadResult><ETag>\"e\"</ETag>"
                          "</CompleteMultipartUploadResult>",
                          "x-goog-generation: 7\r\n"));
    });
    const UploadedPart parts[] = {
        {.part_number = 1, .etag = "\"p\"", .size_bytes = 10, .checksum = {}},
        {.part_number = 2, .etag = "\"q\"", .size_bytes = 5, .checksum = {}}};
    auto done = open(url)->complete_upload("key", "upload", parts);
    server_->stop();
    ASSERT_TRUE(done) << url << ": " << done.error().message();
    EXPECT_EQ(done->size_bytes, 15U) << url;
    EXPECT_EQ(done->etag, version) << url;
  }
}

// --- copies ---

/// A server whose copies take longer than anything else may: two seconds.
class SlowCopyTest : public DriversFaultTest {
 protected:
  std::unique_ptr<Store> open_hasty() const {
    StoreOptions options;
    options.url = "s3://bucket";
    options.endpoint = "http://127.0.0.1:" + std::to_string(server_->port());
    options.first_byte_timeout = options.progress_timeout = std::chrono::milliseconds(400);
    options.default_timeout = std::chrono::seconds(5);
    Environment environment;
    environment.variables = {{"AWS_ACCESS_KEY_ID", "AKID"}, {"AWS_SECRET_ACCESS_KEY", "secret"}};
    return *open_store(options, environment);
  }
  /// An answer to a PUT: with blanks before its end, or with nothing.
  static void copy_slowly(Peer& peer, const std::string& body, bool has_blanks) {
    constexpr int kBlanks = 40;
    if (has_blanks) peer.send(ScriptedServer::head(200, body.size() + kBlanks));
    for (int i = 0; i < kBlanks; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (has_blanks) peer.send(" ");
    }
    peer.send(has_blanks ? body : with_body(200, body));
  }
  std::atomic<int> puts_{0};
};

TEST_F(SlowCopyTest, IsWaitedFor) {
  for (const bool has_blanks : {false, true}) {
    puts_ = 0;
    serve([&](const SeenRequest& request, Peer& peer) {
      if (request.head.starts_with("HEAD "))
        return peer.send(ScriptedServer::head(200, 10, "ETag: \"a\"\r\n"));
      ++puts_;
      copy_slowly(peer, "<CopyObjectResult><ETag>\"a\"</ETag></CopyObjectResult>", has_blanks);
    });
    const auto copied = open_hasty()->copy("from", "to");
    EXPECT_TRUE(copied) << copied.error().message();
    EXPECT_EQ(puts_, 1) << has_blanks;
    server_->stop();
  }
}

TEST_F(SlowCopyTest, SoArePartsOfOne) {
  for (const bool has_blanks : {false, true}) {
    puts_ = 0;
    serve([&](const SeenRequest& request, Peer& peer) {
      if (request.head.starts_with("HEAD "))
        return peer.send(ScriptedServer::head(200, std::uint64_t{600} << 20, "ETag: \"a\"\r\n"));
      if (request.head.find("uploads=") != std::string::npos) return peer.send(upload_begun());
      if (request.head.starts_with("POST "))
        return peer.send(with_body(200,
                                   "<CompleteMultipartUploadResult><ETag>\"b\"</ETag>"
                                   "</CompleteMultipartUploadResult>"));
      if (request.head.starts_with("GET ")) return peer.send(with_body(404, ""));
      ++puts_;
      copy_slowly(peer, "<CopyPartResult><ETag>\"p\"</ETag></CopyPartResult>", has_blanks);
    });
    const auto moved = open_hasty()->set_storage_class("key", "STANDARD_IA");
    EXPECT_TRUE(moved) << moved.error().message();
    EXPECT_EQ(puts_, 2) << has_blanks;
    server_->stop();
  }
}

TEST_F(SlowCopyTest, OneThatIsStoppedLeavesNoUpload) {
  std::stop_source stop;
  std::atomic<int> aborts{0};
  serve([&](const SeenRequest& request, Peer& peer) {
    if (request.head.starts_with("HEAD "))
      return peer.send(ScriptedServer::head(200, std::uint64_t{600} << 20, "ETag: \"a\"\r\n"));
    if (request.head.find("uploads=") != std::string::npos) return peer.send(upload_begun());
    if (request.head.starts_with("DELETE ")) {
      ++aborts;
      return peer.send(with_body(200, ""));
    }
    stop.request_stop();
    peer.wait_for_client_to_leave();
  });
  const auto moved =
      open_hasty()->set_storage_class("key", "STANDARD_IA", {.stop = stop.get_token()});
  server_->stop();  // A script may only begin now, and uses what ends with this function.
  EXPECT_EQ(moved.error().code(), Code::kCancelled);
  EXPECT_EQ(aborts, 1);
}

/// Moves an object of 600 MiB, in two parts, to another storage class.
class TaggedCopyTest : public DriversFaultTest {
 protected:
  /// `more`: of the answers to HEAD; `tags`: the answer to GET ?tagging.
  Result<ObjectInfo> move_with(const std::string& more, const std::string& tags) {
    created_.clear();
    serve([=, this](const SeenRequest& request, Peer& peer) {
      const auto has = [&](const char* text) {
        return request.head.find(text) != std::string::npos;
      };
      if (request.head.starts_with("HEAD "))
        return peer.send(
            ScriptedServer::head(200, std::uint64_t{600} << 20, "ETag: \"a\"\r\n" + more));
      if (request.head.starts_with("GET "))
        return peer.send(has("?tagging=") ? tags : with_body(404, ""));
      if (has("uploads=")) {
        created_ = request.head;
        return peer.send(upload_begun());
      }
      peer.send(with_body(200, request.head.starts_with("PUT ")
                                   ? "<CopyPartResult><ETag>\"p\"</ETag></CopyPartResult>"
                                   : "<CompleteMultipartUploadResult><ETag>\"b\"</ETag>"
                                     "</CompleteMultipartUploadResult>"));
    });
    auto moved = open("s3://bucket")->set_storage_class("key", "STANDARD_IA");
    server_->stop();
    return moved;
  }
  std::string created_;
};

TEST_F(TaggedCopyTest, TheTagsGoWithTheObject) {
  const auto moved =
      move_with("x-amz-tagging-count: 2\r\n",
                with_body(200,
                          "<Tagging><TagSet><Tag><Key>a b</Key><Value>1&amp;2</Value>"
                          "</Tag><Tag><Key>c</Key><Value/></Tag></TagSet></Tagging>"));
  ASSERT_TRUE(moved) << moved.error().message();
  EXPECT_THAT(created_, HasSubstr("\r\nx-amz-tagging: a%20b=1%262&c=\r\n"));
}

TEST_F(TaggedCopyTest, TagsThatMayNotBeReadAreNotLost) {
  const auto moved = move_with("x-amz-tagging-count: 2\r\n",
                               with_body(403, "<Error><Code>AccessDenied</Code></Error>"));
  ASSERT_FALSE(moved);
  EXPECT_EQ(moved.error().code(), Code::kUnsupported);
  EXPECT_THAT(std::string(moved.error().message()), HasSubstr("lose the object's tags"));
  EXPECT_EQ(created_, "");
}

TEST_F(TaggedCopyTest, WithoutTagsNobodyAsksForThem) {
  const auto moved = move_with("", with_body(500, ""));
  ASSERT_TRUE(moved) << moved.error().message();
  EXPECT_EQ(created_.find("x-amz-tagging"), std::string::npos);
}

// --- packed answers ---

TEST_F(DriversFaultTest, AWebServerThatPacksItsAnswersIsRefused) {
  for (const int status : {200, 206}) {
    serve([status](const SeenRequest& request, Peer& peer) {
      const std::string range = status == 206 ? "Content-Range: bytes 0-9/10\r\n" : "";
      peer.send(ScriptedServer::head(status, 10, range + "Content-Encoding: gzip\r\n") +
                (request.head.starts_with("HEAD ") ? "" : "0123456789"));
    });
    const auto store = open("/data");
    EXPECT_EQ(store->head("key").error().code(), Code::kUnsupported);
    auto pool = *SlabPool::create({});
    const auto bytes = read_object(*store, *pool, "key", 10);
    ASSERT_FALSE(bytes) << status;
    EXPECT_EQ(bytes.error().code(), Code::kUnsupported);
    EXPECT_THAT(std::string(bytes.error().message()), HasSubstr("Content-Encoding"));
    server_->stop();
  }
}

TEST_F(DriversFaultTest, ObjectsThatAreStoredPackedAreReadAsTheyAre) {
  for (const char* url : {"s3://bucket", "gs://bucket"}) {
    serve([](const SeenRequest&, Peer& peer) {
      peer.send(ScriptedServer::head(206, 10,
                                     "Content-Range: bytes 0-9/10\r\nETag: \"a\"\r\n"
                                     "x-goog-generation: 1\r\nContent-Encoding: gzip\r\n") +
                "0123456789");
    });
    auto pool = *SlabPool::create({});
    const auto bytes = read_object(*open(url), *pool, "key", 10);
    EXPECT_TRUE(bytes) << url << ": " << bytes.error().message();
    server_->stop();
  }
}

}  // namespace
}  // namespace headrace
