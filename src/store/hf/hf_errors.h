#pragma once
/// \file
/// What the hub's answers mean that are no success, and what to do. Pure.
#include <span>
#include <string>
#include <string_view>

#include "http/response.h"
#include "store/hf/hf_config.h"
#include "store/vendor/error_table.h"

namespace headrace::hf {

/// By X-Error-Code and status.
std::span<const vendor::ErrorRow> error_table() noexcept;

/// `error_code` and `words`: X-Error-Code and X-Error-Message. \pre the status is 300 or more.
Status hub_error(const HfConfig& config, std::string_view what, int http_status,
                 std::string_view error_code, std::string_view words);

/// An answer of the server that a redirect led to, which keeps the bytes. Its links end after some
/// time: refused ones are kUnavailable, as the hub gives new ones.
Status storage_error(std::string_view what, std::string_view host, int http_status);

}  // namespace headrace::hf
