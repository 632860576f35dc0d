#pragma once
/// \file
/// A small blocking HTTP client for the tests of this folder: signs, sends, reads one response.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "auth/sigv4.h"
#include "base/fd.h"
#include "headrace/clock.h"
#include "http/date.h"
#include "http/response.h"
#include "sim/checksum.h"

namespace headrace::sim {

struct TestResponse {
  int status = 0;
  std::string head;  // with the status line
  std::string body;
  bool is_complete = false;  // the whole body came
  bool was_reset = false;    // the connection ended by a TCP reset
  std::string header(std::string_view name) const {
    http::ResponseHead parsed;
    EXPECT_TRUE(http::parse_response_head(head, parsed).has_value());
    return std::string(parsed.header(name));
  }
  /// Text of the first XML element of that name.
  std::string xml(const std::string& name) const {
    const std::size_t begin = body.find("<" + name + ">");
    if (begin == std::string::npos) return {};
    const std::size_t from = begin + name.size() + 2;
    return body.substr(from, body.find("</" + name + ">") - from);
  }
};

using TestFields = std::vector<std::pair<std::string, std::string>>;

struct TestRequest {
  std::string method = "GET";
  std::string path;   // escaped
  std::string query;  // escaped
  TestFields fields = {};
  std::string body = {};
  std::string payload_hash = std::string(auth::kUnsignedPayload);
};

class TestClient {
 public:
  explicit TestClient(std::uint16_t port, std::uint32_t address = INADDR_LOOPBACK)
      : port_(port), address_(address) {}

  auth::Credentials credentials{"headrace", "headrace-secret", "", {}};
  bool is_signing = true;
  std::chrono::seconds clock_offset{0};
  std::string host = "127.0.0.1";
  std::string service = "s3";
  std::string session_field = "x-amz-security-token";

  TestResponse get(const std::string& path, TestFields fields = {}, std::string query = "") {
    return request({"GET", path, std::move(query), std::move(fields), "",
                    std::string(auth::kUnsignedPayload)});
  }
  TestResponse put(const std::string& path, std::string body, TestFields fields = {},
                   std::string query = "") {
    return request({"PUT", path, std::move(query), std::move(fields), std::move(body),
                    std::string(auth::kUnsignedPayload)});
  }
  TestResponse post(const std::string& path, std::string body, std::string query = "") {
    return request(
        {"POST", path, std::move(query), {}, std::move(body), std::string(auth::kUnsignedPayload)});
  }
  /// With the checksum that the call wants.
  TestResponse delete_batch(const std::string& path, std::string body) {
    auto sum = Checksum::create(ChecksumKind::kMd5);
    (*sum)->update(body);
    const TestFields fields = {{"content-md5", to_base64((*sum)->finish())}};
    return request(
        {"POST", path, "delete=", fields, std::move(body), std::string(auth::kUnsignedPayload)});
  }
  TestResponse remove(const std::string& path, std::string query = "") {
    return request({"DELETE", path, std::move(query), {}, "", std::string(auth::kUnsignedPayload)});
  }
  TestResponse head(const std::string& path) {
    return request({"HEAD", path, "", {}, "", std::string(auth::kUnsignedPayload)});
  }

  TestResponse request(const TestRequest& request) {
    send_text(text_of(request));
    return read_response(request.method == "HEAD");
  }

  std::string text_of(const TestRequest& request) {
    TestFields fields = request.fields;
    fields.emplace_back("host", host + ":" + std::to_string(port_));
    if (is_signing) sign(request, fields);
    std::string text = request.method + " " + request.path +
                       (request.query.empty() ? "" : "?" + request.query) + " HTTP/1.1\r\n";
    bool is_framed = false;
    for (const auto& [name, value] : fields) {
      text += name + ": " + value + "\r\n";
      is_framed |= name == "transfer-encoding";
    }
    if (!is_framed && (!request.body.empty() || request.method == "PUT")) {
      text += "content-length: " + std::to_string(request.body.size()) + "\r\n";
    }
    return text + "\r\n" + request.body;
  }

  void send_text(std::string_view text) {
    if (!fd_) connect();
    while (!text.empty()) {
      const ssize_t sent = ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      ASSERT_GT(sent, 0);
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
  }

  TestResponse read_response(bool is_head_request = false) {
    TestResponse out;
    http::ResponseHead head;
    while (true) {
      const auto parsed = http::parse_response_head(buffer_, head);
      EXPECT_TRUE(parsed.has_value());
      if (!parsed || *parsed > 0) break;
      if (!receive(out)) return out;
    }
    out.status = head.status;
    out.head = buffer_.substr(0, head.head_bytes);
    const bool has_no_body =
        is_head_request || head.status == 204 || head.status == 304 || head.status == 100;
    const std::size_t length =
        has_no_body ? 0 : static_cast<std::size_t>(head.content_length.value_or(0));
    const std::size_t head_bytes = head.head_bytes;
    while (buffer_.size() < head_bytes + length && receive(out)) {
    }
    out.body = buffer_.substr(head_bytes, length);
    out.is_complete = out.body.size() == length;
    buffer_.erase(0, head_bytes + length);
    return out;
  }

  /// True when the server closes; what it sends before is dropped.
  bool reads_end() {
    TestResponse ignored;
    while (receive(ignored)) {
    }
    return true;
  }
  void connect_now() {
    if (!fd_) connect();
  }
  void disconnect() {
    fd_ = Fd();
    buffer_.clear();
  }

 private:
  void connect() {
    fd_ = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(address_);
    ASSERT_EQ(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    buffer_.clear();
  }

  bool receive(TestResponse& out) {
    std::array<char, 65536> bytes;
    const ssize_t count = ::recv(fd_.get(), bytes.data(), bytes.size(), 0);
    if (count > 0) {
      buffer_.append(bytes.data(), static_cast<std::size_t>(count));
      return true;
    }
    out.was_reset = count < 0 && errno == ECONNRESET;
    fd_ = Fd();
    return false;
  }

  void sign(const TestRequest& request, TestFields& fields) {
    const auto now = system_clock().wall_now() + clock_offset;
    char date[16];
    http::write_amz_date(now, date);
    const std::string date_text(date, 16);
    TestFields added = {{"x-amz-content-sha256", request.payload_hash}, {"x-amz-date", date_text}};
    if (!credentials.session_token.empty()) {
      added.emplace_back(session_field, credentials.session_token);
    }
    fields.insert(fields.end(), added.begin(), added.end());
    std::vector<http::Field> canonical;
    for (const auto& [name, value] : fields) {
      if (name == "host" || name.starts_with("x-amz-")) canonical.push_back({name, value});
    }
    std::sort(canonical.begin(), canonical.end(),
              [](const http::Field& a, const http::Field& b) { return a.name < b.name; });
    const auto query = auth::canonical_query(request.query);
    ASSERT_TRUE(query.has_value());
    auto signer = auth::SigV4Signer::create("us-east-1", service);
    ASSERT_TRUE(signer.has_value());
    std::string authorization;
    (*signer)->append_authorization(
        {request.method, request.path, *query, canonical, request.payload_hash}, credentials, now,
        authorization);
    fields.emplace_back("authorization", authorization);
  }

  const std::uint16_t port_;
  const std::uint32_t address_;
  Fd fd_;
  std::string buffer_;
};

}  // namespace headrace::sim
