#pragma once
/// \file
/// Tar members as we write them (ustar, a pax header where a name or size does not fit), and which
/// names make WebDataset readers see one sample a file. Pure.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace headrace::pack_detail {

constexpr std::uint64_t kTarBlockBytes = 512;
constexpr std::uint64_t kTarEndBytes = 2 * kTarBlockBytes;

/// Bytes that fill `size` up to whole tar blocks.
constexpr std::uint64_t tar_padding(std::uint64_t size) noexcept {
  return (kTarBlockBytes - size % kTarBlockBytes) % kTarBlockBytes;
}

/// Everything before a member's data: one header, or a pax header, its record and the header. Mode
/// 0444, all times, owners and groups 0, so that the bytes depend on nothing else.
std::string tar_header(std::string_view name, std::uint64_t size);
using TarBlock = std::array<char, kTarBlockBytes>;
/// tar_header() without memory of its own, where that is one block; else false.
bool fill_tar_header(std::string_view name, std::uint64_t size, TarBlock& block);
/// Length of tar_header() without making it.
std::uint64_t tar_header_bytes(std::string_view name, std::uint64_t size);

/// The part of a member name that WebDataset groups by: up to the first dot of the base name. Empty
/// when a reader would not take the member for data (no dot, nothing before or after it, a
/// `__name__` prefix), or when it leads out of a folder (absolute, or with `..`) or has `//`.
std::string_view webdataset_group(std::string_view name);

/// Whether files, in byte order of their names, make samples by these names: a file alone, or
/// several that are called alike but for their extensions ("x.jpg", "x.json", "x.seg.png"). Of
/// "x.1.jpg" and "x.2.jpg" nobody knows.
class TarSamples {
 public:
  /// False when readers would not take this name for data, or find it apart from the others of its
  /// sample. `name` must outlive this.
  bool add(std::string_view name);
  /// Call once, last. False when the names added last are no sample.
  bool finish() const { return is_sample(); }
  std::uint64_t count() const noexcept { return groups_.size(); }

 private:
  bool is_sample() const;

  std::string_view group_;
  std::vector<std::string> suffixes_;  ///< Of the files of group_, in lower case.
  std::unordered_set<std::string_view> groups_;
};

}  // namespace headrace::pack_detail
