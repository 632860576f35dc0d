#include "pack/json_text.h"

#include <gtest/gtest.h>

namespace headrace::pack_detail {
namespace {

// The right sides are what CPython 3.11 prints.
TEST(PythonJson, IsWhatPythonWrites) {
  EXPECT_EQ(python_json({{"b", {1, "x", nullptr}}, {"a", true}}),
            R"({"a": true, "b": [1, "x", null]})");
  EXPECT_EQ(python_json("\xc3\xa9 \xf0\x9f\x8c\x8a"), R"("\u00e9 \ud83c\udf0a")");
  EXPECT_EQ(python_json(nlohmann::json::object()), "{}");
  EXPECT_EQ(python_json(nlohmann::json::array()), "[]");
}

TEST(IsJson, IsWhatPythonReads) {
  for (const std::string_view yes :
       {"{}", " [ ] ", "1", "-0.5e3", "null", "NaN", "[Infinity, -Infinity]", "\"\\ud800\"",
        R"({"a": [1, {"b": "x"}, []], "": {"c": true}, "a": false})",
        "123456789012345678901234567890"})
    EXPECT_TRUE(is_json(yes)) << yes;
  EXPECT_TRUE(is_json(std::string(5000, '[') + std::string(5000, ']')));
  for (const std::string_view no :
       {"",     " ",          "{broken", "{",       "[",         "[1",          "[1,]",
        "[,1]", "[1 2]",      "{1: 2}",  "{\"a\"}", "{\"a\": }", "{\"a\": 1,}", "{\"a\": 1:2}",
        "[1}",  "{\"a\": 1]", "{} {}",   "1 2",     "01",        "1.",          "+1",
        "nan",  "tru",        "'x'",     "\"x",     "\"\\x\"",   "\"\n\"",      "\xef\xbb\xbf{}",
        "]",    ","})
    EXPECT_FALSE(is_json(no)) << no;
}

}  // namespace
}  // namespace headrace::pack_detail
