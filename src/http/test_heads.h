#pragma once
/// \file
/// For tests: the head that a text begins with, all of which must be there, and good. It points
/// into the text.
#include <gtest/gtest.h>

#include <string_view>

#include "http/request.h"
#include "http/response.h"

namespace headrace::http {

inline RequestHead request_head(std::string_view text) {
  RequestHead head;
  const auto size = parse_request_head(text, head);
  EXPECT_TRUE(size && *size > 0) << text;
  return head;
}

inline ResponseHead response_head(std::string_view text) {
  ResponseHead head;
  const auto size = parse_response_head(text, head);
  EXPECT_TRUE(size && *size > 0) << text;
  return head;
}

}  // namespace headrace::http
