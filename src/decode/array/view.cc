// Columns whose bytes stay as they are and are only read as something else. Of most there is
// nothing to do while a batch is finished; text is checked there, so that what is no text is a bad
// sample.
#include <simdjson.h>

#include <algorithm>
#include <string>

#include "decode/array/byte_column.h"
#include "headrace/decode.h"

namespace headrace {
namespace {

/// The value itself, where it is UTF-8.
class TextDecoder final : public ValueDecoder {
 public:
  Result<DecodeNeeds> needs(std::span<const std::byte> value) const override {
    return DecodeNeeds{.output_bytes = value.size()};
  }
  Status decode(std::span<const std::byte> value, std::uint64_t,
                std::span<std::byte> out) const override {
    const auto* text = reinterpret_cast<const char*>(value.data());
    if (!value.empty() && !simdjson::validate_utf8(text, value.size()))
      return Status(Code::kCorrupt, "text that is not UTF-8");
    std::copy(value.begin(), value.end(), out.begin());
    return {};
  }
};

class View final : public Decode {
 public:
  explicit View(std::string encoding) : encoding_(std::move(encoding)) {}

  Result<DecodedColumns> bind(const OutputColumn& stored) const override {
    if (!detail::has_plain_bytes(stored)) return detail::not_plain_bytes(stored, encoding_);
    OutputColumn output = stored;
    output.encoding = encoding_;
    const bool is_text = encoding_ == "str" || encoding_ == "json";
    return DecodedColumns{{.output = std::move(output),
                           .decoder = is_text ? std::make_shared<TextDecoder>() : nullptr,
                           .growth = 1}};
  }

 private:
  const std::string encoding_;
};

class ArrayView final : public Decode {
 public:
  explicit ArrayView(ArrayType type) : type_(std::move(type)) {}

  Result<DecodedColumns> bind(const OutputColumn& stored) const override {
    // Fixed sizes are no hindrance here: raw bytes of one length each are what this is for.
    OutputColumn bytes = stored;
    bytes.fixed_size_bytes = 0;
    if (!detail::has_plain_bytes(bytes)) return detail::not_plain_bytes(stored, "an array");
    return DecodedColumns{{.output = array_column(stored.name, type_), .decoder = nullptr}};
  }

 private:
  const ArrayType type_;
};

}  // namespace

std::uint64_t ArrayType::size_bytes() const noexcept {
  std::uint64_t bytes = item_bytes;
  for (const std::uint64_t n : shape) bytes *= n;
  return bytes;
}

OutputColumn array_column(const std::string& name, const ArrayType& type) {
  OutputColumn column;
  column.name = name;
  column.encoding = "ndarray:" + type.dtype;
  for (std::size_t i = 0; i < type.shape.size(); ++i)
    column.encoding += (i == 0 ? ":" : ",") + std::to_string(type.shape[i]);
  column.dtype = type.dtype;
  column.shape = type.shape;
  column.fixed_size_bytes = type.size_bytes();
  return column;
}

Status check_array_type(const ArrayType& type) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 40;
  const auto wrong = [](std::string what) {
    return Status(Code::kInvalidArgument, "decode: " + std::move(what));
  };
  if (type.dtype.empty() || type.item_bytes == 0 || type.item_bytes > 16)
    return wrong("'" + type.dtype + "' is no dtype of numbers");
  std::uint64_t bytes = type.item_bytes;
  for (const std::uint64_t n : type.shape) {
    if (n == 0 || n > kMostBytes / bytes) return wrong("shape has a side that is 0 or too large");
    bytes *= n;
  }
  return {};
}

std::shared_ptr<const Decode> decode_as(std::string encoding) {
  return std::make_shared<View>(std::move(encoding));
}

Result<std::shared_ptr<const Decode>> decode_array(ArrayType type) {
  HEADRACE_TRY(check_array_type(type));
  return std::shared_ptr<const Decode>(std::make_shared<ArrayView>(std::move(type)));
}

}  // namespace headrace
