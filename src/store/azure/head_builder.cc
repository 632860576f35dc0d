#include "store/azure/head_builder.h"

#include "base/check.h"
#include "http/uri.h"

namespace headrace::azure {

void HeadBuilder::query(std::string_view name, std::string_view value) {
  HEADRACE_CHECK(query_count_ < kMaxQuery);
  if (query_count_ == 0) path_.size = out_.size() - path_.begin;
  query_[query_count_] = {name, value};
  out_.push_back(query_count_++ == 0 ? '?' : '&');
  http::append_encoded(name, http::Slash::kEscape, out_);
  out_.push_back('=');
  http::append_encoded(value, http::Slash::kEscape, out_);
}

void HeadBuilder::finish_request_line(std::string_view sas) {
  if (query_count_ == 0) path_.size = out_.size() - path_.begin;
  if (!sas.empty()) {
    out_.push_back(query_count_ == 0 ? '?' : '&');
    out_.append(sas);
  }
  out_.append(" HTTP/1.1\r\n");
}

void HeadBuilder::finish(auth::SharedKeySigner* signer, const auth::Token* token,
                         std::string_view unsigned_fields) {
  end_fields();
  out_.append(unsigned_fields);
  if (signer != nullptr) {
    begin_authorization(128 + signer->account().size());  // the scheme's name and the signature
    FieldRoom room;
    const auth::SharedKeyRequest request{method_, path_.in(out_),
                                         std::span(query_.data(), query_count_), fields(room)};
    signer->append_authorization(request, out_);
    out_.append("\r\n");
  } else if (token != nullptr) {
    out_.append("authorization: Bearer ").append(token->text).append("\r\n");
  }
  out_.append("\r\n");
}

}  // namespace headrace::azure
