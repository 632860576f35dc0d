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

}  // namespace
}  // namespace headrace::pack_detail
