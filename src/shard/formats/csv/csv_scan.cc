// A state machine over single characters, since quotes may hold anything, line ends too; what
// needs no look (inside of quotes, inside of a field) is passed over by plain_bytes() at the speed
// of a search.
//
// - bounds_ has where each record begins, and as its last entry where the next one would. A blank
//   line moves that last entry: it belongs to the record before it.
// - "\r\n" may come in two pieces: the state remembers "\r", and a "\n" behind it is counted to
//   the same line.
// - Only the header's text is kept, and it is bounded; records pass through.
#include "shard/formats/csv/csv_scan.h"

#include <fmt/format.h>

#include "shard/formats/csv/csv_layout.h"

namespace headrace::detail {

Status CsvScan::fail(std::string_view what) const {
  return Status(Code::kCorrupt, fmt::format("at byte {}: csv: record {}: {}", record_begin_,
                                            bounds_.empty() ? 0 : bounds_.size() - 1, what));
}

Status CsvScan::feed(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::size_t at = 0;
  // The byte order mark that spreadsheets write.
  if (offset_ == 0 && text.starts_with("\xef\xbb\xbf")) {
    at = offset_ = record_begin_ = 3;
  }
  while (at < text.size()) {
    const std::size_t plain = has_header_ ? plain_bytes(text.substr(at)) : 0;
    at += plain;
    offset_ += plain;
    if (at == text.size()) break;
    HEADRACE_TRY(step(text[at++]));
    ++offset_;
  }
  return Status();
}

// Characters at the front that step() would only pass over.
std::size_t CsvScan::plain_bytes(std::string_view text) const noexcept {
  std::size_t at = 0;
  if (state_ == State::kQuoted) {
    at = text.find('"');
    return at == std::string_view::npos ? text.size() : at;
  }
  if (state_ != State::kField) return 0;
  while (at < text.size() && text[at] != delimiter_ && text[at] != '\n' && text[at] != '\r') ++at;
  return at;
}

// Takes the character at offset_.
Status CsvScan::step(char c) {
  if (state_ == State::kReturnSeen) {
    if (c == '\n') {
      // The bounds count it to the line that "\r" ended.
      ++record_begin_;
      if (!bounds_.empty()) ++bounds_.back();
      state_ = State::kRecordStart;
      return Status();
    }
    state_ = State::kRecordStart;
  }
  const bool is_end = c == '\n' || c == '\r';
  if (state_ == State::kRecordStart && is_end) {
    begin_line();
    if (!bounds_.empty()) bounds_.back() = record_begin_;
    if (c == '\r') state_ = State::kReturnSeen;
    return Status();
  }
  if (!has_header_) {
    header_text_ += c;
    if (header_text_.size() > kMostCsvHeaderBytes)
      return fail("a header above 1 MiB; a file of separated values begins with a header");
  }
  if (state_ == State::kQuoted) {
    if (c == '"') state_ = State::kQuoteSeen;
    return Status();
  }
  if (is_end) {
    HEADRACE_TRY(end_record());
    if (c == '\r') state_ = State::kReturnSeen;
    return Status();
  }
  if (c == delimiter_) {
    ++field_count_;
    state_ = State::kFieldStart;
  } else if (c == '"' && state_ != State::kField) {
    state_ = State::kQuoted;  // Also the second of a pair.
  } else if (state_ == State::kQuoteSeen) {
    return fail(fmt::format("field {} goes on behind its closing quote", field_count_));
  } else {
    state_ = State::kField;
  }
  return Status();
}

void CsvScan::begin_line() noexcept {
  record_begin_ = offset_ + 1;
  field_count_ = 1;
  state_ = State::kRecordStart;
}

Status CsvScan::end_record() {
  if (!has_header_) {
    HEADRACE_TRY(end_header());
  } else if (field_count_ != header_.size()) {
    return fail(fmt::format("{} fields, the header has {}", field_count_, header_.size()));
  }
  begin_line();
  bounds_.push_back(record_begin_);
  return Status();
}

Status CsvScan::end_header() {
  has_header_ = true;
  HEADRACE_TRY_ASSIGN(header_, parse_csv_header(header_text_, delimiter_));
  header_text_ = std::string();
  return Status();
}

Status CsvScan::finish(std::uint64_t size_bytes) {
  static_cast<void>(size_bytes);  // Every byte was fed.
  if (state_ == State::kQuoted)
    return fail(fmt::format("the file ends inside the quotes of field {}", field_count_));
  if (state_ == State::kRecordStart || state_ == State::kReturnSeen) return Status();
  HEADRACE_TRY(end_record());
  bounds_.back() = offset_;  // No line end is counted to the last.
  return Status();
}

FileSamples CsvScan::take() {
  return {.bounds = std::move(bounds_),
          .has_gaps = false,
          .facts = has_header_ ? header_to_text(header_) : std::string()};
}

}  // namespace headrace::detail
