// Any bytes as a tar: the scan ends, and cutting a sample where the scan found one agrees with it.
// Unless the first byte is odd, blocks that look like headers get the right checksum first, or no
// mutation would pass it.
#include <algorithm>
#include <cstring>
#include <vector>

#include "require.h"
#include "shard/formats/webdataset/sample_cutter.h"
#include "shard/formats/webdataset/tar_scan.h"
#include "shard/testing/drive_scan.h"

namespace {

using headrace::Column;
using headrace::ColumnBytes;
using headrace::detail::FileSamples;
using headrace::detail::SampleCutter;
using headrace::detail::TarScan;

void sign_headers(std::vector<std::uint8_t>& tar) {
  for (std::size_t at = 0; at + 512 <= tar.size(); at += 512) {
    std::uint8_t* header = tar.data() + at;
    if (std::memcmp(header + 257, "ustar", 5) != 0) continue;
    std::memset(header + 148, ' ', 8);
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < 512; ++i) sum += header[i];
    for (std::size_t digit = 6; digit-- > 0; sum /= 8)
      header[148 + digit] = static_cast<std::uint8_t>('0' + sum % 8);
  }
}

void cut_samples(std::span<const std::byte> tar, const FileSamples& samples) {
  auto facts = headrace::detail::TarFacts::from_text(samples.facts);
  require(facts.has_value());
  std::vector<Column> columns(1);
  columns[0].name = "__key__";
  for (const std::string& suffix : facts->suffixes) columns.emplace_back().name = suffix;
  const SampleCutter cutter(columns);
  std::vector<ColumnBytes> out(columns.size());
  for (std::uint64_t i = 0; i < samples.sample_count(); ++i) {
    const std::uint64_t begin = samples.bounds[samples.has_gaps ? 2 * i : i];
    const std::uint64_t end = samples.bounds[samples.has_gaps ? 2 * i + 1 : i + 1];
    require(begin < end && end <= tar.size());
    const auto run = tar.subspan(begin, end - begin);
    require(cutter.cut(run, out).ok());
    require(
        std::any_of(out.begin() + 1, out.end(), [](const ColumnBytes& c) { return c.present; }));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t piece = 512 + 64 * std::size_t{data[0]};
  std::vector<std::uint8_t> content(data + 1, data + size);
  if (data[0] % 2 == 0) sign_headers(content);
  const auto tar = std::as_bytes(std::span(content));
  TarScan scan(size % 2 == 0);
  if (headrace::testing::drive_scan(scan, tar, piece).ok()) cut_samples(tar, scan.take());
  return 0;
}
