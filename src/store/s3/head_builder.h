#pragma once
/// \file
/// Writes one request head into a caller's string and signs it where it stands. Private to s3/.
#include <chrono>
#include <string>
#include <string_view>

#include "auth/sigv4.h"
#include "headrace/status.h"
#include "store/vendor/head_fields.h"

namespace headrace::s3 {

/// Use: construct, path and query into out(), finish_request_line(), field() in ascending order of
/// names, finish().
class HeadBuilder : public vendor::HeadFields {
 public:
  /// Starts with "<method> ". `method` must outlive the builder.
  HeadBuilder(std::string_view method, std::chrono::sys_seconds now, std::string& out);

  /// Between the escaped path and the canonical query, both appended to out().
  void begin_query();
  void finish_request_line();
  /// Instead of all three: path and query as a redirect gave them. They are sent as they are and
  /// signed in canonical form. Errors: kInvalidArgument (escapes).
  Status request_line_of(std::string_view target);

  std::string_view amz_date() const noexcept {
    return std::string_view(amz_date_, sizeof(amz_date_));
  }

  /// Appends the unsigned fields, the signature (unless `signer` is null) and the blank line.
  void finish(auth::SigV4Signer* signer, const auth::Credentials* credentials,
              std::string_view payload_hash, std::string_view unsigned_fields);

 private:
  const std::chrono::sys_seconds now_;
  char amz_date_[16];
  Span query_;
  std::string redirected_query_;  // canonical form, when it is not what is sent
  bool is_redirected_ = false;
};

}  // namespace headrace::s3
