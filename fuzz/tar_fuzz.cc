// Any bytes as a tar: the scan ends, and cutting a sample where the scan found one agrees with it.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "shard/webdataset/sample_cutter.h"
#include "shard/webdataset/tar_scan.h"

namespace {

using headrace::Column;
using headrace::ColumnBytes;
using headrace::detail::SampleCutter;
using headrace::detail::TarScan;

void require(bool condition) {
  if (!condition) std::abort();
}

void cut_samples(std::span<const std::byte> tar, const TarScan& scan) {
  std::vector<Column> columns(1);
  columns[0].name = "__key__";
  for (const std::string& suffix : scan.samples().suffixes()) columns.emplace_back().name = suffix;
  const SampleCutter cutter(columns);
  std::vector<ColumnBytes> out(columns.size());
  const auto& bounds = scan.samples().bounds();
  const auto& joined = scan.samples().joined_keys();
  for (std::uint64_t i = 0; i < scan.samples().sample_count(); ++i) {
    const auto key = std::find_if(joined.begin(), joined.end(),
                                  [i](const auto& entry) { return entry.first == i; });
    require(bounds[2 * i] < bounds[2 * i + 1] && bounds[2 * i + 1] <= tar.size());
    const auto run = tar.subspan(bounds[2 * i], bounds[2 * i + 1] - bounds[2 * i]);
    require(cutter.cut(run, key == joined.end() ? "" : key->second, out).ok());
    require(
        std::any_of(out.begin() + 1, out.end(), [](const ColumnBytes& c) { return c.present; }));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t piece = 512 + 64 * std::size_t{data[0]};
  const auto tar = std::as_bytes(std::span(data, size)).subspan(1);
  TarScan scan(tar.size());
  while (!scan.is_done()) {
    const std::uint64_t offset = scan.offset();
    const std::uint64_t wanted = std::max<std::uint64_t>(piece, scan.needed_bytes());
    const auto bytes = tar.subspan(offset, std::min<std::uint64_t>(wanted, tar.size() - offset));
    const std::uint64_t needed = scan.needed_bytes();
    if (!scan.feed(bytes).ok()) return 0;
    require(scan.is_done() || scan.offset() > offset || scan.needed_bytes() > needed);
  }
  cut_samples(tar, scan);
  return 0;
}
