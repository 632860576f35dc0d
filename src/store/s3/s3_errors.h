#pragma once
/// \file
/// What S3's error answers mean: one table from (S3 code, HTTP status) to a Code and to advice.
/// Pure.
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "headrace/status.h"
#include "http/response.h"
#include "store/vendor/error_table.h"

namespace headrace::s3 {

/// All rows, for the test.
std::span<const vendor::ErrorRow> error_table() noexcept;

/// Errors that a change of ours may end: the driver learns from the answer and tries again.
enum class Trouble : std::uint8_t {
  kNone,
  kExpiredCredentials,  ///< Expired, or revoked.
  kClock,               ///< The request's time is too far from the store's.
  kRegion,              ///< The bucket is in another region.
};
Trouble trouble_of(const http::ResponseHead& head, std::string_view body);
/// How the request was signed.
struct Signed {
  std::chrono::sys_seconds at;  ///< By the store's clock, as far as that is known.
  bool is_temporary = false;    ///< With credentials that end.
};
/// What a refusal without a body may be about: answers to HEAD have none to say so. kNone where
/// trying once more would be in vain.
Trouble likely_trouble(const http::ResponseHead& head, std::string_view body, const Signed& by);
/// The region that such an answer names; empty: none.
std::string named_region(const http::ResponseHead& head, std::string_view body);

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

/// The same for an error inside another answer, as DeleteObjects has one for each key that failed.
struct ErrorBody;
Status code_status(std::string_view what, const ErrorBody& error, const ErrorContext& context);

}  // namespace headrace::s3
