// Format: safetensors 0.8 (u64 length | JSON | data). Its readers demand that the data is covered
// without holes or overlaps and that no name comes twice; both follow from how places are given
// out here, which layout tests compare with the package itself.
#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "base/endian.h"
#include "headrace/checkpoint.h"
#include "seal/seal_header.h"

namespace headrace::checkpoint {
namespace {

constexpr std::uint64_t kMostHeaderBytes = 100'000'000;
constexpr std::uint64_t kDataAlignBytes = 4096;
constexpr std::size_t kLengthBytes = 8;
/// Read as safetensors, a header longer than that format allows.
constexpr std::string_view kCompressedMagic = "HRPACKED";

struct Dtype {
  std::string_view name;
  std::uint32_t bits;
};
// safetensors 0.8, `Dtype`.
constexpr std::array kDtypes = std::to_array<Dtype>({
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
});

Status invalid(const Piece& piece, const std::string& why) {
  return Status(Code::kInvalidArgument, "tensor '" + piece.name + "': " + why);
}

Result<std::uint64_t> bytes_of(const Piece& piece, std::uint32_t bits) {
  std::uint64_t total = bits;
  for (const std::uint64_t size : piece.shape) {
    if (size != 0 && total > std::numeric_limits<std::uint64_t>::max() / size)
      return invalid(piece, "its size does not fit 64 bits");
    total *= size;
  }
  if (total % 8 != 0) return invalid(piece, "its last element does not end on a byte");
  return total / 8;
}

}  // namespace

Result<std::uint32_t> bits_of_dtype(std::string_view dtype) {
  const auto* const found = std::ranges::find(kDtypes, dtype, &Dtype::name);
  if (found == kDtypes.end()) {
    return Status(Code::kInvalidArgument,
                  "'" + std::string(dtype) + "' is no dtype of the safetensors format");
  }
  return found->bits;
}

Status DataLayout::set_pieces(std::vector<Piece> pieces) {
  std::vector<std::uint32_t> bits(pieces.size());
  std::vector<std::uint64_t> lengths(pieces.size());
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].name == "__metadata__" || !names.insert(pieces[i].name).second)
      return invalid(pieces[i], "the name may be there only once, and not be __metadata__");
    HEADRACE_TRY_ASSIGN(bits[i], bits_of_dtype(pieces[i].dtype));
    HEADRACE_TRY_ASSIGN(lengths[i], bytes_of(pieces[i], bits[i]));
  }
  order_.resize(pieces.size());
  std::iota(order_.begin(), order_.end(), 0U);
  std::ranges::stable_sort(order_, std::greater(), [&](std::uint32_t i) { return bits[i]; });
  places_.resize(pieces.size());
  for (const std::uint32_t i : order_) {
    if (lengths[i] > (std::uint64_t{1} << 62) - size_bytes_)
      return invalid(pieces[i], "is too large");
    places_[i] = {next_place(lengths[i]), lengths[i]};
    size_bytes_ = places_[i].offset_bytes + lengths[i];
  }
  pieces_ = std::move(pieces);
  return {};
}

std::uint64_t DataLayout::next_place(std::uint64_t length_bytes) const noexcept {
  const std::uint64_t used_bytes = size_bytes_ % kSumBlockBytes;
  // What is less than a block shares one with others: a state may have 100,000 numbers.
  if (!is_compressed_ || used_bytes + length_bytes <= kSumBlockBytes) return size_bytes_;
  return used_bytes == 0 ? size_bytes_ : size_bytes_ - used_bytes + kSumBlockBytes;
}

void DataLayout::set_header(std::string header) {
  header_ = std::move(header);
  for (PlacedPiece& place : places_) place.offset_bytes += header_.size();
  size_bytes_ += header_.size();
}

Result<DataLayout> DataLayout::make(std::vector<Piece> pieces,
                                    const std::map<std::string, std::string>& metadata) {
  DataLayout layout;
  HEADRACE_TRY(layout.set_pieces(std::move(pieces)));
  auto header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  for (const std::uint32_t i : layout.order_) {
    const Piece& piece = layout.pieces_[i];
    const PlacedPiece& place = layout.places_[i];
    header[piece.name] = {
        {"dtype", piece.dtype},
        {"shape", piece.shape},
        {"data_offsets", {place.offset_bytes, place.offset_bytes + place.length_bytes}}};
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    return Status(Code::kInvalidArgument, "a tensor's name or the metadata is not UTF-8");
  }
  const std::uint64_t data_at =
      (kLengthBytes + text.size() + kDataAlignBytes - 1) / kDataAlignBytes * kDataAlignBytes;
  text.resize(data_at - kLengthBytes, ' ');
  if (text.size() > kMostHeaderBytes) {
    return Status(Code::kInvalidArgument,
                  "the header would have " + std::to_string(text.size()) +
                      " bytes, more than the safetensors format allows (100,000,000)");
  }
  std::array<std::byte, kLengthBytes> length{};
  store_le<std::uint64_t>(length.data(), text.size());
  layout.set_header(std::string(reinterpret_cast<const char*>(length.data()), length.size()) +
                    text);
  return layout;
}

Result<DataLayout> DataLayout::make_sealed(std::vector<Piece> pieces,
                                           std::shared_ptr<const SealKey> key) {
  DataLayout layout;
  HEADRACE_TRY(layout.set_pieces(std::move(pieces)));
  // Its first eight bytes, too, are such a header.
  std::string header = seal::make_seal_header(*key, seal::random_salt());
  header.resize(kDataAlignBytes);
  layout.set_header(std::move(header));
  layout.key_ = std::move(key);
  return layout;
}

Result<DataLayout> DataLayout::make_compressed(std::vector<Piece> pieces,
                                               std::shared_ptr<const SealKey> key) {
  DataLayout layout;
  layout.is_compressed_ = true;
  layout.header_ =
      key ? seal::make_seal_header(*key, seal::random_salt()) : std::string(kCompressedMagic);
  layout.header_.resize(kDataAlignBytes);
  layout.size_bytes_ = kSumBlockBytes;  // So that blocks begin at multiples.
  HEADRACE_TRY(layout.set_pieces(std::move(pieces)));
  layout.key_ = std::move(key);
  return layout;
}

}  // namespace headrace::checkpoint
