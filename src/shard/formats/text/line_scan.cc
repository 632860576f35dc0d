#include "shard/formats/text/line_scan.h"

#include <cstring>

#include "base/strings.h"

namespace headrace::detail {

Status LineScan::feed(std::span<const std::byte> bytes) {
  std::string_view rest(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  while (!rest.empty()) {
    const auto* newline = static_cast<const char*>(std::memchr(rest.data(), '\n', rest.size()));
    const std::size_t length =
        newline == nullptr ? rest.size() : static_cast<std::size_t>(newline - rest.data()) + 1;
    const std::string_view part = rest.substr(0, length);
    has_bytes_ = true;
    if (kind_ == TextKind::kJson && !has_text_) has_text_ = !trim(part, kWhiteSpace).empty();
    if (is_looking_ && line_.size() <= kMostLookedAtBytes)
      line_ += part.substr(0, kMostLookedAtBytes + 1 - line_.size());
    offset_ += length;
    rest.remove_prefix(length);
    if (newline != nullptr) end_line();
  }
  return Status();
}

// The line that ends at offset_ is a sample, or (a blank one of JSON lines) the end of the one
// before.
void LineScan::end_line() {
  ++line_count_;
  const bool is_sample = kind_ == TextKind::kText || has_text_;
  if (is_sample) {
    is_looking_ = is_looking_ && look_at(line_);
    bounds_.push_back(offset_);
    ++sample_count_;
  } else if (sample_count_ > 0) {
    bounds_.back() = offset_;
  }
  line_.clear();
  has_text_ = has_bytes_ = false;
}

// False when no more lines need be looked at.
bool LineScan::look_at(std::string_view line) {
  if (sample_count_ == 0) fields_.begin(line, line_count_);
  if (line.size() <= kMostLookedAtBytes && !fields_.add(line, line_count_)) return false;
  return fields_.are_objects && sample_count_ + 1 < kLookedAtLines;
}

Status LineScan::finish(std::uint64_t size_bytes) {
  static_cast<void>(size_bytes);  // Every byte was fed.
  if (has_bytes_) end_line();
  return Status();
}

FileSamples LineScan::take() {
  return {.bounds = std::move(bounds_), .has_gaps = false, .facts = fields_.to_text()};
}

}  // namespace headrace::detail
