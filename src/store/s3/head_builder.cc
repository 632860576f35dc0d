#include "store/s3/head_builder.h"

#include "http/date.h"

namespace headrace::s3 {

HeadBuilder::HeadBuilder(std::string_view method, std::chrono::sys_seconds now, std::string& out)
    : HeadFields(method, out), now_(now) {
  http::write_amz_date(now, amz_date_);
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

void HeadBuilder::finish(auth::SigV4Signer* signer, const auth::Credentials* credentials,
                         std::string_view payload_hash, std::string_view unsigned_fields) {
  out_.append(unsigned_fields);
  if (signer != nullptr) {
    // Its fixed bytes are 200.
    begin_authorization(512 + credentials->access_key_id.size() + signer->region().size());
    FieldRoom room;
    const std::string_view query =
        is_redirected_ ? std::string_view(redirected_query_) : query_.in(out_);
    const auth::CanonicalRequest request{method_, path_.in(out_), query, fields(room),
                                         payload_hash};
    signer->append_authorization(request, *credentials, now_, out_);
    out_.append("\r\n");
  }
  out_.append("\r\n");
}

}  // namespace headrace::s3
