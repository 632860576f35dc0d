#pragma once
/// \file
/// What holds for the error tables of all vendors. For tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <span>
#include <string>

#include "store/vendor/error_table.h"

namespace headrace::vendor {

/// Of a server: status, further header lines, body.
struct Answer {
  int status = 0;
  std::string fields;
  std::string body;
};

/// `status`: what an answer of this row became; its message starts with `what`.
inline void expect_row(const ErrorRow& row, const Status& status, const std::string& what) {
  using testing::HasSubstr;
  EXPECT_EQ(status.code(), row.code) << row.vendor_code << " " << row.http_status;
  const std::string message(status.message());
  EXPECT_THAT(message, testing::StartsWith(what + ": "));
  EXPECT_THAT(message, HasSubstr(std::string(row.vendor_code)));
  EXPECT_THAT(message, HasSubstr(std::string(row.advice)));
  EXPECT_THAT(message, HasSubstr("(HTTP " + std::to_string(row.http_status)));
}

inline void expect_no_row_twice(std::span<const ErrorRow> table) {
  std::set<std::string> seen;
  for (const ErrorRow& row : table) {
    const std::string key =
        row.vendor_code.empty() ? std::to_string(row.http_status) : std::string(row.vendor_code);
    EXPECT_TRUE(seen.insert(key).second) << key;
  }
}

/// For tests that run once a row.
inline std::string row_name(const testing::TestParamInfo<ErrorRow>& test) {
  return (test.param.vendor_code.empty() ? "Status" : std::string(test.param.vendor_code)) +
         std::to_string(test.param.http_status);
}

}  // namespace headrace::vendor
