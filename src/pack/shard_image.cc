// A shard as a picture: literal bytes, and places where files' bytes go. Drawing is the same for
// the whole image and for a window of it; what lies outside of a window is passed over, so an
// image larger than memory is drawn window by window.
//
// The sizes drawn must be those that file_image_bytes() has planned, to the byte: a finished shard
// is known by its size, and reads go to places computed from them.
//
// Tokens: byte b of a file is the uint16 b, and 256 ends each file; so a file's bytes take twice
// their room, and place_bytes() widens them.
#include "pack/shard_image.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/endian.h"
#include "pack/tar_format.h"

namespace headrace::pack_detail {
namespace {

constexpr std::uint16_t kEndOfFileToken = 256;
constexpr const char* kDataSuffix = ".data";
constexpr const char* kKeySuffix = ".key.txt";

/// A stretch of the image that is being made; what lies outside is ignored.
class Window final : public ImageSink {
 public:
  Window(std::uint64_t begin, std::span<std::byte> bytes, std::uint64_t most_bytes,
         std::vector<FileRange>& ranges)
      : begin_(begin), bytes_(bytes), most_bytes_(most_bytes), ranges_(ranges) {}

  void put(std::string_view literal) override {
    const auto [from, to] = clip(literal.size());
    if (from < to) std::memcpy(bytes_.data() + (from - begin_), &literal[from - at_], to - from);
    at_ += literal.size();
  }
  void put_zeros(std::uint64_t length) override {
    const auto [from, to] = clip(length);
    if (from < to) std::memset(bytes_.data() + (from - begin_), 0, to - from);
    at_ += length;
  }
  void put_file(std::uint64_t file, std::uint64_t size) override {
    const auto [from, to] = clip(size);
    for (std::uint64_t at = from; at < to; at += most_bytes_) {
      ranges_.push_back({.file = file,
                         .offset_bytes = at - at_,
                         .length_bytes = std::min(most_bytes_, to - at),
                         .window_offset_bytes = at - begin_});
    }
    at_ += size;
  }
  bool wants_more() const override { return at_ < begin_ + bytes_.size(); }

 private:
  std::pair<std::uint64_t, std::uint64_t> clip(std::uint64_t length) const noexcept {
    return {std::max(begin_, at_), std::min(begin_ + bytes_.size(), at_ + length)};
  }

  std::uint64_t at_ = 0;  ///< Where in the image the next piece goes.
  std::uint64_t begin_;
  std::span<std::byte> bytes_;
  std::uint64_t most_bytes_;
  std::vector<FileRange>& ranges_;
};

/// u32 count, u32 offsets, config; returns where the samples begin.
std::uint64_t mds_data_begin(const PackPlan& plan, const ShardPlan& shard) noexcept {
  return 4 + 4 * (shard.sample_count + 1) + plan.mds_config.size();
}

std::string u32_text(std::uint64_t value) {
  std::array<char, 4> bytes{};
  store_le(reinterpret_cast<std::byte*>(bytes.data()), static_cast<std::uint32_t>(value));
  return {bytes.data(), bytes.size()};
}

/// u32 count, the offsets, the config.
std::string mds_head(const PackPlan& plan, const ShardPlan& shard) {
  std::uint64_t at = mds_data_begin(plan, shard);
  std::string head(at, '\0');
  auto* const bytes = reinterpret_cast<std::byte*>(head.data());
  store_le(bytes, static_cast<std::uint32_t>(shard.sample_count));
  store_le(bytes + 4, static_cast<std::uint32_t>(at));
  for (std::uint64_t i = 0; i < shard.file_count; ++i) {
    const ObjectInfo& file = plan.files[shard.first_file + i];
    at += 8 + file.size_bytes + file.key.size();
    store_le(bytes + 8 + 4 * i, static_cast<std::uint32_t>(at));
  }
  std::copy(plan.mds_config.begin(), plan.mds_config.end(),
            head.end() - std::ptrdiff_t(plan.mds_config.size()));
  return head;
}

void draw_mds_files(const PackPlan& plan, const ShardPlan& shard, ImageSink& sink) {
  sink.put(mds_head(plan, shard));
  for (std::uint64_t i = shard.first_file; i < shard.first_file + shard.file_count; ++i) {
    if (!sink.wants_more()) return;
    const ObjectInfo& file = plan.files[i];
    sink.put(u32_text(file.size_bytes) + u32_text(file.key.size()));
    sink.put_file(i, file.size_bytes);
    sink.put(file.key);
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

/// "000000042.data": the name of a member of file 42.
class MemberName {
 public:
  MemberName(std::uint64_t file, std::string_view suffix) {
    std::size_t digits = kLeastDigits;
    for (std::uint64_t rest = file / 1'000'000'000; rest > 0; rest /= 10) ++digits;
    for (std::size_t i = digits; i-- > 0; file /= 10) text_[i] = static_cast<char>('0' + file % 10);
    std::copy(suffix.begin(), suffix.end(), text_.begin() + static_cast<std::ptrdiff_t>(digits));
    size_ = digits + suffix.size();
  }
  std::string_view view() const noexcept { return {text_.data(), size_}; }

 private:
  static constexpr std::size_t kLeastDigits = 9;
  std::array<char, 32> text_{};  // 20 digits at most and a suffix.
  std::size_t size_ = 0;
};

void put_header(std::string_view name, std::uint64_t size, ImageSink& sink) {
  TarBlock block;
  if (fill_tar_header(name, size, block)) {
    sink.put({block.data(), block.size()});
  } else {
    sink.put(tar_header(name, size));
  }
}

void draw_tar_files(const PackPlan& plan, const ShardPlan& shard, ImageSink& sink) {
  for (std::uint64_t i = shard.first_file; i < shard.first_file + shard.file_count; ++i) {
    if (!sink.wants_more()) return;
    const ObjectInfo& file = plan.files[i];
    put_header(plan.is_numbered ? MemberName(i, kDataSuffix).view() : std::string_view(file.key),
               file.size_bytes, sink);
    sink.put_file(i, file.size_bytes);
    sink.put_zeros(tar_padding(file.size_bytes));
    if (!plan.is_numbered) continue;
    put_header(MemberName(i, kKeySuffix).view(), file.key.size(), sink);
    sink.put(file.key);
    sink.put_zeros(tar_padding(file.key.size()));
  }
  sink.put_zeros(kTarEndBytes);
}

}  // namespace

void draw_files(const PackPlan& plan, std::uint64_t shard, ImageSink& sink) {
  HEADRACE_CHECK(plan.layout != Layout::kMdsTokens);
  if (plan.layout == Layout::kMdsFiles) return draw_mds_files(plan, plan.shards[shard], sink);
  draw_tar_files(plan, plan.shards[shard], sink);
}

void draw_window(const PackPlan& plan, std::uint64_t shard, std::uint64_t begin,
                 std::span<std::byte> window, std::uint64_t most_bytes,
                 std::vector<FileRange>& ranges) {
  if (plan.layout == Layout::kMdsTokens) {
    return draw_mds_tokens(plan, plan.shards[shard], window, most_bytes, ranges);
  }
  Window target(begin, window, most_bytes, ranges);
  draw_files(plan, shard, target);
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
  const std::uint64_t data = info.size_bytes + tar_padding(info.size_bytes);
  if (!plan.is_numbered) return tar_header_bytes(info.key, info.size_bytes) + data;
  // A number is always short enough for ustar.
  return tar_header_bytes(kDataSuffix, info.size_bytes) + data + kTarBlockBytes + info.key.size() +
         tar_padding(info.key.size());
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
