#include "store/vendor/head_fields.h"

#include "base/check.h"

namespace headrace::vendor {

HeadFields::HeadFields(std::string_view method, std::string& out) : out_(out), method_(method) {
  out_.append(method).push_back(' ');
  path_.begin = out_.size();
}

void HeadFields::merge_below(std::string_view name) {
  while (!to_merge_.empty() && (name.empty() || to_merge_.front().first < name)) {
    start_field(to_merge_.front().first);
    out_.append(to_merge_.front().second);
    end_field();
    to_merge_ = to_merge_.subspan(1);
  }
}

void HeadFields::begin_field(std::string_view name) {
  if (!to_merge_.empty()) merge_below(name);
  start_field(name);
}

void HeadFields::start_field(std::string_view name) {
  HEADRACE_CHECK(field_count_ < kMaxFields);
  FieldSpan& span = fields_[field_count_++];
  span.name = {out_.size(), name.size()};
  out_.append(name).append(": ");
  span.value.begin = out_.size();
}

void HeadFields::end_field() {
  Span& value = fields_[field_count_ - 1].value;
  value.size = out_.size() - value.begin;
  out_.append("\r\n");
}

void HeadFields::field(std::string_view name, std::string_view value) {
  begin_field(name);
  out_.append(value);
  end_field();
}

void HeadFields::decimal_field(std::string_view name, std::uint64_t value) {
  begin_field(name);
  http::append_decimal(value, out_);
  end_field();
}

void HeadFields::begin_authorization(std::size_t bytes) {
  out_.append("authorization: ");
  for (std::size_t i = 0; i < field_count_; ++i) bytes += fields_[i].name.size + 1;
  if (out_.capacity() - out_.size() < bytes) out_.reserve(out_.size() + bytes);
}

std::span<const http::Field> HeadFields::fields(FieldRoom& room) const {
  for (std::size_t i = 0; i < field_count_; ++i)
    room[i] = {fields_[i].name.in(out_), fields_[i].value.in(out_)};
  return std::span(room).first(field_count_);
}

}  // namespace headrace::vendor
