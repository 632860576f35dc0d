#include "pack/shard_image.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "base/check.h"
#include "base/endian.h"
#include "pack/tar_format.h"

namespace headrace::pack_detail {
namespace {

constexpr std::uint16_t kEndOfFileToken = 256;

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// A stretch of the image that is being made; what lies outside is ignored.
class Window {
 public:
  Window(std::uint64_t begin, std::span<std::byte> bytes, std::uint64_t most_bytes,
         std::vector<FileRange>& ranges)
      : begin_(begin), bytes_(bytes), most_bytes_(most_bytes), ranges_(ranges) {}

  bool touches(std::uint64_t offset, std::uint64_t length) const noexcept {
    return offset < begin_ + bytes_.size() && offset + length > begin_;
  }
  void put(std::uint64_t offset, std::span<const std::byte> literal) {
    if (!touches(offset, literal.size())) return;
    const auto [from, to] = clip(offset, literal.size());
    std::memcpy(bytes_.data() + (from - begin_), literal.data() + (from - offset), to - from);
  }
  void put(std::uint64_t offset, std::string_view literal) { put(offset, as_bytes(literal)); }
  void put_u32(std::uint64_t offset, std::uint64_t value) {
    std::array<std::byte, 4> bytes{};
    store_le(bytes.data(), static_cast<std::uint32_t>(value));
    put(offset, bytes);
  }
  void put_zeros(std::uint64_t offset, std::uint64_t length) {
    if (length == 0 || !touches(offset, length)) return;
    const auto [from, to] = clip(offset, length);
    std::memset(bytes_.data() + (from - begin_), 0, to - from);
  }
  /// All of file `file` lies at `offset`.
  void put_file(std::uint64_t offset, std::uint64_t file, std::uint64_t size) {
    if (size == 0 || !touches(offset, size)) return;
    const auto [from, to] = clip(offset, size);
    for (std::uint64_t at = from; at < to; at += most_bytes_) {
      ranges_.push_back({.file = file,
                         .offset_bytes = at - offset,
                         .length_bytes = std::min(most_bytes_, to - at),
                         .window_offset_bytes = at - begin_});
    }
  }

 private:
  std::pair<std::uint64_t, std::uint64_t> clip(std::uint64_t offset,
                                               std::uint64_t length) const noexcept {
    return {std::max(begin_, offset), std::min(begin_ + bytes_.size(), offset + length)};
  }

  std::uint64_t begin_;
  std::span<std::byte> bytes_;
  std::uint64_t most_bytes_;
  std::vector<FileRange>& ranges_;
};

/// u32 count, u32 offsets, config; returns where the samples begin.
std::uint64_t mds_data_begin(const PackPlan& plan, const ShardPlan& shard) noexcept {
  return 4 + 4 * (shard.sample_count + 1) + plan.mds_config.size();
}

void draw_mds_files(const PackPlan& plan, const ShardPlan& shard, Window& window) {
  window.put_u32(0, shard.sample_count);
  std::uint64_t at = mds_data_begin(plan, shard);
  window.put(at - plan.mds_config.size(), plan.mds_config);
  window.put_u32(4, at);
  for (std::uint64_t i = 0; i < shard.file_count; ++i) {
    const ObjectInfo& file = plan.files[shard.first_file + i];
    window.put_u32(at, file.size_bytes);
    window.put_u32(at + 4, file.key.size());
    window.put_file(at + 8, shard.first_file + i, file.size_bytes);
    window.put(at + 8 + file.size_bytes, file.key);
    at += 8 + file.size_bytes + file.key.size();
    window.put_u32(8 + 4 * i, at);
  }
}

void draw_mds_tokens(const PackPlan& plan, const ShardPlan& shard, std::span<std::byte> bytes,
                     std::uint64_t most_bytes, std::vector<FileRange>& ranges) {
  HEADRACE_CHECK(bytes.size() == shard.image_bytes);
  const std::uint64_t data = mds_data_begin(plan, shard);
  const std::uint64_t sample_bytes = 2 * std::uint64_t{plan.tokens_per_sample};
  store_le(bytes.data(), static_cast<std::uint32_t>(shard.sample_count));
  for (std::uint64_t i = 0; i <= shard.sample_count; ++i) {
    store_le(bytes.data() + 4 + 4 * i, static_cast<std::uint32_t>(data + i * sample_bytes));
  }
  std::memcpy(bytes.data() + data - plan.mds_config.size(), plan.mds_config.data(),
              plan.mds_config.size());
  const std::uint64_t begin = shard.first_sample * plan.tokens_per_sample;
  const std::uint64_t end = begin + shard.sample_count * plan.tokens_per_sample;
  for (std::uint64_t file = shard.first_file;
       file < plan.files.size() && plan.first_token[file] < end; ++file) {
    const std::uint64_t first = plan.first_token[file];
    const std::uint64_t last = plan.first_token[file + 1] - 1;  // The token that ends the file.
    for (std::uint64_t at = std::max(begin, first); at < std::min(end, last); at += most_bytes) {
      ranges.push_back({.file = file,
                        .offset_bytes = at - first,
                        .length_bytes = std::min(most_bytes, std::min(end, last) - at),
                        .window_offset_bytes = data + 2 * (at - begin)});
    }
    if (last >= begin && last < end)
      store_le(bytes.data() + data + 2 * (last - begin), kEndOfFileToken);
  }
}

struct MemberNames {
  std::string data;
  std::string key;  ///< Empty: no such member.
};

MemberNames member_names(const PackPlan& plan, std::uint64_t file) {
  if (!plan.is_numbered) return {plan.files[file].key, {}};
  std::array<char, 32> number{};
  std::snprintf(number.data(), number.size(), "%09llu", static_cast<unsigned long long>(file));
  return {std::string(number.data()) + ".data", std::string(number.data()) + ".key.txt"};
}

void draw_tar_files(const PackPlan& plan, const ShardPlan& shard, Window& window) {
  std::uint64_t at = 0;
  for (std::uint64_t i = shard.first_file; i < shard.first_file + shard.file_count; ++i) {
    const std::uint64_t length = file_image_bytes(plan, i);
    if (window.touches(at, length)) {
      const ObjectInfo& file = plan.files[i];
      const MemberNames names = member_names(plan, i);
      const std::string header = tar_header(names.data, file.size_bytes);
      std::uint64_t inside = at + header.size();
      window.put(at, header);
      window.put_file(inside, i, file.size_bytes);
      inside += file.size_bytes;
      window.put_zeros(inside, tar_padding(file.size_bytes));
      inside += tar_padding(file.size_bytes);
      if (!names.key.empty()) {
        const std::string key_header = tar_header(names.key, file.key.size());
        window.put(inside, key_header);
        window.put(inside + key_header.size(), file.key);
        window.put_zeros(inside + key_header.size() + file.key.size(),
                         tar_padding(file.key.size()));
      }
    }
    at += length;
  }
  window.put_zeros(at, kTarEndBytes);
}

}  // namespace

void draw_window(const PackPlan& plan, std::uint64_t shard, std::uint64_t begin,
                 std::span<std::byte> window, std::uint64_t most_bytes,
                 std::vector<FileRange>& ranges) {
  Window target(begin, window, most_bytes, ranges);
  switch (plan.layout) {
    case Layout::kMdsFiles:
      return draw_mds_files(plan, plan.shards[shard], target);
    case Layout::kMdsTokens:
      return draw_mds_tokens(plan, plan.shards[shard], window, most_bytes, ranges);
    case Layout::kTarFiles:
      return draw_tar_files(plan, plan.shards[shard], target);
  }
}

void place_bytes(const PackPlan& plan, const FileRange& range, std::span<const std::byte> bytes,
                 std::span<std::byte> window) {
  std::byte* to = window.data() + range.window_offset_bytes;
  if (plan.layout != Layout::kMdsTokens) {
    std::memcpy(to, bytes.data(), bytes.size());
    return;
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    store_le(to + 2 * i, static_cast<std::uint16_t>(bytes[i]));
  }
}

std::uint64_t file_image_bytes(const PackPlan& plan, std::uint64_t file) {
  const ObjectInfo& info = plan.files[file];
  if (plan.layout == Layout::kMdsFiles) return 8 + info.size_bytes + info.key.size();
  const MemberNames names = member_names(plan, file);
  std::uint64_t bytes = tar_header_bytes(names.data, info.size_bytes) + info.size_bytes +
                        tar_padding(info.size_bytes);
  if (!names.key.empty()) {
    bytes += tar_header_bytes(names.key, info.key.size()) + info.key.size() +
             tar_padding(info.key.size());
  }
  return bytes;
}

nlohmann::json mds_config_json(const PackPlan& plan) {
  using nlohmann::json;
  json config;
  if (plan.layout == Layout::kMdsTokens) {
    config["column_names"] = json::array({"tokens"});
    config["column_encodings"] =
        json::array({"ndarray:uint16:" + std::to_string(plan.tokens_per_sample)});
    config["column_sizes"] = json::array({2 * std::uint64_t{plan.tokens_per_sample}});
  } else {
    config["column_names"] = json::array({"data", "key"});
    config["column_encodings"] = json::array({"bytes", "str"});
    config["column_sizes"] = json::array({nullptr, nullptr});
  }
  config["compression"] = plan.compression.empty() ? json() : json(plan.compression);
  config["format"] = "mds";
  config["hashes"] = plan.hash.empty() ? json::array() : json::array({plan.hash});
  config["size_limit"] = plan.shard_bytes;
  config["version"] = 2;
  return config;
}

}  // namespace headrace::pack_detail
