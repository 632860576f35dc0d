// Any bytes as a TFRecord file or as one tf.train.Example. What a scan found can be cut, and what
// was cut can be written. Unless the first byte is odd, the checksums of frames are made right
// first, or no mutation would pass them.
#include <cstring>
#include <vector>

#include "base/crc32c.h"
#include "base/endian.h"
#include "require.h"
#include "shard/formats/tfrecord/example_cutter.h"
#include "shard/formats/tfrecord/record.h"
#include "shard/formats/tfrecord/record_scan.h"
#include "shard/testing/drive_scan.h"

namespace {

using headrace::ColumnBytes;
namespace detail = headrace::detail;

void sign_frames(std::vector<std::byte>& file) {
  std::size_t at = 0;
  while (file.size() - at >= 16) {
    // Lengths of mutations are small or nothing fits.
    auto length = headrace::load_le<std::uint64_t>(file.data() + at) % 4096;
    length = std::min<std::uint64_t>(length, file.size() - at - 16);
    headrace::store_le(file.data() + at, length);
    const std::span<const std::byte> frame(file.data() + at, 16 + length);
    headrace::store_le(file.data() + at + 8, detail::mask_crc(headrace::crc32c(frame.first(8))));
    headrace::store_le(file.data() + at + 12 + length,
                       detail::mask_crc(headrace::crc32c(frame.subspan(12, length))));
    at += 16 + length;
  }
}

// Writes every value into memory of its own size, so that a sanitizer sees one byte more.
void write_all(const std::vector<ColumnBytes>& cells) {
  for (const ColumnBytes& cell : cells) {
    if (!cell.present) continue;
    require(cell.size() < (std::uint64_t{1} << 24));
    std::vector<std::byte> out(cell.size());
    cell.write_to(out);
  }
}

void cut_example(std::span<const std::byte> message) {
  detail::ExampleSchema schema;
  std::string why;
  if (!schema.add(message, why)) return;
  auto again = detail::ExampleSchema::from_text(schema.to_text());
  require(again.has_value() && again->to_text() == schema.to_text());
  auto layout = schema.layout({});
  if (!layout) return;
  auto parsed = detail::parse_example_layout(detail::layout_to_json(*layout));
  require(parsed.has_value() && parsed->columns.size() == layout->columns.size());
  const detail::ExampleCutter cutter(*layout);
  std::vector<ColumnBytes> cells(layout->columns.size());
  require(cutter.cut(message, cells).ok());
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::uint64_t fixed = detail::example_columns(*layout)[i].fixed_size_bytes;
    require(!cells[i].present || fixed == 0 || cells[i].size() == fixed);
  }
  write_all(cells);
}

void read_file(std::span<const std::byte> file, std::uint64_t piece_bytes) {
  detail::RecordScan scan({.wants_schema = true, .is_lenient = piece_bytes % 2 == 0});
  if (!headrace::testing::drive_scan(scan, file, piece_bytes).ok()) return;
  const detail::FileSamples samples = scan.take();
  auto facts = detail::RecordFacts::from_text(samples.facts);
  require(facts.has_value());
  auto layout = facts->schema.layout({});
  if (!layout) return;
  const detail::ExampleCutter cutter(*layout);
  std::vector<ColumnBytes> cells(layout->columns.size());
  for (std::uint64_t i = 0; i < samples.sample_count(); ++i) {
    require(samples.bounds[i] < samples.bounds[i + 1] && samples.bounds[i + 1] <= file.size());
    auto record = detail::open_record(
        file.subspan(samples.bounds[i], samples.bounds[i + 1] - samples.bounds[i]));
    require(record.has_value());
    const bool is_cut = cutter.cut(*record, cells).ok();
    require(is_cut || !facts->problem.empty());
    if (is_cut) write_all(cells);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  if (data[0] % 4 == 3) {
    cut_example(bytes);
    return 0;
  }
  std::vector<std::byte> file(bytes.begin(), bytes.end());
  if (data[0] % 2 == 0) sign_frames(file);
  read_file(file, 1 + std::uint64_t{data[0]} * 16);
  return 0;
}
