// The header is a Python dict as text. It is read as the few literals that numpy writes and is
// never evaluated: an .npy comes from anywhere. Object arrays are refused for the same reason, as
// they are pickles.
//
// Shapes come from the file: their products are formed with a check for overflow and stay below
// 2^63.
#include "shard/formats/numpy/npy_header.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/endian.h"

namespace headrace::detail {
namespace {

constexpr std::string_view kMagic{"\x93NUMPY", 6};
// numpy's own limit of dimensions is 64.
constexpr std::size_t kMostAxes = 64;

Status corrupt(std::string_view what) {
  return Status(Code::kCorrupt, fmt::format(".npy header: {}", what));
}
Status unsupported(std::string_view what) {
  return Status(Code::kUnsupported, fmt::format(".npy: {}", what));
}

// What the dict says.
struct Fields {
  std::string descr;  // Empty: not there; no dtype is.
  std::optional<bool> is_fortran;
  std::optional<std::vector<std::uint64_t>> shape;
};

// Reads {'key': literal, ...} of the three keys that numpy writes.
class LiteralReader {
 public:
  explicit LiteralReader(std::string_view text) : rest_(text) {}

  Result<Fields> read() {
    Fields fields;
    if (!take('{')) return corrupt("no dict");
    while (!take('}')) {
      const auto key = string();
      if (!key || !take(':')) return corrupt("no key");
      HEADRACE_TRY(read_value(*key, fields));
      if (!take(',') && peek() != '}') return corrupt("no comma after a value");
    }
    if (peek() != '\0') return corrupt("text after the dict");
    if (fields.descr.empty() || !fields.is_fortran || !fields.shape)
      return corrupt("no descr, fortran_order or shape");
    return fields;
  }

 private:
  Status read_value(std::string_view key, Fields& fields) {
    if (key == "descr") {
      if (peek() == '[')
        return unsupported("structured arrays are not read; save each field as an array");
      fields.descr = string().value_or("");
      return fields.descr.empty() ? corrupt("bad descr") : Status();
    }
    if (key == "fortran_order") {
      fields.is_fortran = boolean();
      return fields.is_fortran ? Status() : corrupt("bad fortran_order");
    }
    if (key == "shape") {
      fields.shape = tuple();
      return fields.shape ? Status() : corrupt("bad shape");
    }
    return corrupt("an unknown key");
  }

  // The next character that is no space; NUL at the end.
  char peek() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n' || rest_[0] == '\t'))
      rest_.remove_prefix(1);
    return rest_.empty() ? '\0' : rest_[0];
  }
  bool take(char c) {
    if (peek() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool take_word(std::string_view word) {
    if (peek() == '\0' || !rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  // Without escapes: none of the texts that are read has any.
  std::optional<std::string> string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') return std::nullopt;
    const std::size_t end = rest_.find(quote, 1);
    if (end == std::string_view::npos) return std::nullopt;
    std::string text(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return text;
  }
  std::optional<bool> boolean() {
    if (take_word("True")) return true;
    if (take_word("False")) return false;
    return std::nullopt;
  }
  std::optional<std::vector<std::uint64_t>> tuple() {
    std::vector<std::uint64_t> values;
    if (!take('(')) return std::nullopt;
    while (!take(')')) {
      std::uint64_t value = 0;
      (void)peek();
      const char* const text_end = rest_.data() + rest_.size();
      const auto [end, error] = std::from_chars(rest_.data(), text_end, value);
      if (error != std::errc() || values.size() == kMostAxes) return std::nullopt;
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      values.push_back(value);
      (void)take_word("L");  // Python 2 wrote long integers so.
      if (!take(',') && peek() != ')') return std::nullopt;
    }
    return values;
  }

  std::string_view rest_;
};

struct Dtype {
  std::string_view code, name;
  std::uint64_t size_bytes;
};
constexpr std::array<Dtype, 14> kDtypes{{{"i1", "int8", 1},
                                         {"i2", "int16", 2},
                                         {"i4", "int32", 4},
                                         {"i8", "int64", 8},
                                         {"u1", "uint8", 1},
                                         {"u2", "uint16", 2},
                                         {"u4", "uint32", 4},
                                         {"u8", "uint64", 8},
                                         {"f2", "float16", 2},
                                         {"f4", "float32", 4},
                                         {"f8", "float64", 8},
                                         {"c8", "complex64", 8},
                                         {"c16", "complex128", 16},
                                         {"b1", "bool", 1}}};

Result<Dtype> dtype_of(std::string_view descr) {
  std::string_view code = descr;
  char order = '=';
  if (!code.empty() && std::string_view("<>|=").find(code[0]) != std::string_view::npos) {
    order = code[0];
    code.remove_prefix(1);
  }
  if (code.starts_with('O')) {
    return unsupported(
        "arrays of Python objects are pickles, which can run any code when read; "
        "they are not read");
  }
  for (const Dtype& dtype : kDtypes) {
    if (dtype.code != code) continue;
    if (order == '>' && dtype.size_bytes > 1)
      return unsupported(fmt::format("dtype '{}' is big-endian; save it as little-endian", descr));
    return dtype;
  }
  return unsupported(fmt::format("dtype '{}' is not read, only numbers and bools are", descr));
}

bool multiply(std::uint64_t& product, std::uint64_t factor) {
  return !__builtin_mul_overflow(product, factor, &product) && product >> 63 == 0;
}

}  // namespace

Result<std::uint64_t> npy_header_bytes(std::span<const std::byte> prefix) {
  if (prefix.size() < kNpyPrefixBytes ||
      std::memcmp(prefix.data(), kMagic.data(), kMagic.size()) != 0) {
    return corrupt("no magic \\x93NUMPY");
  }
  const auto major = std::to_integer<unsigned>(prefix[6]);
  if (major < 1 || major > 3)
    return unsupported(fmt::format("version {}, only 1 to 3 are read", major));
  const std::uint64_t length = major == 1 ? load_le<std::uint16_t>(prefix.data() + 8)
                                          : load_le<std::uint32_t>(prefix.data() + 8);
  const std::uint64_t all = (major == 1 ? 10 : 12) + length;
  if (all > kMostNpyHeaderBytes)
    return unsupported(fmt::format("a header of {} bytes: structured arrays are not read", all));
  return all;
}

Result<NpyHeader> parse_npy_header(std::span<const std::byte> head) {
  HEADRACE_TRY_ASSIGN(const std::uint64_t all, npy_header_bytes(head));
  if (head.size() < all) return corrupt("the file ends inside it");
  const std::size_t text_offset = std::to_integer<unsigned>(head[6]) == 1 ? 10 : 12;
  const std::string_view text(reinterpret_cast<const char*>(head.data()) + text_offset,
                              all - text_offset);
  HEADRACE_TRY_ASSIGN(const Fields fields, LiteralReader(text).read());
  HEADRACE_TRY_ASSIGN(const Dtype dtype, dtype_of(fields.descr));
  if (fields.shape->empty()) return unsupported("an array without axes has no samples");
  // With one axis both orders are the same bytes.
  if (*fields.is_fortran && fields.shape->size() > 1) {
    return unsupported("Fortran order is not read; save numpy.ascontiguousarray() of the array");
  }
  NpyHeader header;
  header.dtype = dtype.name;
  header.row_count = fields.shape->front();
  header.shape.assign(fields.shape->begin() + 1, fields.shape->end());
  header.data_offset = all;
  header.row_bytes = dtype.size_bytes;
  for (const std::uint64_t extent : header.shape) {
    if (!multiply(header.row_bytes, extent)) return corrupt("an impossible shape");
  }
  std::uint64_t data_bytes = header.row_bytes;
  if (!multiply(data_bytes, header.row_count)) return corrupt("an impossible shape");
  if (header.row_bytes == 0) return unsupported("rows without a byte");
  return header;
}

}  // namespace headrace::detail
