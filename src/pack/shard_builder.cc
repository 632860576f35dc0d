// A shard is built in memory: samples are appended to body_, and head, tail and compression come
// when it is taken. A sample is in the shard as a whole or not at all: stage() writes it aside, so
// that the caller can see how large the shard would be, and add_samples() cuts body_ back when a
// sample fails.
//
// Bytes depend on samples and options alone, not on when or where: gzip members have no name and
// no time, and compression runs over the whole shard at once.
#include <simdjson.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/strings.h"
#include "headrace/pack.h"
#include "pack/digest.h"
#include "pack/json_text.h"
#include "pack/sample_format.h"
#include "read/run_reader.h"

namespace headrace {
namespace {

using namespace pack_detail;  // NOLINT(google-build-using-namespace): the folder's own namespace

struct Codec {
  std::string_view name;  ///< "", "zstd", "gzip".
  int level = 0;
};

Result<Codec> parse_codec(const ShardFormat& format) {
  if (format.compression.empty()) return Codec{};
  const std::string_view text = format.compression;
  const std::size_t colon = std::min(text.find(':'), text.size());
  const bool has_zstd = format.format == "mds" || format.format == "litdata";
  Codec codec{.name = has_zstd ? "zstd" : "gzip", .level = has_zstd ? 3 : 6};
  const std::uint32_t most = has_zstd ? 22 : 9;
  if (text.substr(0, colon) != codec.name) {
    return Status(Code::kUnsupported, "compression '" + std::string(text) + "': " + format.format +
                                          " is written with " + std::string(codec.name) + " or " +
                                          std::string(codec.name) + ":LEVEL");
  }
  if (colon < text.size()) {
    const auto level = parse_decimal<std::uint32_t>(text.substr(colon + 1));
    if (!level || *level < 1 || *level > most) {
      return Status(Code::kInvalidArgument, "compression '" + std::string(text) +
                                                "': levels are 1 to " + std::to_string(most));
    }
    codec.level = static_cast<int>(*level);
  }
  return codec;
}

Result<std::vector<std::byte>> zstd_of(std::span<const std::byte> raw, int level) {
  std::vector<std::byte> out(ZSTD_compressBound(raw.size()));
  const std::size_t length = ZSTD_compress(out.data(), out.size(), raw.data(), raw.size(), level);
  if (ZSTD_isError(length))
    return Status(Code::kInternal, std::string("zstd: ") + ZSTD_getErrorName(length));
  out.resize(length);
  return out;
}

/// One member without name and time, so that the bytes depend on nothing else.
Result<std::vector<std::byte>> gzip_of(std::span<const std::byte> raw, int level) {
  z_stream stream{};
  if (deflateInit2(&stream, level, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    return Status(Code::kExhausted, "gzip: no memory");
  std::vector<std::byte> out;
  std::array<Bytef, 64 << 10> room{};
  constexpr std::size_t kPiece = 1 << 30;  // zlib counts in 32 bits.
  int ended = Z_OK;
  while (ended == Z_OK) {
    const std::size_t piece = std::min(raw.size(), kPiece);
    if (stream.avail_in == 0) {
      // zlib does not write to its input.
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(raw.data()));
      stream.avail_in = static_cast<uInt>(piece);
      raw = raw.subspan(piece);
    }
    stream.next_out = room.data();
    stream.avail_out = static_cast<uInt>(room.size());
    ended = deflate(&stream, raw.empty() ? Z_FINISH : Z_NO_FLUSH);
    append_bytes(out, std::as_bytes(std::span(room)).first(room.size() - stream.avail_out));
  }
  deflateEnd(&stream);
  if (ended != Z_STREAM_END) return Status(Code::kInternal, "gzip: zlib failed");
  return out;
}

Result<Columns> target_columns(const ShardFormat& format) {
  Columns columns;
  for (std::size_t i = 0; i < format.columns.size(); ++i) {
    const PackColumn& column = format.columns[i];
    if (column.name.empty()) continue;
    const bool is_double = std::any_of(columns.begin(), columns.end(), [&](const TargetColumn& c) {
      return c.name == column.name;
    });
    if (is_double)
      return Status(Code::kInvalidArgument, "two columns are named '" + column.name + "'");
    HEADRACE_TRY_ASSIGN(CellType type, cell_type_of(column.source));
    columns.push_back(
        {.name = column.name, .type = std::move(type), .encoding = column.encoding, .cell = i});
  }
  if (columns.empty()) return Status(Code::kInvalidArgument, "no column to write");
  return columns;
}

Result<std::unique_ptr<SampleFormat>> make_format(const ShardFormat& format) {
  HEADRACE_TRY_ASSIGN(Columns columns, target_columns(format));
  if (format.format == "mds") return make_mds_format(std::move(columns), format);
  if (format.format == "webdataset") return make_tar_format(std::move(columns));
  if (format.format == "tfrecord") return make_tfrecord_format(std::move(columns));
  if (format.format == "litdata") return make_litdata_format(std::move(columns), format);
  return Status(Code::kUnsupported,
                "format '" + format.format + "': known are mds, webdataset, tfrecord, litdata");
}

class Builder final : public ShardBuilder {
 public:
  Builder(const ShardFormat& format, std::unique_ptr<SampleFormat> samples, Codec codec)
      : format_(format), samples_(std::move(samples)), codec_(codec) {
    cells_.resize(format_.columns.size());
    copies_.resize(format_.columns.size());
  }

  Result<std::uint64_t> stage(std::span<const ColumnBytes> cells, std::uint64_t number) override {
    for (std::size_t i = 0; i < cells.size(); ++i) cells_[i] = bytes_of(cells[i], copies_[i]);
    staged_.clear();
    HEADRACE_TRY(append(number, staged_));
    return samples_->frame_bytes(ends_.size() + 1) + body_.size() + staged_.size();
  }
  void commit() override {
    append_bytes(body_, staged_);
    samples_->commit();
    ends_.push_back(body_.size());
    staged_.clear();
  }

  Status add_samples(const Dataset& dataset, Store& store, SlabPool& pool, std::uint64_t begin,
                     std::uint64_t end, const CallOptions& call) override {
    return read::read_samples(
        dataset, store, pool, {begin, end}, call,
        [this](std::uint64_t position, std::span<const ColumnBytes> cells) {
          for (std::size_t i = 0; i < cells.size(); ++i) cells_[i] = bytes_of(cells[i], copies_[i]);
          const std::size_t before = body_.size();
          Status status = append(position, body_);
          if (!status.ok()) {
            body_.resize(before);
            return std::move(status).annotate("sample " + std::to_string(position));
          }
          samples_->commit();
          ends_.push_back(body_.size());
          return Status();
        });
  }

  std::uint64_t sample_count() const noexcept override {
    return samples_->sample_count(ends_.size());
  }
  std::uint64_t raw_bytes() const noexcept override {
    return samples_->frame_bytes(ends_.size()) + body_.size();
  }

  Result<BuiltShard> take() override {
    BuiltShard out;
    out.sample_count = sample_count();
    out.raw_bytes = raw_bytes();
    const bool has_offsets = format_.format == "mds" || format_.format == "litdata";
    if (has_offsets && out.raw_bytes > UINT32_MAX) {
      return Status(Code::kInvalidArgument, "a shard of " + std::to_string(out.raw_bytes) +
                                                " bytes: " + format_.format +
                                                " has offsets of 32 bits; make smaller shards");
    }
    const std::string head = samples_->head(ends_);
    const auto head_bytes = std::as_bytes(std::span(head.data(), head.size()));
    const std::size_t sample_bytes = body_.size();
    append_text(body_, samples_->tail());
    body_.insert(body_.begin(), head_bytes.begin(), head_bytes.end());
    if (Status status = seal(out); !status.ok()) {
      // The samples are as they were: whoever asks again gets the same shard.
      body_.erase(body_.begin(), body_.begin() + static_cast<std::ptrdiff_t>(head.size()));
      body_.resize(sample_bytes);
      return status;
    }
    body_.clear();
    ends_.clear();
    samples_->begin_shard();
    return out;
  }

  std::string config_json() const override { return python_json(samples_->config()); }

 private:
  /// Hashes of the image in body_, and what is stored of it, which is body_ itself without a codec.
  Status seal(BuiltShard& out) {
    HEADRACE_TRY_ASSIGN(out.raw_hash, hash_of(body_));
    if (codec_.name.empty()) {
      out.bytes = std::exchange(body_, {});
      return {};
    }
    HEADRACE_TRY_ASSIGN(out.bytes, codec_.name == "zstd" ? zstd_of(body_, codec_.level)
                                                         : gzip_of(body_, codec_.level));
    HEADRACE_TRY_ASSIGN(out.zip_hash, hash_of(out.bytes));
    return {};
  }
  static std::span<const std::byte> bytes_of(const ColumnBytes& cell,
                                             std::vector<std::byte>& copy) {
    static constexpr std::byte kNothing{};
    if (!cell.present) return {};
    if (cell.size() == 0) return std::span(&kNothing, 0);  // Present: data() is not nullptr.
    if (cell.writer == nullptr) return cell.bytes;
    copy.resize(cell.size());
    cell.write_to(copy);
    return copy;
  }
  Status append(std::uint64_t number, std::vector<std::byte>& out) {
    // Readers of these two decode text, MDS also JSON; the others hand it out as bytes.
    if (format_.format == "mds" || format_.format == "litdata") HEADRACE_TRY(check_text());
    return samples_->append(cells_, number, out);
  }
  Status check_text() const {
    for (const TargetColumn& column : samples_->columns()) {
      const bool is_json_column = column.type.kind == CellType::Kind::kJson;
      if (column.type.kind != CellType::Kind::kStr && !is_json_column) continue;
      const auto cell = cells_[column.cell];
      const std::string_view text(reinterpret_cast<const char*>(cell.data()), cell.size());
      if (cell.data() == nullptr) continue;
      const bool is_utf8 = simdjson::validate_utf8(text.data(), text.size());
      if (is_utf8 && !(is_json_column && format_.format == "mds" && !is_json(text))) continue;
      return in_column(column,
                       Status(Code::kInvalidArgument,
                              (is_utf8 ? "text that is no JSON: '" : "text that is not UTF-8: '") +
                                  printable(text) + "'; write the column as bytes"));
    }
    return {};
  }
  Result<std::string> hash_of(std::span<const std::byte> bytes) const {
    if (format_.hash.empty()) return std::string();
    HEADRACE_TRY_ASSIGN(Digest digest, Digest::create(format_.hash));
    digest.update(bytes);
    return digest.finish();
  }

  const ShardFormat format_;
  std::unique_ptr<SampleFormat> samples_;
  const Codec codec_;
  std::vector<std::byte> body_, staged_;
  std::vector<std::uint64_t> ends_;
  std::vector<std::span<const std::byte>> cells_;
  std::vector<std::vector<std::byte>> copies_;
};

}  // namespace

Result<std::unique_ptr<ShardBuilder>> ShardBuilder::create(const ShardFormat& format) {
  HEADRACE_TRY_ASSIGN(const Codec codec, parse_codec(format));
  if (!format.hash.empty()) {
    if (format.format != "mds")
      return Status(Code::kUnsupported, format.format + " has no place for hashes");
    const auto probe = Digest::create(format.hash);
    if (!probe) return probe.error().clone();
  }
  HEADRACE_TRY_ASSIGN(auto samples, make_format(format));
  return std::unique_ptr<ShardBuilder>(
      std::make_unique<Builder>(format, std::move(samples), codec));
}

}  // namespace headrace
