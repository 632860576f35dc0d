#include "store/azure/head_builder.h"

#include "base/check.h"
#include "http/uri.h"

namespace headrace::azure {

HeadBuilder::HeadBuilder(std::string_view method, std::string& out) : out_(out), method_(method) {
  out_.append(method).push_back(' ');
  path_.begin = out_.size();
}

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

void HeadBuilder::begin_field(std::string_view name) {
  HEADRACE_CHECK(field_count_ < kMaxFields);
  FieldSpan& span = fields_[field_count_++];
  span.name = {out_.size(), name.size()};
  out_.append(name).append(": ");
  span.value.begin = out_.size();
}

void HeadBuilder::end_field() {
  Span& value = fields_[field_count_ - 1].value;
  value.size = out_.size() - value.begin;
  out_.append("\r\n");
}

void HeadBuilder::field(std::string_view name, std::string_view value) {
  begin_field(name);
  out_.append(value);
  end_field();
}

void HeadBuilder::decimal_field(std::string_view name, std::uint64_t value) {
  begin_field(name);
  http::append_decimal(value, out_);
  end_field();
}

void HeadBuilder::finish(auth::SharedKeySigner* signer, const auth::Token* token,
                         std::string_view unsigned_fields) {
  out_.append(unsigned_fields);
  if (signer != nullptr) {
    out_.append("authorization: ");
    // The views below must survive append_authorization(): room for the scheme's name and the
    // signature.
    const std::size_t room = 128 + signer->account().size();
    if (out_.capacity() - out_.size() < room) out_.reserve(out_.size() + room);
    std::array<http::Field, kMaxFields> fields;
    for (std::size_t i = 0; i < field_count_; ++i) {
      fields[i] = {fields_[i].name.in(out_), fields_[i].value.in(out_)};
    }
    const auth::SharedKeyRequest request{method_, path_.in(out_),
                                         std::span(query_.data(), query_count_),
                                         std::span(fields.data(), field_count_)};
    signer->append_authorization(request, out_);
    out_.append("\r\n");
  } else if (token != nullptr) {
    out_.append("authorization: Bearer ").append(token->text).append("\r\n");
  }
  out_.append("\r\n");
}

}  // namespace headrace::azure
