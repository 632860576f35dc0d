// The text is made twice by the same Translator: for a Counter when a cell is cut, so that the
// batch has exactly the room, and for a Writer when the batch is laid out. No tree is built in
// between. A leaf is hostile until the Counter has gone through it: depth is bounded, counts are
// bounded by the bytes that are left, and the text by a limit that follows from the leaf's size.
#include "shard/formats/litdata/json_leaf.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <iterator>
#include <string_view>

#include "base/endian.h"

namespace headrace::detail {
namespace {

enum Tag : unsigned {
  kText = 0,
  kStrings = 1,
  kIntegers = 2,
  kFloats = 3,
  kBools = 4,
  kDict = 5,
  kRecords = 6,
  kString = 7,
  kInteger = 8,
  kFloat = 9,
  kBool = 10,
  kNull = 11,
};
enum RecordTag : unsigned {
  kRecordNull = 0x10,
  kRecordString = 0x11,
  kRecordInteger = 0x12,
  kRecordFloat = 0x13,
  kRecordBool = 0x14,
};

// A first byte from here on begins JSON text: what older versions stored.
constexpr unsigned kFirstTextByte = 0x20;
// Only dicts nest in the binary form, and Python's json gives up near 1000.
constexpr unsigned kMostDepth = 64;

// Counts what is put, and stops at a limit.
class Counter {
 public:
  explicit Counter(std::uint64_t limit) : limit_(limit) {}
  bool put(std::string_view text) {
    count_ += text.size();
    return count_ <= limit_;
  }
  std::uint64_t count() const { return count_; }

 private:
  std::uint64_t limit_;
  std::uint64_t count_ = 0;
};

// Writes to memory; refuses what does not fit.
class Writer {
 public:
  explicit Writer(std::span<std::byte> out) : out_(out) {}
  bool put(std::string_view text) {
    if (text.size() > out_.size()) return false;
    if (text.empty()) return true;  // memcpy() takes no null pointer, even for nothing.
    std::memcpy(out_.data(), text.data(), text.size());
    out_ = out_.subspan(text.size());
    return true;
  }

 private:
  std::span<std::byte> out_;
};

// Reads a leaf and puts its text to a Sink. Every function returns false when the leaf is broken or
// the sink is full.
template <class Sink>
class Translator {
 public:
  Translator(std::span<const std::byte> leaf, Sink& sink) : rest_(leaf), sink_(sink) {}

  bool run() {
    if (rest_.empty()) return false;
    if (std::to_integer<unsigned>(rest_[0]) >= kFirstTextByte)
      return sink_.put(take_text(rest_.size()));
    return value(0) && rest_.empty();
  }

 private:
  bool value(unsigned depth) {
    if (depth == kMostDepth) return false;
    const auto tag = take<std::uint8_t>();
    if (!tag) return false;
    switch (*tag) {
      case kText: {
        const auto size = take<std::uint32_t>();
        return size && *size <= rest_.size() && sink_.put(take_text(*size));
      }
      case kStrings:
        return list([this] { return string(); });
      case kIntegers:
        return list([this] { return integer(); });
      case kFloats:
        return list([this] { return real(); });
      case kBools:
        return list([this] { return boolean(); });
      case kDict:
        return dict(depth);
      case kRecords:
        return records();
      case kString:
        return string();
      case kInteger:
        return integer();
      case kFloat:
        return real();
      case kBool:
        return boolean();
      case kNull:
        return sink_.put("null");
      default:
        return false;
    }
  }

  // Every element takes at least a byte, so a count is bounded by what is left.
  template <class Element>
  bool list(Element element) {
    const auto count = take<std::uint32_t>();
    if (!count || *count > rest_.size() || !sink_.put("[")) return false;
    for (std::uint32_t i = 0; i < *count; ++i) {
      if ((i > 0 && !sink_.put(",")) || !element()) return false;
    }
    return sink_.put("]");
  }

  bool dict(unsigned depth) {
    const auto count = take<std::uint32_t>();
    if (!count || *count > rest_.size() || !sink_.put("{")) return false;
    for (std::uint32_t i = 0; i < *count; ++i) {
      if ((i > 0 && !sink_.put(",")) || !string() || !sink_.put(":") || !value(depth + 1))
        return false;
    }
    return sink_.put("}");
  }

  bool records() {
    const auto row_count = take<std::uint32_t>();
    const auto key_count = take<std::uint32_t>();
    // Rows without keys would take no bytes, and no writer makes them.
    if (!row_count || !key_count || *key_count == 0 || *row_count > rest_.size()) return false;
    // Kept to be read again for every row: rows have values only.
    const auto keys = rest_;
    for (std::uint32_t k = 0; k < *key_count; ++k) {
      const auto size = take<std::uint32_t>();
      if (!size || *size > rest_.size()) return false;
      rest_ = rest_.subspan(*size);
    }
    if (!sink_.put("[")) return false;
    for (std::uint32_t i = 0; i < *row_count; ++i) {
      if ((i > 0 && !sink_.put(",")) || !row(keys, *key_count)) return false;
    }
    return sink_.put("]");
  }

  bool row(std::span<const std::byte> keys, std::uint32_t key_count) {
    Translator key(keys, sink_);
    if (!sink_.put("{")) return false;
    for (std::uint32_t k = 0; k < key_count; ++k) {
      if ((k > 0 && !sink_.put(",")) || !key.string() || !sink_.put(":") || !record_value())
        return false;
    }
    return sink_.put("}");
  }

  bool record_value() {
    const auto tag = take<std::uint8_t>();
    if (!tag) return false;
    switch (*tag) {
      case kRecordNull:
        return sink_.put("null");
      case kRecordString:
        return string();
      case kRecordInteger:
        return integer();
      case kRecordFloat:
        return real();
      case kRecordBool:
        return boolean();
      default:
        return false;
    }
  }

  bool string() {
    const auto size = take<std::uint32_t>();
    if (!size || *size > rest_.size()) return false;
    std::string_view text = take_text(*size);
    if (!sink_.put("\"")) return false;
    while (!text.empty()) {
      std::size_t plain = 0;
      while (plain < text.size() && !needs_escape(text[plain])) ++plain;
      if (!sink_.put(text.substr(0, plain))) return false;
      text.remove_prefix(plain);
      if (text.empty()) break;
      if (!escape(text.front())) return false;
      text.remove_prefix(1);
    }
    return sink_.put("\"");
  }

  static bool needs_escape(char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\';
  }
  bool escape(char c) {
    constexpr char kHex[] = "0123456789abcdef";
    if (c == '"') return sink_.put("\\\"");
    if (c == '\\') return sink_.put("\\\\");
    const auto code = static_cast<unsigned char>(c);
    const char text[] = {'\\', 'u', '0', '0', kHex[code >> 4], kHex[code & 15]};
    return sink_.put(std::string_view(text, sizeof(text)));
  }

  bool integer() {
    const auto number = take<std::int64_t>();
    char text[24];
    return number &&
           sink_.put({text, static_cast<std::size_t>(fmt::format_to(text, "{}", *number) - text)});
  }

  // The shortest text that reads back as the same number, with a mark that makes it a float in
  // Python too; NaN and infinities as Python's json writes them.
  bool real() {
    const auto bits = take<std::uint64_t>();
    if (!bits) return false;
    const auto number = std::bit_cast<double>(*bits);
    if (std::isnan(number)) return sink_.put("NaN");
    if (std::isinf(number)) return sink_.put(number < 0 ? "-Infinity" : "Infinity");
    char text[40];
    const char* const end = fmt::format_to(text, "{}", number);
    const std::string_view digits(text, static_cast<std::size_t>(end - text));
    return sink_.put(digits) &&
           (digits.find_first_of(".e") != std::string_view::npos || sink_.put(".0"));
  }

  bool boolean() {
    const auto byte = take<std::uint8_t>();
    return byte && sink_.put(*byte != 0 ? "true" : "false");
  }

  template <std::integral T>
  std::optional<T> take() {
    if (rest_.size() < sizeof(T)) return std::nullopt;
    const T number = load_le<T>(rest_.data());
    rest_ = rest_.subspan(sizeof(T));
    return number;
  }
  // \pre size <= rest_.size().
  std::string_view take_text(std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(rest_.data()), size);
    rest_ = rest_.subspan(size);
    return text;
  }

  std::span<const std::byte> rest_;
  Sink& sink_;
};

void write_text(const ColumnBytes& cell, std::span<std::byte> out) noexcept {
  Writer writer(out);
  // Cannot fail: the same leaf was counted when the cell was made.
  (void)Translator<Writer>(cell.bytes, writer).run();
}

}  // namespace

std::optional<std::uint64_t> json_leaf_text_bytes(std::span<const std::byte> leaf) noexcept {
  Counter counter(most_json_text_bytes(leaf.size()));
  if (!Translator<Counter>(leaf, counter).run()) return std::nullopt;
  return counter.count();
}

bool make_json_cell(ColumnBytes& cell) noexcept {
  const auto size = json_leaf_text_bytes(cell.bytes);
  if (!size) return false;
  cell.writer = write_text;
  cell.value_bytes = *size;
  return true;
}

}  // namespace headrace::detail
