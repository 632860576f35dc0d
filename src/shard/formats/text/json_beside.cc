// A .json beside other formats is a note about them. Beside JSON it may be more of the same: lines
// or an array say so. One object alone is either a sample or a note ("stats.json"), and an object
// over several lines is none of what is read here.
#include <algorithm>
#include <string_view>

#include "shard/codec/json_text.h"
#include "shard/dataset/listing.h"
#include "shard/formats/text/text_driver.h"

namespace headrace::detail {

bool may_be_json_beside(std::string_view name) noexcept {
  constexpr std::string_view kNotes[] = {
      "config.json", "features.json", "index.json",  "info.json",  "manifest.json",
      "meta.json",   "metadata.json", "schema.json", "split.json", "stats.json"};
  return name.ends_with(".json") && !is_about_data(name) &&
         std::find(std::begin(kNotes), std::end(kNotes), name) == std::end(kNotes);
}

Beside judge_json_beside(std::span<const std::byte> head, bool is_whole) noexcept {
  if (looks_like_json_array(head)) return Beside::kData;
  if (!looks_like_json_lines(head)) return Beside::kNote;
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t line = std::min(text.find_first_not_of(kBlanks), text.size());
  const std::size_t newline = std::min(text.find('\n', line), text.size());
  const bool has_second = text.find_first_not_of(kBlanks, newline) != std::string_view::npos;
  return has_second || (!is_whole && newline < text.size()) ? Beside::kData : Beside::kUnclear;
}

}  // namespace headrace::detail
