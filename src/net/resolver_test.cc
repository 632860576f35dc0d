#include "net/resolver.h"

#include <gtest/gtest.h>

#include <semaphore>

namespace headrace {
namespace {

TEST(Resolver, NumericAddressesNeedNoLookup) {
  const auto v4 = parse_numeric_address("192.0.2.7", 443);
  ASSERT_TRUE(v4);
  EXPECT_EQ(v4->family(), AF_INET);
  EXPECT_EQ(to_text(*v4), "192.0.2.7:443");
  const auto v6 = parse_numeric_address("2001:db8::1", 80);
  ASSERT_TRUE(v6);
  EXPECT_EQ(to_text(*v6), "[2001:db8::1]:80");
  EXPECT_EQ(to_text(*parse_numeric_address("[::1]", 9000)), "[::1]:9000");
}

TEST(Resolver, NamesAreNotNumeric) {
  for (const char* host : {"localhost", "", "[]", "1.2.3", "1.2.3.4.5", "example.com"}) {
    EXPECT_FALSE(parse_numeric_address(host, 80)) << host;
  }
}

TEST(NameLookup, FindsLocalhost) {
  std::binary_semaphore is_done(0);
  NameLookup lookup;
  EXPECT_FALSE(lookup.take());
  ASSERT_TRUE(lookup.start("localhost", 1234, [&] { is_done.release(); }).ok());
  EXPECT_TRUE(lookup.is_running());
  is_done.acquire();
  const auto result = lookup.take();
  ASSERT_TRUE(result);
  ASSERT_TRUE(*result) << result->error().message();
  ASSERT_FALSE((**result).empty());
  EXPECT_NE(to_text((**result).front()).find(":1234"), std::string::npos);
  EXPECT_FALSE(lookup.is_running());
}

TEST(NameLookup, NamesTheHostThatDoesNotExist) {
  std::binary_semaphore is_done(0);
  NameLookup lookup;
  // "invalid" never resolves (RFC 6761); without a name server the failure is another one.
  ASSERT_TRUE(lookup.start("headrace.invalid", 80, [&] { is_done.release(); }).ok());
  is_done.acquire();
  const auto result = lookup.take();
  ASSERT_TRUE(result);
  ASSERT_FALSE(*result);
  const Code code = result->error().code();
  EXPECT_TRUE(code == Code::kNotFound || code == Code::kUnavailable);
  EXPECT_NE(result->error().message().find("headrace.invalid"), std::string_view::npos);
}

TEST(NameLookup, TakesAnotherResolversAddresses) {
  const auto look_up = [](HostResolver resolver) {
    std::binary_semaphore is_done(0);
    NameLookup lookup;
    EXPECT_TRUE(lookup
                    .start(
                        "store", 80, [&] { is_done.release(); }, std::move(resolver))
                    .ok());
    is_done.acquire();
    return *lookup.take();
  };
  using Texts = Result<std::vector<std::string>>;
  auto found = look_up([](const std::string& host) -> Texts {
    EXPECT_EQ(host, "store");
    return std::vector<std::string>{"127.0.0.2", "::1"};
  });
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), 2U);
  EXPECT_EQ(to_text((*found)[0]), "127.0.0.2:80");
  EXPECT_EQ(to_text((*found)[1]), "[::1]:80");
  auto failed =
      look_up([](const std::string&) -> Texts { return Status(Code::kUnavailable, "no servers"); });
  EXPECT_EQ(failed.error().code(), Code::kUnavailable);
  auto malformed =
      look_up([](const std::string&) -> Texts { return std::vector<std::string>{"localhost"}; });
  EXPECT_EQ(malformed.error().code(), Code::kInvalidArgument);
  auto empty = look_up([](const std::string&) -> Texts { return std::vector<std::string>(); });
  EXPECT_EQ(empty.error().code(), Code::kNotFound);
}

TEST(NameLookup, AbandonedLookupCallsNobody) {
  bool is_alive = true;
  {
    NameLookup lookup;
    ASSERT_TRUE(lookup.start("localhost", 1, [&is_alive] { EXPECT_TRUE(is_alive); }).ok());
  }
  is_alive = false;
}

}  // namespace
}  // namespace headrace
