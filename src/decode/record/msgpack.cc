// Values are checked here, without Python, and stay as they are: Python's objects are made of them
// where a batch is delivered.
#include "headrace/msgpack.h"

#include <algorithm>

#include "decode/array/byte_column.h"
#include "headrace/decode.h"

namespace headrace {
namespace {

class MsgpackDecoder final : public ValueDecoder {
 public:
  Result<DecodeNeeds> needs(std::span<const std::byte> value) const override {
    return DecodeNeeds{.output_bytes = value.size()};
  }
  Status decode(std::span<const std::byte> value, std::uint64_t,
                std::span<std::byte> out) const override {
    HEADRACE_TRY(check_msgpack(value));
    std::copy(value.begin(), value.end(), out.begin());
    return {};
  }
};

class Msgpack final : public Decode {
 public:
  explicit Msgpack(bool is_numpy) : is_numpy_(is_numpy) {}

  Result<DecodedColumns> bind(const OutputColumn& stored) const override {
    OutputColumn output = stored;
    output.fixed_size_bytes = 0;
    if (!detail::has_plain_bytes(output)) return detail::not_plain_bytes(stored, "msgpack");
    output.encoding = is_numpy_ ? "msgpack:numpy" : "msgpack";
    return DecodedColumns{
        {.output = std::move(output), .decoder = std::make_shared<MsgpackDecoder>(), .growth = 1}};
  }

 private:
  const bool is_numpy_;
};

}  // namespace

std::shared_ptr<const Decode> decode_msgpack(bool is_numpy) {
  return std::make_shared<Msgpack>(is_numpy);
}

}  // namespace headrace
