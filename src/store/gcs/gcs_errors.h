#pragma once
/// \file
/// What Google's error answers mean: one table from (XML code, HTTP status) to a Code and to
/// advice. Pure.
#include <span>
#include <string>
#include <string_view>

#include "headrace/status.h"
#include "http/response.h"
#include "store/vendor/error_table.h"

namespace headrace::gcs {

/// All rows, for the test.
std::span<const vendor::ErrorRow> error_table() noexcept;

/// Code and message of an error answer, XML ("<Error><Code>") or JSON ({"error":{...}}); as far as
/// there are any.
struct ErrorBody {
  std::string code;
  std::string message;
};
ErrorBody parse_error_body(std::string_view body);

/// Builds the Status. `body` may be empty, cut off or neither XML nor JSON. `credentials_source` is
/// named when access is denied.
Status error_status(std::string_view what, const http::ResponseHead& head, std::string_view body,
                    std::string_view credentials_source);

/// True when the answer says that the token was not (or no longer) good: another one may be.
bool is_token_refused(const http::ResponseHead& head, std::string_view body);

}  // namespace headrace::gcs
