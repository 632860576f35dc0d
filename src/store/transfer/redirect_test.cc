#include "store/transfer/redirect.h"

#include <gtest/gtest.h>

namespace headrace::transfer {
namespace {

TEST(Redirect, FollowsByStatusAndMethod) {
  for (const int status : {301, 302, 307, 308}) {
    EXPECT_TRUE(is_redirect(status, "GET"));
    EXPECT_TRUE(is_redirect(status, "PUT"));
  }
  EXPECT_TRUE(is_redirect(303, "HEAD"));
  EXPECT_FALSE(is_redirect(303, "PUT"));
  EXPECT_FALSE(is_redirect(302, "POST"));
  EXPECT_TRUE(is_redirect(307, "POST"));
  for (const int status : {200, 300, 304, 305, 306, 404}) EXPECT_FALSE(is_redirect(status, "GET"));
}

TEST(Redirect, ReadsLocations) {
  struct Row {
    const char* location;
    const char* host;
    int port;
    bool use_tls;
    const char* host_field;
    const char* target;
  };
  constexpr Row kRows[] = {
      {"http://other/x?y=1#z", "other", 80, false, "other", "/x?y=1"},
      {"https://other:8443", "other", 8443, true, "other:8443", "/"},
      {"http://[::1]:9000/a%20b", "::1", 9000, false, "[::1]:9000", "/a%20b"},
      {"//other/x", "other", 80, false, "other", "/x"},
      {"/x", "here", 8080, false, "here:8080", "/x"},
      {"x", "here", 8080, false, "here:8080", "/a/x"},
      {"?q", "here", 8080, false, "here:8080", "/a/b?q"},
      {"/x?u=http://y", "here", 8080, false, "here:8080", "/x?u=http://y"},
      {"http://other?q=1", "other", 80, false, "other", "/?q=1"},
  };
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.location);
    auto redirect = parse_redirect(row.location, {"here", 8080, false}, "/a/b?c=/d/e");
    ASSERT_TRUE(redirect) << redirect.error().message();
    EXPECT_EQ(redirect->endpoint.host, row.host);
    EXPECT_EQ(redirect->endpoint.port, row.port);
    EXPECT_EQ(redirect->endpoint.use_tls, row.use_tls);
    EXPECT_EQ(redirect->host_field, row.host_field);
    EXPECT_EQ(redirect->target, row.target);
  }
}

TEST(Redirect, RefusesWhatIsNoAddress) {
  for (const char* location : {"", "ftp://x/y", "http://", "http://user@host/", "/a b",
                               "/a\r\nX: y", "http://host:99999/"}) {
    const auto to = parse_redirect(location, {"here", 80, false}, "/");
    ASSERT_FALSE(to) << location;
    EXPECT_EQ(to.error().code(), Code::kCorrupt) << location;
  }
  const auto down = parse_redirect("http://other/", {"here", 443, true}, "/");
  ASSERT_FALSE(down);
  EXPECT_EQ(down.error().code(), Code::kDenied);
}

}  // namespace
}  // namespace headrace::transfer
