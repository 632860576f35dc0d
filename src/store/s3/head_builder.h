#pragma once
/// \file
/// Writes one request head into a caller's string and signs it where it stands. Private to s3/.
#include <array>
#include <chrono>
#include <string>
#include <string_view>

#include "auth/sigv4.h"
#include "headrace/status.h"

namespace headrace::s3 {

/// Use: construct, path and query into out(), finish_request_line(), field() in ascending order of
/// names, finish().
class HeadBuilder {
 public:
  /// Starts with "<method> ". `method` must outlive the builder.
  HeadBuilder(std::string_view method, std::chrono::sys_seconds now, std::string& out);

  /// Where to append the escaped path, then, after begin_query(), the canonical query.
  std::string& out() noexcept { return out_; }
  void begin_query();
  void finish_request_line();
  /// Instead of all three: path and query as a redirect gave them. They are sent as they are and
  /// signed in canonical form. Errors: kInvalidArgument (escapes).
  Status request_line_of(std::string_view target);

  /// A signed field. \pre lower-case name, above the one before; at most kMaxFields.
  void field(std::string_view name, std::string_view value);
  /// The same in pieces: the value is appended to out() in between.
  void begin_field(std::string_view name);
  void end_field();
  std::string_view amz_date() const noexcept {
    return std::string_view(amz_date_, sizeof(amz_date_));
  }

  /// Appends the unsigned fields, the signature (unless `signer` is null) and the blank line.
  void finish(auth::SigV4Signer* signer, const auth::Credentials* credentials,
              std::string_view payload_hash, std::string_view unsigned_fields);

  static constexpr std::size_t kMaxFields = 24;

 private:
  // Offsets, not views: the string may move while it grows.
  struct Span {
    std::size_t begin = 0;
    std::size_t size = 0;
    std::string_view in(const std::string& text) const {
      return std::string_view(text).substr(begin, size);
    }
  };
  struct FieldSpan {
    Span name, value;
  };

  std::string& out_;
  const std::string_view method_;
  const std::chrono::sys_seconds now_;
  char amz_date_[16];
  Span path_, query_;
  std::string redirected_query_;  // canonical form, when it is not what is sent
  bool is_redirected_ = false;
  std::array<FieldSpan, kMaxFields> fields_;
  std::size_t field_count_ = 0;
};

}  // namespace headrace::s3
