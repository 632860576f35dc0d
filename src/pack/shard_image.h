#pragma once
/// \file
/// The bytes of a shard as a picture of what comes from where: literal bytes (headers, names,
/// offsets) and ranges of files. A window of the picture can be made alone, so a shard larger than
/// memory is written in parts. Pure.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "pack/plan.h"

namespace headrace::pack_detail {

/// Takes the pieces of a shard in the order of their places, without gaps.
class ImageSink {
 public:
  virtual void put(std::string_view literal) = 0;
  virtual void put_zeros(std::uint64_t length) = 0;
  /// All of file `file`.
  virtual void put_file(std::uint64_t file, std::uint64_t size) = 0;
  /// False: the rest need not come.
  virtual bool wants_more() const = 0;

 protected:
  ~ImageSink() = default;
};

/// Tells `sink` the whole shard. File layouts only.
void draw_files(const PackPlan& plan, std::uint64_t shard, ImageSink& sink);

/// A range of a file and where it goes.
struct FileRange {
  std::uint64_t file = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;
  std::uint64_t window_offset_bytes = 0;  ///< First byte of the target, from the window's start.
};

/// Writes the literal bytes of [begin, begin + window.size()) of the shard's image into `window`,
/// and appends the ranges of files that fill the rest, none longer than `most_bytes`. Token shards
/// only as a whole.
void draw_window(const PackPlan& plan, std::uint64_t shard, std::uint64_t begin,
                 std::span<std::byte> window, std::uint64_t most_bytes,
                 std::vector<FileRange>& ranges);

/// Puts bytes read from a file to their place: a copy, or two bytes each as tokens.
void place_bytes(const PackPlan& plan, const FileRange& range, std::span<const std::byte> bytes,
                 std::span<std::byte> window);

/// Bytes that a file takes in a shard (file layouts), MDS offset not included.
std::uint64_t file_image_bytes(const PackPlan& plan, std::uint64_t file);

/// The JSON object inside every MDS shard; part of the index as well.
nlohmann::json mds_config_json(const PackPlan& plan);

}  // namespace headrace::pack_detail
