#pragma once
/// \file
/// What S3's error answers mean: one table from (S3 code, HTTP status) to a Code and to advice.
/// Pure.
#include <span>
#include <string>
#include <string_view>

#include "headrace/status.h"
#include "http/response.h"

namespace headrace::s3 {

/// One row. `s3_code` empty: applies by status, when there is no code or no row for it.
struct ErrorRow {
  std::string_view s3_code;
  int http_status = 0;
  Code code = Code::kInternal;
  std::string_view advice;  ///< What it means and what to do, for the message. Empty: the server's
                            ///< own words say it.
};

/// All rows, for the test.
std::span<const ErrorRow> error_table() noexcept;

/// What the messages may say about us.
struct ErrorContext {
  std::string_view region;              ///< That requests are signed for.
  std::string_view credentials_source;  ///< "environment variables".
};

/// Builds the Status for an answer that is an error. `body` may be empty, cut off or not XML. Never
/// puts more of the body into the message than the server's Code, Message and Region, or the start
/// of a text that is not XML.
Status error_status(std::string_view what, const http::ResponseHead& head, std::string_view body,
                    const ErrorContext& context);

}  // namespace headrace::s3
