// One shard a file, one sample a row. A row of an .npz lies in several places, one an array, at a
// fixed step each: so no boundaries are stored, only where the arrays begin and how long a row is.
//
// Where some array is deflated, files are read whole (is_packed): nothing in them can be found
// without inflating what is before it.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "shard/formats/numpy/array_reader.h"
#include "shard/formats/numpy/numpy_driver.h"
#include "shard/formats/numpy/row_layout.h"

namespace headrace::detail {
namespace {

constexpr std::size_t kMostColumnsOfZip = 1024;

std::vector<Column> columns_of(const std::vector<StoredArray>& arrays) {
  std::vector<Column> columns;
  for (const StoredArray& array : arrays) {
    Column column;
    column.name = array.name;
    column.encoding = fmt::format("array:{}", array.header.dtype);
    column.dtype = array.header.dtype;
    column.shape = array.header.shape;
    column.fixed_size_bytes = array.header.row_bytes;
    columns.push_back(std::move(column));
  }
  return columns;
}

bool same_columns(const std::vector<Column>& a, const std::vector<Column>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Column& x, const Column& y) {
    return x.name == y.name && x.dtype == y.dtype && x.shape == y.shape;
  });
}

class NumpyBuilder {
 public:
  NumpyBuilder(const BuildContext& context, bool is_zip, bool is_packed)
      : context_(context), is_zip_(is_zip), is_packed_(is_packed) {}

  Status add(const ObjectInfo& object, const std::vector<StoredArray>& arrays) {
    auto columns = columns_of(arrays);
    if (columns.empty() || columns.size() > kMostColumnsOfZip) {
      return Status(Code::kUnsupported,
                    fmt::format("{} arrays; 1 to {} are read", columns.size(), kMostColumnsOfZip));
    }
    if (columns_.empty()) {
      columns_ = std::move(columns);
    } else if (!same_columns(columns_, columns)) {
      return Status(
          Code::kUnsupported,
          "has arrays of other names, dtypes or shapes of a row than the files before it");
    }
    std::vector<std::uint64_t> offsets;
    std::uint64_t row_bytes = 0;
    for (const StoredArray& array : arrays) {
      if (array.header.row_count != arrays[0].header.row_count) {
        return Status(Code::kUnsupported,
                      fmt::format("'{}' has {} rows, '{}' {}; name columns of equal length with "
                                  "columns=",
                                  array.name, array.header.row_count, arrays[0].name,
                                  arrays[0].header.row_count));
      }
      offsets.push_back(array.offset_bytes);
      if (__builtin_add_overflow(row_bytes, array.header.row_bytes, &row_bytes))
        return Status(Code::kCorrupt, "its rows take more than 2^64 bytes");
    }
    if (arrays[0].header.row_count > kMostShardSamples || row_bytes > kMostFixedBytes) {
      return Status(
          Code::kUnsupported,
          fmt::format("has {} rows of {} bytes; up to {} rows in a file, and {} bytes in a "
                      "row, are read: split it, or name some columns with columns=",
                      arrays[0].header.row_count, row_bytes, kMostShardSamples, kMostFixedBytes));
    }
    ShardRecord record;
    record.sample_count = arrays[0].header.row_count;
    record.stored_bytes = record.raw_bytes = object.size_bytes;
    record.first_object = writer_.object_count();
    if (is_packed_) {
      pack(arrays, record);
      writer_.add_object(object.key, object.etag, object.size_bytes);
      writer_.add_shard(record);
      return Status();
    }
    std::uint64_t rows_bytes = 0;
    if (__builtin_mul_overflow(record.sample_count, row_bytes, &rows_bytes) ||
        rows_bytes > object.size_bytes) {
      return Status(Code::kCorrupt, "its arrays overlap");
    }
    record.bounds = {
        .base = is_zip_ ? 0 : offsets[0], .stride = row_bytes, .first_group = kNoGroups};
    layout_.push_back(std::move(offsets));
    writer_.add_object(object.key, object.etag, object.size_bytes);
    writer_.add_shard(record);
    return Status();
  }

  std::string finish(IndexSource source) {
    return writer_.finish({.format = Format::kNumpy,
                           .columns = columns_,
                           .source = std::move(source),
                           .block_bytes = context_.options.block_bytes,
                           .layout = is_packed_ ? format_packed_layout(packed_)
                                     : is_zip_  ? format_row_layout(layout_)
                                                : std::string(),
                           .broken = context_.left_out()});
  }

 private:
  void pack(const std::vector<StoredArray>& arrays, ShardRecord& record) {
    record.raw_bytes = 0;
    record.has_bounds = false;
    record.compression = Compression::kOwn;
    auto& members = packed_.emplace_back();
    for (const StoredArray& array : arrays) {
      members.push_back(array.packed);
      record.raw_bytes += array.packed.raw_bytes;
    }
  }

  const BuildContext& context_;
  const bool is_zip_;
  const bool is_packed_;
  std::vector<Column> columns_;
  RowLayout layout_;
  PackedLayout packed_;
  IndexWriter writer_;
};

}  // namespace

Result<std::string> build_numpy_index(const BuildContext& context,
                                      const std::vector<ObjectInfo>& objects) {
  if (objects.empty()) {
    return Status(Code::kNotFound, fmt::format("{}: no .npy or .npz files", context.store.url()));
  }
  HEADRACE_TRY_ASSIGN(const StoredArrays arrays, read_arrays(context, objects));
  NumpyBuilder builder(context, arrays.is_zip, arrays.is_packed);
  for (std::size_t i = 0; i < objects.size(); ++i) {
    if (arrays.is_broken[i]) continue;
    Status status = builder.add(objects[i], arrays.of_object[i]);
    if (status.ok()) context.add_whole();
    HEADRACE_TRY(context.leave_out(objects[i], std::move(status)));
  }
  return builder.finish({objects[0].key, objects[0].etag, objects[0].size_bytes});
}

bool looks_like_numpy(std::span<const std::byte> head) noexcept {
  constexpr std::string_view kNpy{"\x93NUMPY", 6}, kZip{"PK\3\4", 4};
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (text.starts_with(kNpy)) return true;
  // Offsets in a local header of a zip (APPNOTE.TXT, 4.3.7).
  constexpr std::size_t kNameLength = 26, kName = 30;
  if (!text.starts_with(kZip) || text.size() < kName) return false;
  std::uint16_t length = 0;
  std::memcpy(&length, head.data() + kNameLength, sizeof(length));
  return length <= text.size() - kName && text.substr(kName, length).ends_with(".npy");
}

}  // namespace headrace::detail
