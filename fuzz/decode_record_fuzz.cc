// The first byte chooses what a column is to become, the rest is a value: it becomes exactly the
// bytes that needs() says, or a Status.
#include <memory>
#include <span>
#include <vector>

#include "headrace/decode.h"
#include "headrace/msgpack.h"
#include "require.h"

namespace {

using namespace headrace;

void is_data_error(const Status& status) {
  require(status.ok() || status.code() == Code::kCorrupt || status.code() == Code::kUnsupported);
}

DecodedColumns columns_of(unsigned choice) {
  using Kind = TfFeature::Kind;
  const OutputColumn stored{.name = "data", .encoding = "bytes", .dtype = {}, .shape = {}};
  if (choice % 2 == 1) return *decode_msgpack(false)->bind(stored);
  const auto decode = decode_tf_example({{.name = "label", .kind = Kind::kInt64},
                                         {.name = "box", .kind = Kind::kFloat, .shape = {4}},
                                         {.name = "name"},
                                         {.name = "tokens", .kind = Kind::kInt64, .is_list = true},
                                         {.name = "scores", .kind = Kind::kFloat, .is_list = true},
                                         {.name = "parts", .is_list = true},
                                         {.name = "meta", .decode = decode_msgpack(false)}});
  require(decode.has_value());
  return *(*decode)->bind(stored);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  static const std::vector<DecodedColumns> kColumns = {columns_of(0), columns_of(1)};
  const auto value = std::as_bytes(std::span(data, size)).subspan(1);
  for (const DecodedColumn& column : kColumns[data[0] % 2]) {
    const auto needs = column.decoder->needs(value);
    if (!needs) {
      is_data_error(needs.error());
      continue;
    }
    require(column.output.is_ragged() || (*needs).output_bytes == column.output.fixed_size_bytes);
    const auto out = std::make_unique<std::byte[]>((*needs).output_bytes);
    is_data_error(column.decoder->decode(value, data[0], {out.get(), (*needs).output_bytes}));
  }
  return 0;
}
