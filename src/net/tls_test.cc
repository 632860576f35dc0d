#include "net/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/temporary_directory.h"
#include "net/tls_test_peer.h"

namespace headrace {
namespace {

using testing::HasSubstr;

struct ContextDeleter {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using ServerContext = std::unique_ptr<SSL_CTX, ContextDeleter>;

const TestAuthority& authority() {
  static const TestAuthority made;
  return made;
}

ServerContext server_context(const TestAuthority::Leaf& leaf = {}) {
  return ServerContext(authority().server_context(leaf));
}

class TlsTest : public testing::Test {
 protected:
  TlsTest() {
    std::ofstream(ca_path_) << authority().pem();
    context_ = *TlsContext::create({true, {ca_path_}});
  }
  /// Moves bytes between both, `piece_bytes` at a time towards the client, until nothing moves.
  Status shake_hands(TlsSession& client, TlsTestPeer& server, std::size_t piece_bytes = 1 << 20) {
    for (int round = 0; round < 10; ++round) {
      if (round == 0) {
        if (auto begun = client.handshake({}); !begun) return std::move(begun).error();
      }
      server.feed(client.output());
      client.output().clear();
      server.handshake();
      for (const std::byte byte : server.take()) incoming_.push_back(byte);
      std::size_t given = 0;
      while (given < incoming_.size() && !client.is_established()) {
        const std::size_t bytes = std::min(piece_bytes, incoming_.size() - given);
        auto taken = client.handshake(std::span(incoming_).subspan(given, bytes));
        if (!taken) return std::move(taken).error();
        given += *taken;
      }
      incoming_.erase(incoming_.begin(), incoming_.begin() + static_cast<std::ptrdiff_t>(given));
    }
    return client.is_established() ? Status() : Status(Code::kInternal, "no end");
  }
  std::unique_ptr<TlsSession> client(const std::string& host = "localhost",
                                     TlsResumption* resumption = nullptr) {
    return *TlsSession::create(context_, host, resumption);
  }
  Status connect(TlsSession& client, TlsTestPeer& server) { return shake_hands(client, server); }

  /// All that `cipher` opens to, given `piece_bytes` at a time, into an `out_bytes` buffer.
  Result<std::string> open_all(TlsSession& client, const std::vector<std::byte>& cipher,
                               std::size_t piece_bytes, std::size_t out_bytes) {
    std::string text;
    std::vector<std::byte> out(out_bytes);
    for (std::size_t begin = 0; begin < cipher.size() || client.surplus_bytes() > 0;) {
      const std::size_t bytes = std::min(piece_bytes, cipher.size() - begin);
      incoming_.insert(incoming_.end(), cipher.begin() + static_cast<std::ptrdiff_t>(begin),
                       cipher.begin() + static_cast<std::ptrdiff_t>(begin + bytes));
      begin += bytes;
      for (;;) {
        auto opened = client.decrypt(incoming_, out);
        if (!opened) return std::move(opened).error();
        incoming_.erase(incoming_.begin(),
                        incoming_.begin() + static_cast<std::ptrdiff_t>(opened->consumed_bytes));
        text.append(reinterpret_cast<const char*>(out.data()), opened->produced_bytes);
        is_end_ = is_end_ || opened->is_end;
        if (opened->produced_bytes == 0) break;
      }
    }
    return text;
  }

  TemporaryDirectory directory_;
  const std::string ca_path_ = directory_.path() + "/ca.pem";
  std::shared_ptr<TlsContext> context_;
  std::vector<std::byte> incoming_;
  bool is_end_ = false;
};

std::string pattern(std::size_t bytes) {
  std::string text(bytes, ' ');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 31 + (i >> 9));
  return text;
}

std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// --- handshake ---

TEST_F(TlsTest, ShakesHandsWithOneByteAtATime) {
  const ServerContext context = server_context();
  TlsTestPeer server(context.get());
  const auto session = client();
  const Status status = shake_hands(*session, server, 1);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(session->description(), "TLSv1.3 TLS_AES_128_GCM_SHA256");
  EXPECT_FALSE(session->is_resumed());
}

struct BadCertificate {
  const char* name;
  TestAuthority::Leaf leaf;
  const char* host;
  const char* message;
};

TEST_F(TlsTest, SaysWhatIsWrongWithACertificate) {
  const BadCertificate kCases[] = {
      {"other name",
       {"DNS:example.com"},
       "localhost",
       "localhost is not accepted: it is for another"},
      {"other address",
       {"IP:192.0.2.1"},
       "127.0.0.1",
       "127.0.0.1 is not accepted: it is for another"},
      {"expired", {"DNS:localhost", -7200, -3600}, "localhost", "it has expired"},
      {"future", {"DNS:localhost", 3600, 7200}, "localhost", "it is not valid yet"},
  };
  for (const BadCertificate& row : kCases) {
    SCOPED_TRACE(row.name);
    const ServerContext context = server_context(row.leaf);
    TlsTestPeer server(context.get());
    const auto session = client(row.host);
    incoming_.clear();
    const Status status = connect(*session, server);
    EXPECT_EQ(status.code(), Code::kDenied);
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.message));
  }
}

TEST_F(TlsTest, RefusesUnknownAuthoritiesUnlessToldNotToVerify) {
  const TestAuthority other;
  const ServerContext context(other.server_context({}));
  TlsTestPeer server(context.get());
  const Status status = connect(*client(), server);
  EXPECT_EQ(status.code(), Code::kDenied);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ca_bundle"));
  context_ = *TlsContext::create({false, {}});
  TlsTestPeer again(context.get());
  incoming_.clear();
  EXPECT_TRUE(connect(*client("anything.example"), again).ok());
}

TEST_F(TlsTest, ReportsAuthoritiesThatCannotBeRead) {
  const auto missing = TlsContext::create({true, {"/nonexistent/ca.pem"}});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(missing.error().message()), HasSubstr("/nonexistent/ca.pem"));
}

TEST_F(TlsTest, RefusesNamesThatCannotBe) {
  const auto session = TlsSession::create(context_, std::string(300, 'a'), nullptr);
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().code(), Code::kInvalidArgument);
}

TEST_F(TlsTest, TellsWhenTheServerDoesNotSpeakTls) {
  const auto session = client();
  ASSERT_TRUE(session->handshake({}));
  const auto answer = session->handshake(as_bytes("HTTP/1.1 400 Bad Request\r\n\r\n"));
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code(), Code::kUnsupported);
  EXPECT_THAT(std::string(answer.error().message()), HasSubstr("http://"));
}

TEST_F(TlsTest, TellsWhenNothingIsInCommon) {
  const ServerContext context = server_context();
  SSL_CTX_set_max_proto_version(context.get(), TLS1_1_VERSION);
  TlsTestPeer server(context.get());
  EXPECT_EQ(connect(*client(), server).code(), Code::kUnsupported);
}

TEST_F(TlsTest, TakesOtherHandshakeFailuresForTransient) {
  const auto session = client();
  ASSERT_TRUE(session->handshake({}));
  // A fatal alert internal_error(80).
  const auto answer = session->handshake(as_bytes(std::string_view("\x15\x03\x03\0\2\2\x50", 7)));
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code(), Code::kUnavailable);
}

TEST_F(TlsTest, ResumesWithATicket) {
  const ServerContext context = server_context();
  TlsResumption resumption;
  for (int round = 0; round < 3; ++round) {
    TlsTestPeer server(context.get());
    const auto session = client("localhost", &resumption);
    incoming_.clear();
    ASSERT_TRUE(connect(*session, server).ok());
    EXPECT_EQ(session->is_resumed(), round > 0);
    server.write("hello");
    const auto text = open_all(*session, server.take(), 1 << 20, 100);
    ASSERT_TRUE(text);
    EXPECT_EQ(*text, "hello");
    EXPECT_TRUE(resumption.has_ticket());
  }
}

// --- data ---

class TlsSuiteTest : public TlsTest, public testing::WithParamInterface<const char*> {};

TEST_P(TlsSuiteTest, OpensAnyPiecesIntoAnyBuffers) {
  const ServerContext context = server_context();
  const std::string suite = GetParam();
  if (suite == "TLS1.2") {
    SSL_CTX_set_max_proto_version(context.get(), TLS1_2_VERSION);
  } else {
    SSL_CTX_set_ciphersuites(context.get(), GetParam());
  }
  const std::string text = pattern(50'000);
  for (const std::size_t piece_bytes : {7UL, 1000UL, 16'406UL, 1UL << 20}) {
    for (const std::size_t out_bytes : {10UL, 16'384UL, 16'385UL, 60'000UL}) {
      SCOPED_TRACE(std::to_string(piece_bytes) + " into " + std::to_string(out_bytes));
      TlsTestPeer server(context.get());
      const auto session = client();
      incoming_.clear();
      ASSERT_TRUE(connect(*session, server).ok());
      if (suite != "TLS1.2") {
        EXPECT_THAT(session->description(), HasSubstr(suite));
      }
      ASSERT_TRUE(session->encrypt(as_bytes("a request")).ok());
      server.feed(session->output());
      EXPECT_EQ(server.read(), "a request");
      server.write(text);
      SSL_shutdown(server.ssl());
      is_end_ = false;
      const auto opened = open_all(*session, server.take(), piece_bytes, out_bytes);
      ASSERT_TRUE(opened) << opened.error().message();
      EXPECT_TRUE(*opened == text);
      EXPECT_TRUE(is_end_);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Suites, TlsSuiteTest,
                         testing::Values("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384",
                                         "TLS_CHACHA20_POLY1305_SHA256", "TLS1.2"));

TEST_F(TlsTest, OpensRecordsSplitAtEveryByte) {
  const ServerContext context = server_context();
  TlsTestPeer server(context.get());
  const auto session = client();
  ASSERT_TRUE(connect(*session, server).ok());
  const std::string text = pattern(300);
  for (std::size_t cut = 0; cut <= 322; ++cut) {
    server.write(text);
    const auto cipher = server.take();
    incoming_.insert(incoming_.end(), cipher.begin(),
                     cipher.begin() + static_cast<std::ptrdiff_t>(std::min(cut, cipher.size())));
    std::vector<std::byte> out(300);
    const auto first = open_all(*session, {}, 1, 300);
    ASSERT_TRUE(first);
    auto early = session->decrypt(incoming_, out);
    ASSERT_TRUE(early);
    std::string got(reinterpret_cast<const char*>(out.data()), early->produced_bytes);
    incoming_.erase(incoming_.begin(),
                    incoming_.begin() + static_cast<std::ptrdiff_t>(early->consumed_bytes));
    const auto rest =
        open_all(*session,
                 std::vector<std::byte>(
                     cipher.begin() + static_cast<std::ptrdiff_t>(std::min(cut, cipher.size())),
                     cipher.end()),
                 1 << 20, 300);
    ASSERT_TRUE(rest);
    ASSERT_TRUE(got + *rest == text) << cut;
  }
}

TEST_F(TlsTest, FollowsKeyUpdates) {
  const ServerContext context = server_context();
  TlsTestPeer server(context.get());
  const auto session = client();
  ASSERT_TRUE(connect(*session, server).ok());
  for (int round = 0; round < 4; ++round) {
    SSL_key_update(server.ssl(),
                   round % 2 == 0 ? SSL_KEY_UPDATE_REQUESTED : SSL_KEY_UPDATE_NOT_REQUESTED);
    SSL_do_handshake(server.ssl());
    const std::string text = "round " + std::to_string(round);
    server.write(text);
    const auto opened = open_all(*session, server.take(), 11, 100);
    ASSERT_TRUE(opened) << opened.error().message();
    EXPECT_EQ(*opened, text);
    ASSERT_TRUE(session->encrypt(as_bytes("answer")).ok());
    server.feed(session->output());
    session->output().clear();
    EXPECT_EQ(server.read(), "answer") << round;
  }
}

TEST_F(TlsTest, ServerThatAsksForKeysWithoutEndFillsNoMemory) {
  for (const char* suite : {"TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"}) {
    const ServerContext context = server_context();
    SSL_CTX_set_ciphersuites(context.get(), suite);
    TlsTestPeer server(context.get());
    const auto session = client();
    incoming_.clear();
    ASSERT_TRUE(connect(*session, server).ok());
    server.write("x");
    ASSERT_TRUE(open_all(*session, server.take(), 1 << 20, 100));
    session->output().clear();
    Status status;
    for (int round = 0; round < 1000 && status.ok(); ++round) {
      SSL_key_update(server.ssl(), SSL_KEY_UPDATE_REQUESTED);
      SSL_do_handshake(server.ssl());
      server.write("x");  // data between them makes no difference
      auto opened = open_all(*session, server.take(), 1 << 20, 100);
      if (!opened) status = std::move(opened).error();
    }
    EXPECT_LT(session->output().size(), 8U << 10) << suite;
    // OpenSSL, where it opens records itself, answers many requests with one change.
    EXPECT_TRUE(status.ok() || status.code() == Code::kUnavailable) << suite;
  }
}

TEST_F(TlsTest, FindsEveryDamagedByte) {
  const ServerContext context = server_context();
  for (std::size_t at = 0; at < 5 + 10 + 17; at += 3) {
    TlsTestPeer server(context.get());
    const auto session = client();
    incoming_.clear();
    ASSERT_TRUE(connect(*session, server).ok());
    ASSERT_TRUE(open_all(*session, {}, 1, 10));
    std::vector<std::byte> out(100);
    ASSERT_TRUE(session->decrypt(incoming_, out));
    incoming_.clear();
    server.take();
    server.write("0123456789");
    auto cipher = server.take();
    cipher[at] ^= std::byte{0x40};
    auto opened = session->decrypt(cipher, out);
    // A changed length leaves an incomplete record behind.
    if (opened) {
      EXPECT_EQ(opened->produced_bytes, 0U) << at;
    } else {
      EXPECT_EQ(opened.error().code(), Code::kUnavailable) << at;
    }
  }
}

TEST_F(TlsTest, PassesAlertsOn) {
  const ServerContext context = server_context();
  TlsTestPeer server(context.get());
  const auto session = client();
  ASSERT_TRUE(connect(*session, server).ok());
  server.write("x");
  ASSERT_TRUE(open_all(*session, server.take(), 1 << 20, 10));
  server.feed(
      as_bytes(std::string_view("\x17\x03\x03\0\x20"
                                "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                                37)));
  EXPECT_EQ(server.read(), "");  // answers with bad_record_mac
  const auto opened = open_all(*session, server.take(), 1 << 20, 10);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), Code::kUnavailable);
  EXPECT_THAT(std::string(opened.error().message()), HasSubstr("alert"));
}

}  // namespace
}  // namespace headrace
