// The first byte chooses: the index of a Megatron .bin, a .npy header, a zip directory.
#include <algorithm>
#include <span>

#include "require.h"
#include "shard/formats/numpy/npy_header.h"
#include "shard/formats/numpy/zip_directory.h"
#include "shard/formats/tokens/megatron.h"

namespace {

namespace detail = headrace::detail;

void read_idx(std::span<const std::byte> bytes) {
  const std::uint64_t bin_bytes = std::to_integer<std::uint64_t>(bytes[0]) * 8;
  auto bounds = detail::parse_megatron_bounds(bytes.subspan(1), bin_bytes);
  if (!bounds) return;
  require(!bounds->empty() && bounds->back() == bin_bytes);
  require(std::is_sorted(bounds->begin(), bounds->end()));
}

void read_header(std::span<const std::byte> bytes) {
  auto header = detail::parse_npy_header(bytes);
  if (!header) return;
  require(header->data_offset <= bytes.size() && header->row_bytes > 0);
  require(header->data_bytes() >> 63 == 0);
}

void read_zip(std::span<const std::byte> bytes) {
  auto place = detail::find_zip_directory(bytes, bytes.size());
  if (!place) return;
  require(place->offset_bytes + place->length_bytes <= bytes.size());
  auto members =
      detail::parse_zip_directory(bytes.subspan(place->offset_bytes), *place, bytes.size());
  if (!members) return;
  for (const auto& member : *members)
    require(member.header_offset + member.stored_bytes <= bytes.size());
  (void)detail::zip_local_header_bytes(bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  if (data[0] % 3 == 0) {
    read_idx(bytes);
  } else if (data[0] % 3 == 1) {
    read_header(bytes);
  } else {
    read_zip(bytes);
  }
  return 0;
}
