// Each message is read twice by the same functions: a Counter learns how many values there are,
// memory for exactly these is taken, then a Layer writes them. Values are never collected in
// between, so a record needs no memory of its own.
//
// What protobuf says of messages that are not written by its own writers holds here, too: fields
// may come in any order and again; lists of the same kind are joined, packed runs and single
// values mix, and a Feature whose kind changes keeps only the last one (`oneof`). Counter and
// Layer must agree in this to the byte, for one measures the room that the other fills; where they
// would not, Layer rather leaves a value out than writes past its end.
#include "wire/example.h"

#include <algorithm>
#include <cstring>

#include "base/endian.h"

namespace headrace::detail {
namespace {

constexpr std::size_t kFloatBytes = 4;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Reads the fields of `message`; `on_field(field, type, reader) -> bool` takes or skips each.
template <class OnField>
bool read_fields(std::span<const std::byte> message, OnField&& on_field) {
  WireReader reader(message);
  while (!reader.is_done()) {
    std::uint32_t field = 0;
    std::uint32_t type = 0;
    if (!reader.read_tag(field, type) || !on_field(field, type, reader)) return false;
  }
  return true;
}

// The list messages call `out.bytes(value)`, `out.floats(packed)` or `out.varints(packed) -> bool`.
template <class Out>
bool read_bytes_list(std::span<const std::byte> list, Out& out) {
  return read_fields(list, [&](std::uint32_t field, std::uint32_t type, WireReader& reader) {
    if (field != 1 || type != WireReader::kDelimited) return reader.skip(field, type);
    std::span<const std::byte> value;
    if (!reader.read_bytes(value)) return false;
    out.bytes(value);
    return true;
  });
}

template <class Out>
bool read_float_list(std::span<const std::byte> list, Out& out) {
  return read_fields(list, [&](std::uint32_t field, std::uint32_t type, WireReader& reader) {
    std::span<const std::byte> run;
    if (field == 1 && type == WireReader::kDelimited) {
      if (!reader.read_bytes(run) || run.size() % kFloatBytes != 0) return false;
    } else if (field == 1 && type == WireReader::kFixed32) {
      if (!reader.read_fixed(kFloatBytes, run)) return false;
    } else {
      return reader.skip(field, type);
    }
    out.floats(run);
    return true;
  });
}

template <class Out>
bool read_int64_list(std::span<const std::byte> list, Out& out) {
  return read_fields(list, [&](std::uint32_t field, std::uint32_t type, WireReader& reader) {
    std::span<const std::byte> run;
    if (field == 1 && type == WireReader::kDelimited) {
      return reader.read_bytes(run) && out.varints(run);
    }
    if (field != 1 || type != WireReader::kVarint) return reader.skip(field, type);
    // A value on its own is a packed run of one.
    const std::byte* begin = reader.position();
    std::uint64_t value = 0;
    if (!reader.read_varint(value)) return false;
    return out.varints({begin, static_cast<std::size_t>(reader.position() - begin)});
  });
}

template <class Out>
bool read_list(FeatureKind kind, std::span<const std::byte> list, Out& out) {
  if (kind == FeatureKind::kBytes) return read_bytes_list(list, out);
  if (kind == FeatureKind::kFloat) return read_float_list(list, out);
  return read_int64_list(list, out);
}

// Reads a Feature into `out`, which keeps the kind across several (they merge).
template <class Out>
bool read_feature(std::span<const std::byte> feature, Out& out) {
  return read_fields(feature, [&](std::uint32_t field, std::uint32_t type, WireReader& reader) {
    if (field > 3 || type != WireReader::kDelimited) return reader.skip(field, type);
    std::span<const std::byte> list;
    if (!reader.read_bytes(list)) return false;
    const auto kind = static_cast<FeatureKind>(field);
    out.begin_list(kind);
    return read_list(kind, list, out);
  });
}

template <class Out>
bool read_feature_list(std::span<const std::byte> message, Out& out) {
  return read_fields(message, [&](std::uint32_t field, std::uint32_t type, WireReader& reader) {
    if (field != 1 || type != WireReader::kDelimited) return reader.skip(field, type);
    std::span<const std::byte> feature;
    if (!reader.read_bytes(feature)) return false;
    out.begin_step();
    if (!read_feature(feature, out)) return false;
    out.end_step();
    return true;
  });
}

// Map entries: 1 key, 2 value. `out.key(text)` for each key.
template <class Out>
bool read_map_entry(std::span<const std::byte> entry, bool is_list, Out& out) {
  return read_fields(entry, [&](std::uint32_t field, std::uint32_t type, WireReader& reader) {
    if (field > 2 || type != WireReader::kDelimited) return reader.skip(field, type);
    std::span<const std::byte> bytes;
    if (!reader.read_bytes(bytes)) return false;
    if (field == 1) {
      out.key(text_of(bytes));
      return true;
    }
    return is_list ? read_feature_list(bytes, out) : read_feature(bytes, out);
  });
}

// Most entries of most records are a key, a value and nothing else, in less than 128 bytes, so that
// each of their four sizes is a single byte: such an entry is told by a few comparisons.
constexpr std::size_t kShortHeadBytes = 6;  // Tag and size of the entry, the key, the value.

// Bytes of the short entry that `bytes` begin with, and its key; 0: it is not one.
std::size_t read_short_entry(std::span<const std::byte> bytes, std::string_view& key) noexcept {
  constexpr unsigned char kFirst = 1 << 3 | WireReader::kDelimited;
  constexpr unsigned char kSecond = 2 << 3 | WireReader::kDelimited;
  if (bytes.size() < kShortHeadBytes) return 0;
  const auto* at = reinterpret_cast<const unsigned char*>(bytes.data());
  const std::size_t size = at[1];
  const std::size_t key_size = at[3];
  if (at[0] != kFirst || at[2] != kFirst || size >= 0x80 || key_size + 4 > size ||
      size + 2 > bytes.size())
    return 0;
  const unsigned char* value = at + 4 + key_size;
  if (value[0] != kSecond || value[1] + key_size + 4 != size || value[1] >= 0x80) return 0;
  key = text_of(bytes.subspan(4, key_size));
  return size + 2;
}

bool read_key(std::span<const std::byte> entry, std::string_view& key) {
  return read_fields(entry, [&](std::uint32_t field, std::uint32_t type, WireReader& reader) {
    if (field != 1 || type != WireReader::kDelimited) return reader.skip(field, type);
    std::span<const std::byte> text;
    if (!reader.read_bytes(text)) return false;
    key = text_of(text);
    return true;
  });
}

// The last entry of a map that has the key; `found` stays where there is none.
bool find_entry(std::span<const std::byte> map, std::string_view key,
                std::span<const std::byte>& found) {
  while (!map.empty()) {
    std::string_view own;
    std::span<const std::byte> entry;
    if (const std::size_t size = read_short_entry(map, own); size > 0) {
      entry = map.subspan(2, size - 2);
      map = map.subspan(size);
    } else {
      WireReader reader(map);
      std::uint32_t field = 0;
      std::uint32_t type = 0;
      if (!reader.read_tag(field, type)) return false;
      const bool is_entry = field == 1 && type == WireReader::kDelimited;
      if (!(is_entry ? reader.read_bytes(entry) : reader.skip(field, type))) return false;
      map = map.subspan(static_cast<std::size_t>(reader.position() - map.data()));
      if (!is_entry) continue;
      if (!read_key(entry, own)) return false;
    }
    if (own == key) found = entry;
  }
  return true;
}

// Counts values, checks them, and finds the run that holds them all if one does.
class Counter {
 public:
  explicit Counter(FeatureView& view) : view_(view) {}

  void key(std::string_view text) { view_.key = text; }
  void begin_list(FeatureKind kind) {
    if (kind == kind_) return;
    // Another kind takes the place of what this Feature had.
    kind_ = kind;
    view_.value_count = step_begin_count_;
    view_.value_bytes = step_begin_bytes_;
    if (view_.step_count == 0) run_count_ = 0;
  }
  void bytes(std::span<const std::byte> value) {
    ++view_.value_count;
    view_.value_bytes += value.size();
    add_run(value);
  }
  void floats(std::span<const std::byte> packed) {
    if (packed.empty()) return;
    view_.value_count += packed.size() / kFloatBytes;
    add_run(packed);
  }
  bool varints(std::span<const std::byte> packed) {
    const std::int64_t count = count_varints(packed);
    if (count < 0) return false;
    if (count == 0) return true;
    view_.value_count += static_cast<std::uint64_t>(count);
    add_run(packed);
    return true;
  }
  void begin_step() {
    kind_ = FeatureKind::kNone;
    step_begin_count_ = view_.value_count;
    step_begin_bytes_ = view_.value_bytes;
  }
  void end_step() {
    const std::uint64_t count = view_.value_count - step_begin_count_;
    view_.step_least = view_.step_count == 0 ? count : std::min(view_.step_least, count);
    view_.step_most = std::max(view_.step_most, count);
    ++view_.step_count;
    if (kind_ == FeatureKind::kNone) return;
    view_.is_mixed = view_.is_mixed || (list_kind_ != FeatureKind::kNone && list_kind_ != kind_);
    list_kind_ = kind_;
  }
  void finish(bool is_list) {
    view_.kind = is_list ? list_kind_ : kind_;
    view_.is_one_run = run_count_ == 1 && !is_list;
  }

 private:
  void add_run(std::span<const std::byte> run) {
    ++run_count_;
    view_.run = run;
  }

  FeatureView& view_;
  FeatureKind kind_ = FeatureKind::kNone;
  FeatureKind list_kind_ = FeatureKind::kNone;
  std::uint64_t run_count_ = 0;
  std::uint64_t step_begin_count_ = 0;
  std::uint64_t step_begin_bytes_ = 0;
};

// Lays values out behind each other. Values that another list replaces later are written over;
// those that do not fit can only be such.
class Layer {
 public:
  Layer(FeatureKind kind, std::uint64_t value_count, std::span<std::byte> out)
      : kind_(kind), sizes_end_(kind == FeatureKind::kBytes ? value_count * 4 : 0), out_(out) {
    data_ = step_data_ = sizes_end_;
  }

  void key(std::string_view) {}
  void begin_step() {
    now_ = FeatureKind::kNone;
    step_data_ = data_;
    step_size_ = size_;
  }
  void end_step() {}
  void begin_list(FeatureKind kind) {
    if (kind == now_) return;
    now_ = kind;
    data_ = step_data_;
    size_ = step_size_;
  }
  void bytes(std::span<const std::byte> value) {
    if (now_ != kind_ || sizes_end_ - size_ < 4 || out_.size() - data_ < value.size()) return;
    store_le(out_.data() + size_, static_cast<std::uint32_t>(value.size()));
    size_ += 4;
    copy(value);
  }
  void floats(std::span<const std::byte> packed) {
    if (now_ == kind_ && out_.size() - data_ >= packed.size()) copy(packed);
  }
  bool varints(std::span<const std::byte> packed) {
    const std::int64_t count = now_ == kind_ ? count_varints(packed) : 0;
    if (count <= 0 || (out_.size() - data_) / 8 < static_cast<std::uint64_t>(count)) return true;
    write_varints(packed, out_.data() + data_);
    data_ += static_cast<std::uint64_t>(count) * 8;
    return true;
  }

 private:
  void copy(std::span<const std::byte> bytes) {
    if (!bytes.empty()) std::memcpy(out_.data() + data_, bytes.data(), bytes.size());
    data_ += bytes.size();
  }

  const FeatureKind kind_;
  FeatureKind now_ = FeatureKind::kNone;
  const std::uint64_t sizes_end_;
  const std::span<std::byte> out_;
  std::uint64_t size_ = 0;
  std::uint64_t data_ = 0;
  std::uint64_t step_size_ = 0;
  std::uint64_t step_data_ = 0;
};

// Writes how many values each Feature has.
class StepLayer {
 public:
  explicit StepLayer(std::span<std::byte> out) : out_(out) {}

  void key(std::string_view) {}
  void begin_step() {
    now_ = FeatureKind::kNone;
    count_ = 0;
  }
  void end_step() {
    if (out_.size() - at_ < 8) return;
    store_le(out_.data() + at_, count_);
    at_ += 8;
  }
  void begin_list(FeatureKind kind) {
    if (kind != now_) count_ = 0;
    now_ = kind;
  }
  void bytes(std::span<const std::byte>) { ++count_; }
  void floats(std::span<const std::byte> packed) { count_ += packed.size() / kFloatBytes; }
  bool varints(std::span<const std::byte> packed) {
    count_ += static_cast<std::uint64_t>(std::max<std::int64_t>(count_varints(packed), 0));
    return true;
  }

 private:
  const std::span<std::byte> out_;
  std::size_t at_ = 0;
  FeatureKind now_ = FeatureKind::kNone;
  std::uint64_t count_ = 0;
};

}  // namespace

bool read_entry(std::span<const std::byte> entry, bool is_list, FeatureView& out) noexcept {
  out.entry = entry;
  Counter counter(out);
  if (!read_map_entry(entry, is_list, counter)) return false;
  counter.finish(is_list);
  return true;
}

bool find_feature(std::span<const std::byte> message, std::string_view key,
                  FeatureView& out) noexcept {
  out = {};
  std::span<const std::byte> found;
  const bool is_read =
      read_fields(message, [&](std::uint32_t field, std::uint32_t type, WireReader& reader) {
        if (field != 1 || type != WireReader::kDelimited) return reader.skip(field, type);
        std::span<const std::byte> map;
        return reader.read_bytes(map) && find_entry(map, key, found);
      });
  if (!is_read) return false;
  return found.data() == nullptr || read_entry(found, false, out);
}

void write_numbers(const FeatureView& view, bool is_list, std::span<std::byte> out) noexcept {
  Layer layer(view.kind, view.value_count, out);
  read_map_entry(view.entry, is_list, layer);
}

void write_byte_values(const FeatureView& view, bool is_list, std::span<std::byte> out) noexcept {
  Layer layer(FeatureKind::kBytes, view.value_count, out);
  read_map_entry(view.entry, is_list, layer);
}

void write_step_counts(const FeatureView& view, std::span<std::byte> out) noexcept {
  StepLayer layer(out);
  read_map_entry(view.entry, true, layer);
}

}  // namespace headrace::detail
