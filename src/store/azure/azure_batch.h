#pragma once
/// \file
/// Blob Batch: many deletes in one multipart/mixed request, and the outcome of each. Pure.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/status.h"

namespace headrace::azure {

/// Deletes in one batch at most ("Blob Batch").
constexpr std::size_t kMaxBatch = 256;

/// Content-Type of the body below.
constexpr std::string_view kBatchContentType =
    "multipart/mixed; boundary=batch_68656164-7261-4365-8000-000000000000";

/// Appends one request (a head with its blank line) as part `index`.
void append_batch_part(std::size_t index, std::string_view head, std::string& body);
void finish_batch(std::string& body);

/// Outcome of one part.
struct BatchResult {
  int http_status = 0;  ///< 0: the answer does not tell.
  std::string error_code;
};

/// Reads the answer to a batch of `count` requests. Errors: kCorrupt when it is no such answer.
Result<std::vector<BatchResult>> parse_batch(std::string_view body, std::size_t count);

}  // namespace headrace::azure
