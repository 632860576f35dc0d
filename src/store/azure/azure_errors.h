#pragma once
/// \file
/// What Azure's error answers mean: one table from (x-ms-error-code, HTTP status) to a Code and to
/// advice. Pure.
#include <span>
#include <string>
#include <string_view>

#include "headrace/status.h"
#include "http/response.h"
#include "store/vendor/error_table.h"

namespace headrace::azure {

/// All rows, for the test.
std::span<const vendor::ErrorRow> error_table() noexcept;

/// The code of an error answer: that of its header, else that of its body. Empty: neither.
std::string error_code_of(const http::ResponseHead& head, std::string_view body);

/// True when a new token may help: the service calls the one that was sent expired or unknown.
bool is_token_refused(std::string_view azure_code, int http_status) noexcept;

/// Builds the Status for an answer that is an error. `body` may be empty, cut off or not XML. Never
/// puts more of the body into the message than its Code and Message: the service repeats what it
/// signed in others.
Status error_status(std::string_view what, const http::ResponseHead& head, std::string_view body,
                    std::string_view credentials_source);

/// The same for one part of a batch, where there is only a code and a status.
Code code_for(std::string_view azure_code, int http_status) noexcept;

}  // namespace headrace::azure
