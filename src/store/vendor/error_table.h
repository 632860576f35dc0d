#pragma once
/// \file
/// What the drivers of all vendors do with an error answer: a table of codes and statuses, what a
/// status means that stands in none, and the vendor's words made fit for a message.
///
/// Place: below s3/, gcs/ and azure/, which bring their tables.
///
/// Threads: pure functions.
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "headrace/status.h"

namespace headrace::vendor {

/// One row. `vendor_code` empty: applies by status, when there is no code or no row for it.
struct ErrorRow {
  std::string_view vendor_code;
  int http_status = 0;
  Code code = Code::kInternal;
  std::string_view advice;  ///< What it means and what to do, for the message. Empty: the server's
                            ///< own words say it.
};

/// The row of a code; else that of the status; else what any store means by such a status. nullopt:
/// below 300, which is no error by itself.
std::optional<ErrorRow> find_error(std::span<const ErrorRow> table, std::string_view vendor_code,
                                   int http_status) noexcept;

/// The answer to a deletion, as it counts: deleting what is not there is a success, so that a retry
/// after a lost answer is one too. Not where `bucket_missing` (the vendor's code) is missing.
Status without_missing(Status answer, std::string_view bucket_missing);

/// The start of `text` in one printable line.
std::string printable(std::string_view text, std::size_t max_bytes);

}  // namespace headrace::vendor
