#include "base/base64.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace headrace {
namespace {

TEST(Base64, MatchesRfc4648) {
  const std::pair<std::string, std::string> cases[] = {{"", ""},
                                                       {"f", "Zg=="},
                                                       {"fo", "Zm8="},
                                                       {"foo", "Zm9v"},
                                                       {"foob", "Zm9vYg=="},
                                                       {"fooba", "Zm9vYmE="},
                                                       {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : cases) {
    EXPECT_EQ(base64(bytes), text);
    EXPECT_EQ(decode_base64(text), bytes);
  }
  for (const char* bad : {"Z", "Zg", "Zg=", "Zg=a", "====", "Z===", "Zm9v\n", "Zm9-"})
    EXPECT_EQ(decode_base64(bad), std::nullopt) << bad;
}

TEST(Base64, OfUrlsHasItsOwnTwoDigitsAndNoPadding) {
  EXPECT_EQ(base64("\xfb\xff"), "+/8=");
  EXPECT_EQ(base64_url("\xfb\xff"), "-_8");
}

}  // namespace
}  // namespace headrace
