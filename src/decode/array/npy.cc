// .npy: "\x93NUMPY", version, length of the header, the header (a Python dict literal), the data
// (numpy/lib/format.py, versions 1.0 to 3.0). The header is matched against the one that an array
// of the column's type has, piece by piece, and never evaluated: every value of the column is to
// have the same type.
#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "decode/array/byte_column.h"
#include "headrace/decode.h"

namespace headrace {
namespace {

/// What follows `key` in a dict literal, from its first character that is no space; empty: no key.
std::string_view value_of(std::string_view header, std::string_view key) {
  const std::size_t at = header.find(key);
  if (at == std::string_view::npos) return {};
  std::string_view rest = header.substr(at + key.size());
  const std::size_t first = rest.find_first_not_of(" :");
  return first == std::string_view::npos ? std::string_view() : rest.substr(first);
}

/// "(3, 4)" of a shape.
std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

/// Whether a dict literal's value is the shape; where it has blanks is its writer's choice.
bool is_shape(std::string_view value, std::string_view shape) {
  const auto next = [](std::string_view text, std::size_t& at) {
    at = std::min(text.find_first_not_of(' ', at), text.size());
    return at == text.size() ? '\0' : text[at++];
  };
  std::size_t at = 0;
  for (std::size_t of_shape = 0; const char expected = next(shape, of_shape);)
    if (next(value, at) != expected) return false;
  return true;
}

/// Whether a dict literal's value is the dtype `descr`, which begins with '<' or '|'. A byte has no
/// order, so that any may be written.
bool is_dtype(std::string_view value, std::string_view descr) {
  if (value.empty() || (value[0] != '\'' && value[0] != '"')) return false;
  const std::string_view type = value.substr(1, value.find(value[0], 1) - 1);
  if (type == descr) return true;
  return descr[0] == '|' && !type.empty() &&
         std::string_view("<>=|").find(type[0]) != std::string_view::npos &&
         type.substr(1) == descr.substr(1);
}

struct NpyParts {
  std::string_view header;
  std::span<const std::byte> data;
};

Result<NpyParts> split(std::span<const std::byte> value) {
  const auto wrong = [](const char* what) { return Status(Code::kCorrupt, what); };
  constexpr std::string_view kMagic("\x93NUMPY", 6);
  const std::string_view text(reinterpret_cast<const char*>(value.data()), value.size());
  if (!text.starts_with(kMagic) || text.size() < 12) return wrong("it is no .npy file");
  const int version = static_cast<unsigned char>(text[6]);
  if (version < 1 || version > 3) return wrong("a version of .npy that is unknown");
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  std::size_t length = 0;
  for (std::size_t i = length_bytes; i-- > 0;)
    length = length << 8 | static_cast<unsigned char>(text[8 + i]);
  const std::size_t begin = 8 + length_bytes;
  if (length > text.size() - begin) return wrong("it ends inside of its header");
  return NpyParts{.header = text.substr(begin, length), .data = value.subspan(begin + length)};
}

class NpyDecoder final : public ValueDecoder {
 public:
  NpyDecoder(ArrayType type, std::string descr)
      : type_(std::move(type)), descr_(std::move(descr)), shape_(shape_text(type_.shape)) {}

  Result<DecodeNeeds> needs(std::span<const std::byte> value) const override {
    auto data = data_of(value);
    if (!data) return std::move(data).error();
    return DecodeNeeds{.output_bytes = type_.size_bytes()};
  }

  Status decode(std::span<const std::byte> value, std::uint64_t,
                std::span<std::byte> out) const override {
    HEADRACE_TRY_ASSIGN(const auto data, data_of(value));
    std::memcpy(out.data(), data.data(), out.size());
    return {};
  }

 private:
  Result<std::span<const std::byte>> data_of(std::span<const std::byte> value) const {
    HEADRACE_TRY_ASSIGN(const NpyParts parts, split(value));
    const auto differs = [&](const char* what) {
      const std::size_t end = parts.header.find_last_not_of(" \n");
      return Status(Code::kCorrupt,
                    std::string("an array of another ") + what + " than " + type_.dtype + shape_ +
                        ": " +
                        std::string(parts.header.substr(0, std::min<std::size_t>(end + 1, 200))));
    };
    if (!is_dtype(value_of(parts.header, "'descr'"), descr_)) return differs("dtype");
    if (!is_shape(value_of(parts.header, "'shape'"), shape_)) return differs("shape");
    const bool is_flat = type_.shape.size() < 2;
    if (!is_flat && !value_of(parts.header, "'fortran_order'").starts_with("False"))
      return differs("order of axes");
    if (parts.data.size() != type_.size_bytes())
      return Status(Code::kCorrupt, "an array of " + std::to_string(parts.data.size()) +
                                        " bytes, where its header says " +
                                        std::to_string(type_.size_bytes()));
    return parts.data;
  }

  const ArrayType type_;
  const std::string descr_;
  const std::string shape_;
};

class Npy final : public Decode {
 public:
  Npy(ArrayType type, std::string descr) : type_(std::move(type)), descr_(std::move(descr)) {}

  Result<DecodedColumns> bind(const OutputColumn& stored) const override {
    if (stored.encoding != "npy" && !detail::has_plain_bytes(stored))
      return detail::not_plain_bytes(stored, ".npy");
    return DecodedColumns{{.output = array_column(stored.name, type_),
                           .decoder = std::make_shared<NpyDecoder>(type_, descr_)}};
  }

 private:
  const ArrayType type_;
  const std::string descr_;
};

}  // namespace

Result<std::shared_ptr<const Decode>> decode_npy(ArrayType type, std::string descr) {
  HEADRACE_TRY(check_array_type(type));
  return std::shared_ptr<const Decode>(std::make_shared<Npy>(std::move(type), std::move(descr)));
}

}  // namespace headrace
