#include "store/vendor/xml.h"

#include <gtest/gtest.h>

namespace headrace::vendor {
namespace {

TEST(VendorXml, KnowsWhatItCannotHold) {
  for (const std::string_view good :
       {"", "a b", "\t\n\r", "\xc3\xa9", "\xef\xbf\xbd", "\xf0\x9f\x98\x80"})
    EXPECT_TRUE(fits_xml(good)) << good;
  for (const std::string_view bad :
       {std::string_view("\x01"), std::string_view("a\0", 2), std::string_view("\x1f"),
        std::string_view("\xff"), std::string_view("\xc3"), std::string_view("\xc0\xaf"),
        std::string_view("\xed\xa0\x80"), std::string_view("\xef\xbf\xbf"),
        std::string_view("\xe0\x80\xaf"), std::string_view("\xf4\x90\x80\x80")})
    EXPECT_FALSE(fits_xml(bad));
}

TEST(VendorXml, FindsErrorsInsideSuccess) {
  EXPECT_TRUE(
      is_error_body("\n\n<?xml version=\"1.0\"?><Error><Code>InternalError</Code></Error>"));
  EXPECT_FALSE(is_error_body(
      "<ListBucketResult><Contents><Key>&lt;Error&gt;</Key></Contents></ListBucketResult>"));
  EXPECT_FALSE(is_error_body(""));
}

TEST(VendorXml, EscapesWhatParsersWouldChange) {
  std::string text = "<a>";
  append_escaped("<&>\"\r\n\t '\xc3\xa9", text);
  EXPECT_EQ(text, "<a>&lt;&amp;&gt;&quot;&#13;&#10;&#9; '\xc3\xa9");
  pugi::xml_document document;
  ASSERT_TRUE(load_xml(text + "</a>", document));
  EXPECT_STREQ(document.child_value("a"), "<&>\"\r\n\t '\xc3\xa9");
}

TEST(VendorXml, PassesOverWhatStandsBeforeTheDocument) {
  for (const std::string_view start : {"", "  \r\n\t ", "\xef\xbb\xbf"}) {
    pugi::xml_document document;
    EXPECT_TRUE(load_xml(std::string(start) + "<?xml version=\"1.0\"?><a>1</a>", document));
    EXPECT_STREQ(document.child_value("a"), "1");
  }
  pugi::xml_document document;
  for (const std::string_view none : {"", "  ", "plain", "<a>"})
    EXPECT_FALSE(load_xml(none, document)) << none;
}

TEST(VendorXml, PutsETagsInQuotes) {
  EXPECT_EQ(with_quotes("a"), "\"a\"");
  EXPECT_EQ(with_quotes("\"a\""), "\"a\"");
  EXPECT_EQ(with_quotes("W/\"a\""), "W/\"a\"");
  EXPECT_EQ(with_quotes(""), "");
}

}  // namespace
}  // namespace headrace::vendor
