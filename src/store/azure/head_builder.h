#pragma once
/// \file
/// Writes one request head of the Blob service into a caller's string. Private to azure/.
#include <array>
#include <string>
#include <string_view>

#include "auth/azure_shared_key.h"
#include "auth/renewing.h"
#include "store/vendor/head_fields.h"

namespace headrace::azure {

/// Use: construct, escaped path into out(), query() in ascending order of names,
/// finish_request_line(), field() in ascending order of names, finish().
class HeadBuilder : public vendor::HeadFields {
 public:
  /// Starts with "<method> ". `method` must outlive the builder.
  HeadBuilder(std::string_view method, std::string& out) : HeadFields(method, out) {}

  /// A parameter, not escaped. The views must outlive the builder. At most kMaxQuery.
  void query(std::string_view name, std::string_view value);
  /// `sas`: a query of its own, escaped, or empty.
  void finish_request_line(std::string_view sas);

  /// Appends `unsigned_fields`, the Authorization field (by `signer`, or from `token`, or none) and
  /// the blank line.
  void finish(auth::SharedKeySigner* signer, const auth::Token* token,
              std::string_view unsigned_fields);

  static constexpr std::size_t kMaxQuery = 12;

 private:
  std::array<http::Field, kMaxQuery> query_;
  std::size_t query_count_ = 0;
};

}  // namespace headrace::azure
