// What stores do that not all can: each test asks the traits, or takes kUnsupported for an answer.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/fd.h"
#include "contract/store_contract.h"
#include "http/response.h"
#include "http/uri.h"

namespace headrace::contract {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Answer to one HTTP/1.1 request without body over a socket of its own: status and body.
std::pair<int, std::string> exchange(const std::string& method, const std::string& url,
                                     std::string_view sent = {}) {
  const std::size_t query = url.find('?');
  auto parsed = http::parse_http_url(url.substr(0, url.find('/', 8)));
  EXPECT_TRUE(parsed) << url;
  EXPECT_NE(query, std::string::npos) << url;
  if (!parsed || parsed->use_tls) return {0, "only plain HTTP here"};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(parsed->port);
  EXPECT_EQ(::inet_pton(AF_INET, parsed->host.c_str(), &address.sin_addr), 1) << url;
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  std::string text = method + " " + url.substr(url.find('/', 8)) +
                     " HTTP/1.1\r\nhost: " + parsed->authority() + "\r\nconnection: close\r\n";
  if (method == "PUT") text += "content-length: " + std::to_string(sent.size()) + "\r\n";
  text += "\r\n";
  text += sent;
  EXPECT_EQ(::send(socket, text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t n = 0; (n = ::recv(socket, buffer, sizeof(buffer), 0)) > 0;)
    answer.append(buffer, static_cast<std::size_t>(n));
  ::close(socket);
  http::ResponseHead head;
  const auto size = http::parse_response_head(answer, head);
  EXPECT_TRUE(size) << answer;
  return {head.status, answer.substr(head.head_bytes)};
}

TEST_P(StoreContract, ManyObjectsGoAtOnce) {
  std::vector<std::string> keys;
  for (int i = 0; i < 25; ++i) keys.push_back("d/" + std::to_string(i) + " &<\xc3\xa9>");
  for (const std::string& key : keys) put(key, "x");
  put("stays", "x");
  keys.emplace_back("never/was");
  const std::vector<Status> results = store().remove_many(keys);
  ASSERT_EQ(results.size(), keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i)
    EXPECT_TRUE(results[i].ok()) << keys[i] << ": " << results[i].message();
  EXPECT_THAT(keys_below(""), ElementsAre("stays"));
  EXPECT_THAT(store().remove_many({}), IsEmpty());
}

TEST_P(StoreContract, AnUploadCanBeGoneOnWith) {
  const std::uint64_t part_bytes = std::max<std::uint64_t>(world().least_part_bytes(), 1000);
  const std::string bytes = pattern(part_bytes + 100);
  auto id = store().create_upload("up/object");
  ASSERT_TRUE(id) << id.error().message();
  const auto send = [&](std::uint32_t number, std::string_view part) {
    Request request = put_request("up/object", part);
    request.op = Op::kPutPart;
    request.upload_id = keep(*id);
    request.part_number = number;
    return run_one(std::move(request));
  };
  ASSERT_TRUE(send(1, std::string_view(bytes).substr(0, part_bytes)).status.ok());
  auto parts = store().list_parts("up/object", *id);
  if (!parts && parts.error().code() == Code::kUnsupported) {
    static_cast<void>(store().abort_upload("up/object", *id));
    GTEST_SKIP() << parts.error().message();
  }
  ASSERT_TRUE(parts) << parts.error().message();
  ASSERT_EQ(parts->size(), 1U);
  EXPECT_EQ(parts->front().part_number, 1U);
  EXPECT_EQ(parts->front().size_bytes, part_bytes);
  // MinIO lists the uploads of one key only, and none for a prefix.
  if (auto pending = store().list_uploads("up/"); pending && !pending->empty()) {
    ASSERT_EQ(pending->size(), 1U);
    EXPECT_EQ(pending->front().key, "up/object");
    EXPECT_EQ(pending->front().upload_id, *id);
    EXPECT_THAT(*store().list_uploads("other/"), IsEmpty());
  }
  const Completion last = send(2, std::string_view(bytes).substr(part_bytes));
  ASSERT_TRUE(last.status.ok()) << last.status.message();
  parts->push_back({2, last.etag, 100, last.checksum});
  auto info = store().complete_upload("up/object", *id, *parts);
  ASSERT_TRUE(info) << info.error().message();
  EXPECT_EQ(get("up/object", 0, bytes.size()), bytes);
  EXPECT_EQ(store().list_parts("up/object", *id).error().code(), Code::kNotFound);
}

TEST_P(StoreContract, PresignedUrlsNeedNothingElse) {
  put("dir/a b+\xc3\xa9", "0123456789");
  auto url = store().presign({"dir/a b+\xc3\xa9", Op::kGet, std::chrono::seconds(600)});
  if (!url && url.error().code() == Code::kUnsupported) GTEST_SKIP() << url.error().message();
  ASSERT_TRUE(url) << url.error().message();
  if (!url->starts_with("http://127.0.0.1")) GTEST_SKIP() << "not plain HTTP on this machine";
  EXPECT_EQ(exchange("GET", *url), std::pair(200, std::string("0123456789")));
  std::string other = *url;
  other.replace(other.find("/dir/"), 5, "/dxr/");
  EXPECT_GE(exchange("GET", other).first, 400);
}

TEST_P(StoreContract, EveryUploadChecksumIsTaken) {
  for (const ChecksumKind kind :
       {ChecksumKind::kNone, ChecksumKind::kCrc32c, ChecksumKind::kCrc64Nvme}) {
    StoreOptions options;
    options.upload_checksum = kind;
    const auto other = open(options);
    ASSERT_NE(other, nullptr);
    const std::string bytes = pattern(world().least_part_bytes() + 10, 7);
    auto written = write_object(*other, pool(), "whole", bytes);
    ASSERT_TRUE(written) << written.error().message();
    EXPECT_EQ(*read_object(*other, pool(), "whole", bytes.size()), bytes);

    auto id = other->create_upload("parts");
    ASSERT_TRUE(id) << id.error().message();
    std::vector<UploadedPart> parts;
    const std::uint64_t first_bytes = world().least_part_bytes();
    for (std::uint32_t number = 1; number <= 2; ++number) {
      const auto piece = number == 1 ? std::string_view(bytes).substr(0, first_bytes)
                                     : std::string_view(bytes).substr(first_bytes);
      Request request = put_request("parts", piece);
      request.op = Op::kPutPart;
      request.upload_id = keep(*id);
      request.part_number = number;
      std::vector<Request> requests;
      requests.push_back(std::move(request));
      auto done = run(*other, std::move(requests));
      ASSERT_TRUE(done.front().status.ok()) << done.front().status.message();
      parts.push_back({number, done.front().etag, piece.size(), done.front().checksum});
    }
    auto info = other->complete_upload("parts", *id, parts);
    ASSERT_TRUE(info) << info.error().message();
    EXPECT_EQ(*read_object(*other, pool(), "parts", bytes.size()), bytes);
  }
}

TEST_P(StoreContract, ListingsStartAfterAKey) {
  if (!store().traits().can_start_after) GTEST_SKIP() << "lists from the start only";
  for (const char* key : {"a/1", "a/2", "a/3", "b"}) put(key, "x");
  ListRequest request;
  request.prefix = "a/";
  request.start_after = "a/1";
  auto page = store().list(request);
  ASSERT_TRUE(page) << page.error().message();
  ASSERT_EQ(page->objects.size(), 2U);
  EXPECT_EQ(page->objects[0].key, "a/2");
  EXPECT_EQ(page->objects[1].key, "a/3");
  request.start_after = "a/25";  // need not exist
  EXPECT_EQ(store().list(request)->objects.size(), 1U);
}

}  // namespace
}  // namespace headrace::contract
