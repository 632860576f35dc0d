// One pass, byte by byte, with a few flags as the only state: a file is fed in pieces that may end
// anywhere, also inside an escape. bounds_ has two entries an element, its begin and its end,
// because blanks and commas lie between elements (has_gaps).
//
// An object, array or string is over with its own last character; a number, true or null only
// where something else begins. Hence is_complete_: whatever follows a complete element ends it,
// and the state behind it says whether it may stand there.
#include "shard/formats/text/array_scan.h"

#include <fmt/format.h>

namespace headrace::detail {
namespace {

bool is_blank(char c) noexcept { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

}  // namespace

Status ArrayScan::wrong(std::string_view what) const {
  return Status(Code::kCorrupt, fmt::format("byte {}: {}", offset_, what));
}

Status ArrayScan::feed(std::span<const std::byte> bytes) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  for (const std::byte b : bytes) {
    const char c = static_cast<char>(b);
    const bool is_mark = offset_ < kByteOrderMark.size() && c == kByteOrderMark[offset_];
    if (state_ == State::kInside && is_over(c)) end_element();
    if (state_ == State::kInside) {
      if (is_looking_ && element_.size() <= kMostLookedAtBytes) element_ += c;
    } else if (!is_blank(c) && !is_mark) {
      HEADRACE_TRY(take_outside(c));
    }
    ++offset_;
  }
  return Status();
}

Status ArrayScan::take_outside(char c) {
  const bool is_end = c == ']';
  switch (state_) {
    case State::kBegin:
      if (c != '[') return wrong("no JSON array begins here, as in the first of the files");
      state_ = State::kFirst;
      return Status();
    case State::kFirst:
    case State::kElement:
      if (is_end && state_ == State::kFirst) break;
      if (is_end || c == ',') return wrong("an element of the JSON array is missing");
      state_ = State::kInside;
      bounds_.push_back(offset_);
      depth_ = 0;
      is_complete_ = false;
      is_over(c);  // The first character of an element never ends it.
      if (is_looking_) element_ += c;
      return Status();
    case State::kBehind:
      if (is_end) break;
      if (c != ',') return wrong("neither a comma nor the end of the JSON array");
      state_ = State::kElement;
      return Status();
    case State::kInside:
    case State::kEnd:
      return wrong("something behind the end of the JSON array");
  }
  state_ = State::kEnd;
  return Status();
}

bool ArrayScan::is_over(char c) noexcept {
  if (is_in_string_) {
    is_in_string_ = is_escaped_ || c != '"';
    is_escaped_ = !is_escaped_ && c == '\\';
    is_complete_ = !is_in_string_ && depth_ == 0;
    return false;
  }
  if (is_complete_) return true;  // Whatever follows: only a comma or the end may.
  if (depth_ == 0 && (c == ',' || c == ']' || is_blank(c))) return true;
  is_in_string_ = c == '"';
  if (c == '{' || c == '[') ++depth_;
  if ((c == '}' || c == ']') && depth_ > 0) is_complete_ = --depth_ == 0;
  return false;
}

void ArrayScan::end_element() {
  state_ = State::kBehind;
  const std::uint64_t number = bounds_.size() / 2 + 1;
  bounds_.push_back(offset_);
  if (!is_looking_) return;
  if (number == 1) fields_.begin(element_, number);
  if (element_.size() <= kMostLookedAtBytes) is_looking_ = fields_.add(element_, number);
  is_looking_ = is_looking_ && fields_.are_objects && number < kLookedAtLines;
  element_.clear();
}

Status ArrayScan::finish(std::uint64_t size_bytes) {
  if (state_ == State::kEnd || (state_ == State::kBegin && size_bytes == 0)) return Status();
  return wrong(state_ == State::kBegin ? "no JSON array, as in the first of the files"
                                       : "the file ends inside its JSON array (cut off?)");
}

FileSamples ArrayScan::take() {
  return {.bounds = std::move(bounds_), .has_gaps = true, .facts = fields_.to_text()};
}

}  // namespace headrace::detail
