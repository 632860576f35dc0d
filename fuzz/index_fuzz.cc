// Any bytes as an `*.hri` (checksums aside): whatever opens can be asked everything, and every
// answer is inside its shard.
#include <vector>

#include "require.h"
#include "shard/dataset/indexed_dataset.h"

namespace {

using headrace::Block;
using headrace::BlockBytes;
using headrace::ColumnBytes;
using headrace::Dataset;
using headrace::Extent;
namespace detail = headrace::detail;

void ask(const Dataset& dataset) {
  std::uint64_t position = 0;
  std::vector<Extent> extents;
  std::vector<ColumnBytes> columns(dataset.columns().size());
  std::vector<std::byte> buffer(4096);
  for (std::uint32_t b = 0; b < dataset.block_count() && b < 64; ++b) {
    const Block block = dataset.block(b);
    require(block.first_sample == position && block.sample_count > 0 &&
            block.shard < dataset.shard_count());
    require(dataset.block_of(position) == b &&
            dataset.block_of(position + block.sample_count - 1) == b);
    position += block.sample_count;
    const std::uint32_t end = std::min<std::uint32_t>(block.sample_count, 40);
    extents.clear();
    const std::uint64_t bytes = dataset.append_extents(b, 0, end, extents);
    std::uint64_t filled = 0;
    for (const Extent& extent : extents) {
      require(extent.target_offset_bytes == filled && extent.length_bytes > 0);
      filled += extent.length_bytes;
    }
    require(filled == bytes);
    buffer.resize(std::min<std::uint64_t>(bytes, 4096));
    for (std::uint32_t i = 0; i < end; ++i) (void)dataset.cut({b, 0, end, buffer}, i, columns);
    (void)dataset.verify(b, buffer);
    if (dataset.is_compressed(b) && block.raw_bytes <= 65536) {
      std::vector<std::byte> raw(block.raw_bytes);
      (void)dataset.decompress(b, buffer, raw);
    }
    (void)dataset.shard(block.shard);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  detail::DatasetParts parts;
  parts.bytes = detail::IndexBytes(std::string(reinterpret_cast<const char*>(data), size));
  auto view = detail::IndexView::parse(parts.bytes.bytes(), false);
  if (!view) return 0;
  parts.view = *std::move(view);
  // The bound of blocks is lower here so that a hostile index costs little time.
  auto blocks = detail::make_blocks(parts.view, std::uint64_t{1} << 20, 4096);
  if (!blocks) return 0;
  parts.blocks = *std::move(blocks);
  auto dataset = detail::make_dataset(std::move(parts), headrace::DatasetOptions{});
  if (dataset) ask(**dataset);
  return 0;
}
