#include "store/hf/hf_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/manual_clock.h"
#include "http/test_heads.h"
#include "store/hf/hf_errors.h"
#include "store/vendor/error_table_checks.h"
#include "store/vendor/protocol_checks.h"

namespace headrace::hf {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using vendor::get_of;

constexpr std::chrono::sys_seconds kNow{std::chrono::seconds(1'549'011'600)};
const std::string kSha(40, 'c');

/// Answers every request with the same.
class OneAnswer final : public auth::WebClient {
 public:
  explicit OneAnswer(auth::WebAnswer answer) : answer_(std::move(answer)) {}
  Result<auth::WebAnswer> fetch(const auth::WebRequest& request, std::stop_token) override {
    asked = request;
    return answer_;
  }
  auth::WebRequest asked;

 private:
  const auth::WebAnswer answer_;
};

class HfProtocolTest : public testing::Test {
 protected:
  void SetUp() override { make("hf://datasets/o/n@v1/folder"); }
  void make(const std::string& url, int status = 200, const std::string& body = {}) {
    environment_.variables = {{"HF_TOKEN", "hf_token"}};
    auto config = make_hf_config(options_, *parse_store_url(url), environment_,
                                 [](const std::string&) { return std::nullopt; });
    ASSERT_TRUE(config) << config.error().message();
    web_ = std::make_shared<OneAnswer>(
        auth::WebAnswer{status, {}, body.empty() ? "{\"sha\":\"" + kSha + "\"}" : body});
    protocol_ = std::make_unique<HfProtocol>(*std::move(config), web_, clock_);
  }
  /// Of a read; waits until the revision is known.
  Result<std::string> head_of(const Request& request, const HttpRedirect* redirect = nullptr) {
    while (true) {
      std::string text;
      Status status = protocol_->append_head(request, {kNow, redirect}, text);
      if (status.ok()) return text;
      if (status.code() != Code::kUnavailable) return status;
      std::this_thread::yield();
    }
  }

  StoreOptions options_;
  Environment environment_;
  ManualClock clock_;
  std::shared_ptr<OneAnswer> web_;
  std::unique_ptr<HfProtocol> protocol_;
  const HttpRedirect storage_{{"cdn", 443, true}, "cdn", "/x%2Fy?Signature=abc"};
};

TEST_F(HfProtocolTest, ReadsThePathAtTheCommit) {
  const auto head = head_of(get_of("a b/c%"));
  ASSERT_TRUE(head) << head.error().message();
  EXPECT_EQ(*head, "GET /datasets/o/n/resolve/" + kSha +
                       "/folder/a%20b/c%25 HTTP/1.1\r\nhost: huggingface.co\r\n"
                       "accept-encoding: identity\r\nauthorization: Bearer hf_token\r\n"
                       "range: bytes=100-149\r\nuser-agent: headrace/0.1\r\n\r\n");
  EXPECT_EQ(web_->asked.url, "https://huggingface.co/api/datasets/o/n/revision/v1?expand=sha");
}

TEST_F(HfProtocolTest, RefusesWhatTheHubDoesNotHave) {
  Request request = get_of("k");
  request.version_id = "v1";
  EXPECT_EQ(head_of(request).error().code(), Code::kUnsupported);
  request = get_of("k");
  request.op = Op::kPut;
  EXPECT_EQ(head_of(request).error().code(), Code::kUnsupported);
  EXPECT_EQ(head_of(get_of("a/../k")).error().code(), Code::kInvalidArgument);
}

TEST_F(HfProtocolTest, CallsNameTheCommitToo) {
  ASSERT_TRUE(head_of(get_of("k")));
  HttpCall call;
  call.path = "tree/a b";
  call.query = {{"recursive", "true"}, {"cursor", "x="}};
  std::string text;
  ASSERT_TRUE(protocol_->append_head(call, {kNow, nullptr}, text).ok());
  EXPECT_THAT(text, StartsWith("GET /api/datasets/o/n/tree/" + kSha +
                               "/a%20b?recursive=true&cursor=x%3D HTTP/1.1\r\n"));
  call = {};
  call.method = "POST";
  call.path = "paths-info";
  call.body = "{}";
  text.clear();
  ASSERT_TRUE(protocol_->append_head(call, {kNow, nullptr}, text).ok());
  EXPECT_THAT(text, StartsWith("POST /api/datasets/o/n/paths-info/" + kSha + " HTTP/1.1\r\n"));
  EXPECT_THAT(text, HasSubstr("\r\ncontent-length: 2\r\n"));
}

TEST_F(HfProtocolTest, TheTokenStaysWithTheHub) {
  const auto with_token = [this](const HttpRedirect& to) {
    return head_of(get_of("k"), &to)->find("hf_token") != std::string::npos;
  };
  EXPECT_THAT(*head_of(get_of("k"), &storage_),
              StartsWith("GET /x%2Fy?Signature=abc HTTP/1.1\r\nhost: cdn\r\n"));
  EXPECT_FALSE(with_token(storage_));
  // A name below the hub's is still another server; another port as well.
  EXPECT_FALSE(with_token({{"cdn.huggingface.co", 443, true}, "cdn.huggingface.co", "/"}));
  EXPECT_FALSE(with_token({{"huggingface.co", 8443, true}, "huggingface.co:8443", "/"}));
  EXPECT_TRUE(with_token({{"huggingface.co", 443, true}, "huggingface.co", "/"}));
  options_.trusted_hosts = "cdn";
  make("hf://datasets/o/n");
  EXPECT_TRUE(with_token(storage_));
}

TEST_F(HfProtocolTest, ARedirectThatNamesAnotherVersionIsAChange) {
  const std::string text =
      "HTTP/1.1 302 Found\r\nx-linked-etag: \"v2\"\r\nx-repo-commit: c\r\ncontent-length: "
      "0\r\n\r\n";
  EXPECT_EQ(
      protocol_->judge_redirect(get_of("k", "\"v1\""), http::response_head(text), storage_).code(),
      Code::kChanged);
  EXPECT_EQ(protocol_->known_redirect(get_of("k")), nullptr);
  EXPECT_TRUE(
      protocol_->judge_redirect(get_of("k", "\"v2\""), http::response_head(text), storage_).ok());
  ASSERT_NE(protocol_->known_redirect(get_of("k")), nullptr);
  EXPECT_EQ(protocol_->known_redirect(get_of("k"))->target, storage_.target);
  EXPECT_NE(protocol_->known_redirect(get_of("k", "\"v2\"")), nullptr);
  EXPECT_EQ(protocol_->known_redirect(get_of("k", "\"v1\"")), nullptr);
  EXPECT_EQ(protocol_->known_redirect(get_of("l")), nullptr);
}

TEST_F(HfProtocolTest, LinksAreForgottenInTimeAndWhenTheyAreRefused) {
  const std::string text = "HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n";
  const auto learn = [&] {
    ASSERT_TRUE(protocol_->judge_redirect(get_of("k"), http::response_head(text), storage_).ok());
    ASSERT_NE(protocol_->known_redirect(get_of("k")), nullptr);
  };
  learn();
  clock_.advance(HfLinks::kLife);
  EXPECT_EQ(protocol_->known_redirect(get_of("k")), nullptr);
  learn();
  const std::string refused = "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n";
  const Request request = get_of("k");
  const Status status = protocol_->redirected_error({"GET x", storage_, &request},
                                                    http::response_head(refused), "<Error>");
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_EQ(status.message(),
            "GET x: cdn refuses the hub's link, which may have expired (HTTP 403)");
  EXPECT_EQ(protocol_->known_redirect(get_of("k")), nullptr);
}

TEST_F(HfProtocolTest, VersionsAreThoseOfTheHub) {
  const std::string hub =
      "HTTP/1.1 200 OK\r\netag: W/\"git\"\r\nx-repo-commit: c\r\ncontent-length: 0\r\n\r\n";
  EXPECT_EQ(protocol_->version_of(get_of("k"), http::response_head(hub)), "\"git\"");
  const std::string storage = "HTTP/1.1 200 OK\r\netag: \"md5\"\r\ncontent-length: 0\r\n\r\n";
  EXPECT_EQ(protocol_->version_of(get_of("k"), http::response_head(storage)), "");
}

TEST_F(HfProtocolTest, ARevisionThatIsNotThereIsTheErrorOfEveryRequest) {
  make("hf://datasets/o/n@v1", 404, "{}");
  const auto failed = head_of(get_of("k"));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), Code::kNotFound);
  EXPECT_THAT(std::string(failed.error().message()), HasSubstr("REVISION hf://datasets/o/n@v1"));
  for (const char* nonsense : {"[]", "{\"sha\":1}", "{\"sha\":\"main\"}", "no"}) {
    make("hf://datasets/o/n", 200, nonsense);
    EXPECT_EQ(head_of(get_of("k")).error().code(), Code::kCorrupt) << nonsense;
  }
}

// --- errors ---

TEST(HfErrors, EveryRow) {
  vendor::expect_no_row_twice(error_table());
  HfConfig config;
  config.token = "hf_secret";
  config.token_source = "HF_TOKEN";
  for (const vendor::ErrorRow& row : error_table()) {
    const Status status = hub_error(config, "GET x", row.http_status, row.vendor_code, "words");
    vendor::expect_row(row, status, "GET x");
    EXPECT_THAT(std::string(status.message()), HasSubstr("the hub says: words"));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("secret")));
  }
  EXPECT_EQ(hub_error(config, "GET x", 500, {}, {}).code(), Code::kUnavailable);
}

TEST(HfErrors, SayWhatToDoAboutTheToken) {
  HfConfig config;
  config.page_url = "https://huggingface.co/datasets/o/n";
  config.token_source = "anonymous";
  const auto said = [&config](int status, const char* code) {
    return std::string(hub_error(config, "GET x", status, code, {}).message());
  };
  EXPECT_THAT(said(401, "RepoNotFound"), HasSubstr("no token is used: set HF_TOKEN"));
  EXPECT_EQ(hub_error(config, "GET x", 401, "RepoNotFound", {}).code(), Code::kDenied);
  EXPECT_THAT(said(401, "GatedRepo"),
              HasSubstr("on its page; https://huggingface.co/datasets/o/n and "));
  config.token = "t";
  config.token_source = "HF_TOKEN";
  EXPECT_THAT(said(404, "RepoNotFound"), HasSubstr("the token is from HF_TOKEN"));
  EXPECT_THAT(said(404, "EntryNotFound"), Not(HasSubstr("token")));
}

TEST(HfErrors, OfTheStorage) {
  const auto code = [](int status) { return storage_error("GET x", "cdn", status).code(); };
  EXPECT_EQ(code(403), Code::kUnavailable);
  EXPECT_EQ(code(410), Code::kUnavailable);
  EXPECT_EQ(code(404), Code::kNotFound);
  EXPECT_EQ(code(416), Code::kCorrupt);
  EXPECT_EQ(code(429), Code::kThrottled);
  EXPECT_EQ(code(502), Code::kUnavailable);
  EXPECT_EQ(code(418), Code::kInvalidArgument);
  EXPECT_EQ(code(304), Code::kCorrupt);
}

}  // namespace
}  // namespace headrace::hf
