#include "store/s3/head_builder.h"

#include "base/check.h"
#include "http/date.h"

namespace headrace::s3 {

HeadBuilder::HeadBuilder(std::string_view method, std::chrono::sys_seconds now, std::string& out)
    : out_(out), method_(method), now_(now) {
  http::write_amz_date(now, amz_date_);
  out_.append(method).push_back(' ');
  path_.begin = out_.size();
}

void HeadBuilder::begin_query() {
  path_.size = out_.size() - path_.begin;
  out_.push_back('?');
  query_.begin = out_.size();
}

void HeadBuilder::finish_request_line() {
  if (query_.begin == 0) {
    path_.size = out_.size() - path_.begin;
  } else {
    query_.size = out_.size() - query_.begin;
  }
  out_.append(" HTTP/1.1\r\n");
}

Status HeadBuilder::request_line_of(std::string_view target) {
  const std::size_t question = target.find('?');
  out_.append(target.substr(0, question));
  path_.size = out_.size() - path_.begin;
  is_redirected_ = true;
  if (question != std::string_view::npos) {
    HEADRACE_TRY_ASSIGN(redirected_query_, auth::canonical_query(target.substr(question + 1)));
    out_.append(target.substr(question));
  }
  out_.append(" HTTP/1.1\r\n");
  return {};
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

void HeadBuilder::finish(auth::SigV4Signer* signer, const auth::Credentials* credentials,
                         std::string_view payload_hash, std::string_view unsigned_fields) {
  out_.append(unsigned_fields);
  if (signer != nullptr) {
    out_.append("authorization: ");
    // The views below must survive append_authorization(): room for its 200 fixed bytes and all
    // names.
    std::size_t room = 512 + credentials->access_key_id.size() + signer->region().size();
    for (std::size_t i = 0; i < field_count_; ++i) room += fields_[i].name.size + 1;
    if (out_.capacity() - out_.size() < room) out_.reserve(out_.size() + room);

    std::array<http::Field, kMaxFields> fields;
    for (std::size_t i = 0; i < field_count_; ++i) {
      fields[i] = {fields_[i].name.in(out_), fields_[i].value.in(out_)};
    }
    const std::string_view query =
        is_redirected_ ? std::string_view(redirected_query_) : query_.in(out_);
    const auth::CanonicalRequest request{method_, path_.in(out_), query,
                                         std::span(fields.data(), field_count_), payload_hash};
    signer->append_authorization(request, *credentials, now_, out_);
    out_.append("\r\n");
  }
  out_.append("\r\n");
}

}  // namespace headrace::s3
