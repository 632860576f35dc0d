// WebDataset: a member for each value, named KEY.COLUMN with the suffix that webdataset's own
// decoders need: .txt, .cls, .json, .npy, .jpg, .png; other bytes are named by their column alone.
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <optional>
#include <set>

#include "base/strings.h"
#include "headrace/pack.h"
#include "pack/sample_format.h"
#include "pack/tar_format.h"
#include "shard/formats/webdataset/member_name.h"
#include "shard/index/hri.h"

namespace headrace::pack_detail {
namespace {

using Kind = CellType::Kind;

constexpr std::string_view kKeyColumn = "__key__";

std::string_view suffix_encoding(const CellType& type) {
  switch (type.kind) {
    case Kind::kStr:
      return "str";
    case Kind::kJson:
      return "json";
    case Kind::kAsciiInt:
      return "int";
    case Kind::kNumber:
      return type.dtype->is_integer() ? "int" : "str";
    default:
      return "bytes";
  }
}

/// True for what webdataset's decoders take for an image.
bool is_image_name(std::string_view name) {
  constexpr std::array<std::string_view, 6> kImages{"jpg", "jpeg", "png", "ppm", "pgm", "pbm"};
  const std::string_view last = name.substr(name.rfind('.') + 1);
  return std::find(kImages.begin(), kImages.end(), last) != kImages.end();
}

/// The column's name, with an extension where readers would not know what it is.
std::string suffix_of(const TargetColumn& column) {
  const std::string_view encoding = suffix_encoding(column.type);
  const std::string& name = column.name;
  if (column.type.is_array()) return name == "npy" || name.ends_with(".npy") ? name : name + ".npy";
  const std::string& bytes = column.type.encoding;
  if (encoding == "bytes" && (bytes == "jpeg" || bytes == "png") && !is_image_name(name))
    return name + (bytes == "jpeg" ? ".jpg" : ".png");
  if (encoding == "bytes" || encoding_of_suffix(name) == encoding) return name;
  return name + (encoding == "str" ? ".txt" : encoding == "int" ? ".cls" : ".json");
}

Status check_suffix(const std::string& suffix) {
  const bool is_good =
      !suffix.empty() && suffix.front() != '.' && !detail::is_taken_suffix(to_lower(suffix)) &&
      std::none_of(suffix.begin(), suffix.end(),
                   [](char c) { return c == '/' || static_cast<unsigned char>(c) < 32; });
  return is_good ? Status()
                 : Status(Code::kInvalidArgument,
                          "column '" + suffix + "': no name for a member of a tar; rename it");
}

std::string npy_header(const ArrayView& view) {
  std::string text =
      "{'descr': '" + std::string(view.dtype->npy) + "', 'fortran_order': False, 'shape': (";
  for (const std::uint64_t dim : view.shape) text += std::to_string(dim) + ", ";
  // Python writes (3,) and (3, 4).
  if (view.shape.size() > 1) text.resize(text.size() - 2);
  if (view.shape.size() == 1) text.resize(text.size() - 1);
  text += "), }";
  // Magic, version and length (10 bytes), text and newline are a multiple of 64 together: so says
  // the description of npy, for those who map the array behind them.
  text.resize((text.size() + 11 + 63) / 64 * 64 - 11, ' ');
  text += '\n';
  std::string head("\x93NUMPY\x01\x00", 8);
  head += static_cast<char>(text.size() & 255);
  head += static_cast<char>(text.size() >> 8);
  return head + text;
}

class TarFormat final : public SampleFormat {
 public:
  static Result<std::unique_ptr<SampleFormat>> create(Columns columns) {
    auto format = std::make_unique<TarFormat>();
    std::set<std::string> seen;
    for (TargetColumn& column : columns) {
      // TFRecord has no strings, only bytes: key_of() looks whether they are text.
      if (column.name == kKeyColumn &&
          (column.type.kind == Kind::kStr || column.type.kind == Kind::kBytes)) {
        format->key_cell_ = column.cell;
        continue;
      }
      if (column.name == PackColumn::kFileName && column.type.kind == Kind::kStr) {
        format->file_cell_ = column.cell;
        continue;
      }
      std::string suffix = suffix_of(column);
      HEADRACE_TRY(check_suffix(suffix));
      // Readers compare suffixes in lower case: two that differ in case only would be one.
      if (!seen.insert(to_lower(suffix)).second) {
        return Status(Code::kInvalidArgument,
                      "two columns would be members '" + suffix + "' of a sample; rename one");
      }
      format->suffixes_.push_back(std::move(suffix));
      format->columns_.push_back(std::move(column));
    }
    if (format->columns_.empty()) return Status(Code::kInvalidArgument, "no column to write");
    if (format->file_cell_ && format->key_cell_)
      return Status(Code::kInvalidArgument, "__file__ and __key__ both name a sample: choose one");
    return std::unique_ptr<SampleFormat>(std::move(format));
  }

  Status append(std::span<const std::span<const std::byte>> cells, std::uint64_t number,
                std::vector<std::byte>& out) override {
    if (file_cell_) return append_file(cells, out);
    HEADRACE_TRY_ASSIGN(std::string key, key_of(cells, number));
    if (key == last_key_) {
      return Status(Code::kInvalidArgument,
                    "__key__ '" + key +
                        "': the sample before has the same, readers would take both for one; "
                        "leave the column out, then samples are numbered");
    }
    bool is_empty = true;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const auto cell = cells[columns_[i].cell];
      if (cell.data() == nullptr) continue;
      is_empty = false;
      Status status = append_member(columns_[i].type, key + "." + suffixes_[i], cell, out);
      if (!status.ok()) return in_column(columns_[i], std::move(status));
    }
    if (is_empty)
      return Status(Code::kInvalidArgument, "a sample without any value has no place in a tar");
    staged_key_ = std::move(key);
    return {};
  }
  void commit() override {
    if (file_cell_) {
      if (staged_key_ != last_key_) {
        files_.clear();
        ++group_count_;
      }
      files_.insert(std::move(staged_file_));
    }
    last_key_ = std::move(staged_key_);
  }
  void begin_shard() override {
    last_key_.reset();
    files_.clear();
    group_count_ = 0;
  }
  std::uint64_t sample_count(std::uint64_t count) const override {
    return file_cell_ ? group_count_ : count;
  }
  std::string head(std::span<const std::uint64_t>) const override { return {}; }
  std::string tail() const override { return std::string(kTarEndBytes, '\0'); }
  std::uint64_t frame_bytes(std::uint64_t) const override { return kTarEndBytes; }
  const Columns& columns() const override { return columns_; }

 private:
  Status append_file(std::span<const std::span<const std::byte>> cells,
                     std::vector<std::byte>& out) {
    const std::string name = text_of(cells[*file_cell_]);
    const std::string_view group = webdataset_group(name);
    if (group.empty() || (group == last_key_ && files_.contains(name))) {
      return Status(Code::kInvalidArgument,
                    "__file__ '" + name + "': readers would not take it for a file of a sample");
    }
    Status status = append_member(columns_[0].type, name, cells[columns_[0].cell], out);
    if (!status.ok()) return in_column(columns_[0], std::move(status));
    HEADRACE_TRY(append_beside(cells, name, std::string(group), out));
    staged_key_ = group;
    staged_file_ = name;
    return {};
  }

  // The other columns, with the first file of each sample: readers take the members of one key for
  // one sample, so a second copy would be the same member twice. Their names are compared with
  // every file of the sample, also with those that come after the columns were written.
  Status append_beside(std::span<const std::span<const std::byte>> cells, const std::string& file,
                       const std::string& group, std::vector<std::byte>& out) {
    for (std::size_t i = 1; i < columns_.size(); ++i) {
      const std::string name = group + "." + suffixes_[i];
      if (to_lower(file) == to_lower(name)) {
        return Status(Code::kInvalidArgument,
                      "__file__ '" + file + "': column '" + columns_[i].name +
                          "' would be a member of this name; call the column otherwise");
      }
      const auto cell = cells[columns_[i].cell];
      if (group == last_key_ || cell.data() == nullptr) continue;
      Status status = append_member(columns_[i].type, name, cell, out);
      if (!status.ok()) return in_column(columns_[i], std::move(status));
    }
    return {};
  }

  static std::string text_of(std::span<const std::byte> cell) {
    return {reinterpret_cast<const char*>(cell.data()), cell.size()};
  }

  Result<std::string> key_of(std::span<const std::span<const std::byte>> cells,
                             std::uint64_t number) const {
    if (key_cell_ && cells[*key_cell_].data() != nullptr) {
      std::string key = text_of(cells[*key_cell_]);
      if (key.empty()) {
        return Status(Code::kInvalidArgument,
                      "__key__ of sample " + std::to_string(number) +
                          " is empty, and readers would skip its members; leave the column out, "
                          "then samples are numbered");
      }
      if (!simdjson::validate_utf8(key)) {
        return Status(Code::kInvalidArgument,
                      "__key__ of sample " + std::to_string(number) +
                          " is no UTF-8 and cannot name it; leave the column out, then samples are "
                          "numbered, or call it otherwise, then it is a member");
      }
      if (webdataset_group(key + ".x") == key) return key;
      return Status(Code::kInvalidArgument,
                    "__key__ '" + key +
                        "': readers would cut this name elsewhere, or it leads out of a folder; "
                        "leave the column out, then samples are numbered");
    }
    std::array<char, 24> text{};
    std::snprintf(text.data(), text.size(), "%09llu", static_cast<unsigned long long>(number));
    return std::string(text.data());
  }

  static Status append_member(const CellType& type, const std::string& name,
                              std::span<const std::byte> cell, std::vector<std::byte>& out) {
    std::string front;  // Or the whole value, when it is written in another way than it came.
    if (type.kind == Kind::kNumber) {
      HEADRACE_TRY_ASSIGN(front, number_text(*type.dtype, cell));
      cell = {};
    } else if (type.is_array()) {
      HEADRACE_TRY_ASSIGN(const ArrayView view, type.array_of(cell));
      front = npy_header(view);
      cell = view.data;
    }
    const std::uint64_t size = front.size() + cell.size();
    append_text(out, tar_header(name, size));
    append_text(out, front);
    append_bytes(out, cell);
    out.resize(out.size() + tar_padding(size));
    return {};
  }

  static Result<std::string> number_text(const Dtype& dtype, std::span<const std::byte> cell) {
    if (cell.size() != dtype.size_bytes) return Status(Code::kCorrupt, "a number of another size");
    std::array<char, 40> text{};
    char* const end = text.data() + text.size();
    std::to_chars_result done{};
    if (dtype.kind == Dtype::Kind::kUnsigned && dtype.size_bytes == 8) {
      std::uint64_t value = 0;
      for (std::size_t i = 8; i-- > 0;) value = value << 8 | static_cast<std::uint64_t>(cell[i]);
      done = std::to_chars(text.data(), end, value);
    } else if (dtype.is_integer()) {
      HEADRACE_TRY_ASSIGN(const std::int64_t value, dtype.integer_at(cell.data()));
      done = std::to_chars(text.data(), end, value);
    } else if (dtype.size_bytes == 8) {
      done = std::to_chars(text.data(), end, dtype.real_at(cell.data()));
    } else {
      done = std::to_chars(text.data(), end, static_cast<float>(dtype.real_at(cell.data())));
    }
    return std::string(text.data(), done.ptr);
  }

  Columns columns_;
  std::vector<std::string> suffixes_;
  std::optional<std::size_t> key_cell_, file_cell_;
  std::optional<std::string> last_key_;  ///< Of the sample before, in this shard.
  std::string staged_key_;               ///< Of the sample appended last.
  std::string staged_file_;
  std::set<std::string> files_;    ///< Of __file__: those of last_key_ so far.
  std::uint64_t group_count_ = 0;  ///< Of __file__: samples in this shard.
};

}  // namespace

Result<std::unique_ptr<SampleFormat>> make_tar_format(Columns columns) {
  return TarFormat::create(std::move(columns));
}

}  // namespace headrace::pack_detail

namespace headrace {

std::uint64_t count_samples_in_tars(const Dataset& dataset) {
  if (dataset.format() != Format::kRaw) return 0;
  auto index = detail::IndexView::parse(dataset.index_bytes());
  if (!index) return 0;
  pack_detail::TarSamples samples;
  for (std::uint64_t i = 0; i < index->object_count(); ++i) {
    const std::string_view key = index->object(i).key;
    if (!samples.add(key) || !simdjson::validate_utf8(key)) return 0;
  }
  return samples.finish() ? samples.count() : 0;
}

}  // namespace headrace
