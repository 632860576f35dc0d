#include "shard/formats/csv/csv_text.h"

#include <cstring>

#include "base/strings.h"

namespace headrace::detail {

void CsvField::write_to(std::span<char> out) const noexcept {
  std::size_t to = 0;
  for (std::size_t from = 0; from < inner.size() && to < out.size(); ++from) {
    out[to++] = inner[from];
    // Of a field with pairs every quote is the first of one.
    if (quote_pairs > 0 && inner[from] == '"') ++from;
  }
}

bool CsvText::take(CsvField& field) noexcept {
  if (is_at_end_ || is_broken_) return false;
  field = CsvField{};
  if (rest_.starts_with('"')) return take_quoted(field);
  const std::size_t end = rest_.find(delimiter_);
  field.inner = rest_.substr(0, end);
  is_at_end_ = end == std::string_view::npos;
  if (!is_at_end_) rest_.remove_prefix(end + 1);
  return true;
}

bool CsvText::take_quoted(CsvField& field) noexcept {
  std::size_t at = 1;
  while (true) {
    at = rest_.find('"', at);
    if (at == std::string_view::npos) break;
    if (at + 1 == rest_.size() || rest_[at + 1] != '"') {
      field.inner = rest_.substr(1, at - 1);
      is_at_end_ = at + 1 == rest_.size();
      is_broken_ = !is_at_end_ && rest_[at + 1] != delimiter_;
      if (!is_at_end_) rest_.remove_prefix(at + 2);
      return !is_broken_;
    }
    ++field.quote_pairs;
    at += 2;
  }
  is_broken_ = true;
  return false;
}

std::string_view trim_csv_record(std::string_view record) noexcept { return trim(record, "\r\n"); }

}  // namespace headrace::detail
