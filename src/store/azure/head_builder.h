#pragma once
/// \file
/// Writes one request head of the Blob service into a caller's string. Private to azure/.
#include <array>
#include <chrono>
#include <string>
#include <string_view>

#include "auth/azure_shared_key.h"
#include "auth/renewing.h"
#include "http/fields.h"

namespace headrace::azure {

/// Use: construct, path into out(), query() in ascending order of names, finish_request_line(),
/// field() in ascending order of names, finish().
class HeadBuilder {
 public:
  /// Starts with "<method> ". `method` must outlive the builder.
  HeadBuilder(std::string_view method, std::string& out);

  /// Where to append the escaped path.
  std::string& out() noexcept { return out_; }
  /// A parameter, not escaped. The views must outlive the builder. At most kMaxQuery.
  void query(std::string_view name, std::string_view value);
  /// `sas`: a query of its own, escaped, or empty.
  void finish_request_line(std::string_view sas);

  /// \pre lower-case name, above the one before; at most kMaxFields.
  void field(std::string_view name, std::string_view value);
  /// The same in pieces: the value is appended to out() in between.
  void begin_field(std::string_view name);
  void end_field();
  void decimal_field(std::string_view name, std::uint64_t value);

  /// Appends `unsigned_fields`, the Authorization field (by `signer`, or from `token`, or none) and
  /// the blank line.
  void finish(auth::SharedKeySigner* signer, const auth::Token* token,
              std::string_view unsigned_fields);

  static constexpr std::size_t kMaxFields = 16;
  static constexpr std::size_t kMaxQuery = 12;

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
  Span path_;
  std::array<http::Field, kMaxQuery> query_;
  std::size_t query_count_ = 0;
  std::array<FieldSpan, kMaxFields> fields_;
  std::size_t field_count_ = 0;
};

}  // namespace headrace::azure
