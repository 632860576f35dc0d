#include "shard/formats/tfrecord/example_cutter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/endian.h"

namespace headrace::detail {
namespace {

// Head of an array whose length varies, as in MDS: a byte with the number of dimensions and 2 for
// u32, then the dimensions.
constexpr std::uint64_t array_head_bytes(std::size_t ndim) { return 1 + 4 * ndim; }
// Head of list[bytes], as of MDS's list[jpeg]: u32 0, u32 count.
constexpr std::uint64_t kListHeadBytes = 8;

void write_array_head(std::span<std::byte>& out, std::initializer_list<std::uint64_t> dims) {
  out[0] = static_cast<std::byte>(dims.size() << 2 | 2);
  out = out.subspan(1);
  for (const std::uint64_t dim : dims) {
    store_le(out.data(), static_cast<std::uint32_t>(dim));
    out = out.subspan(4);
  }
}

std::uint64_t item_bytes(FeatureKind kind) { return kind == FeatureKind::kFloat ? 4 : 8; }

const FeatureColumn& column_of(const ColumnBytes& cell) {
  return *static_cast<const FeatureColumn*>(cell.context);
}

// The writers of single runs.
void write_varint_run(const ColumnBytes& cell, std::span<std::byte> out) noexcept {
  write_varints(cell.bytes, out.data());
}
void write_varint_array(const ColumnBytes& cell, std::span<std::byte> out) noexcept {
  write_array_head(out, {(out.size() - array_head_bytes(1)) / 8});
  write_varints(cell.bytes, out.data());
}
void write_float_array(const ColumnBytes& cell, std::span<std::byte> out) noexcept {
  write_array_head(out, {(out.size() - array_head_bytes(1)) / 4});
  if (!cell.bytes.empty()) std::memcpy(out.data(), cell.bytes.data(), cell.bytes.size());
}

// The writers of everything else have the map entry in `bytes` and read it again.
FeatureView read_again(const ColumnBytes& cell) {
  FeatureView view;
  read_entry(cell.bytes, column_of(cell).is_list, view);
  return view;
}
void write_entry_numbers(const ColumnBytes& cell, std::span<std::byte> out) noexcept {
  const FeatureColumn& column = column_of(cell);
  const FeatureView view = read_again(cell);
  if (column.count < 0) {
    if (column.is_list && column.step_count > 1) {
      write_array_head(
          out, {view.step_count, view.value_count / std::max<std::uint64_t>(1, view.step_count)});
    } else {
      write_array_head(out, {view.value_count});
    }
  }
  write_numbers(view, column.is_list, out);
}
void write_entry_bytes(const ColumnBytes& cell, std::span<std::byte> out) noexcept {
  const FeatureView view = read_again(cell);
  store_le(out.data(), std::uint32_t{0});
  store_le(out.data() + 4, static_cast<std::uint32_t>(view.value_count));
  write_byte_values(view, column_of(cell).is_list, out.subspan(kListHeadBytes));
}
void write_lengths(const ColumnBytes& cell, std::span<std::byte> out) noexcept {
  const FeatureView view = read_again(cell);
  write_array_head(out, {view.step_count});
  write_step_counts(view, out);
}

bool is_count_right(const FeatureView& view, const FeatureColumn& column) {
  const std::uint64_t count = column.is_list ? view.step_count : view.value_count;
  if (column.count >= 0 && count != static_cast<std::uint64_t>(column.count)) return false;
  if (column.step_count < 0 || view.step_count == 0) return true;
  const auto steps = static_cast<std::uint64_t>(column.step_count);
  return view.step_least == steps && view.step_most == steps;
}

ColumnBytes written(const FeatureView& view, const FeatureColumn& column,
                    ColumnBytes::Writer writer, std::uint64_t value_bytes) {
  return {.bytes = view.entry,
          .present = true,
          .writer = writer,
          .value_bytes = value_bytes,
          .context = &column};
}

ColumnBytes numbers(const FeatureView& view, const FeatureColumn& column) {
  const bool is_matrix = column.is_list && column.step_count > 1;
  const std::uint64_t head = column.count >= 0 ? 0 : array_head_bytes(is_matrix ? 2 : 1);
  const std::uint64_t size = head + view.value_count * item_bytes(column.kind);
  if (!view.is_one_run) return written(view, column, write_entry_numbers, size);
  const bool is_float = column.kind == FeatureKind::kFloat;
  if (is_float && head == 0) return {.bytes = view.run, .present = true};
  ColumnBytes cell = written(view, column, nullptr, size);
  cell.bytes = view.run;
  if (is_float) {
    cell.writer = write_float_array;
  } else {
    cell.writer = head == 0 ? write_varint_run : write_varint_array;
  }
  return cell;
}

ColumnBytes byte_values(const FeatureView& view, const FeatureColumn& column) {
  if (!column.is_list && column.count == 1 && view.is_one_run)
    return {.bytes = view.run, .present = true};
  return written(view, column, write_entry_bytes,
                 kListHeadBytes + 4 * view.value_count + view.value_bytes);
}

Status drifted(std::string_view feature) {
  return Status(Code::kCorrupt,
                fmt::format("tfrecord: feature '{}' is not as the index says (another kind or "
                            "number of values, or unknown to it); make the index anew, or read "
                            "whole records with columns=['record']",
                            feature));
}

// Mark of a cell without a value whose feature is not as the index says.
constexpr std::uint64_t kWrong = ~std::uint64_t{0};

std::vector<std::string> feature_names(const ExampleLayout& layout, bool is_list) {
  std::vector<std::string> names;
  for (const FeatureColumn& column : layout.columns)
    if (column.is_list == is_list) names.push_back(column.feature);
  return names;
}

}  // namespace

ExampleCutter::ExampleCutter(ExampleLayout layout)
    : layout_(std::move(layout)),
      context_(feature_names(layout_, false)),
      lists_(feature_names(layout_, true)),
      context_targets_(layout_.columns.size()),
      list_targets_(layout_.columns.size()) {
  for (std::size_t c = 0; c < layout_.columns.size(); ++c) {
    const FeatureColumn& column = layout_.columns[c];
    const std::int32_t feature = (column.is_list ? lists_ : context_).find(column.feature);
    Target& target =
        (column.is_list ? list_targets_ : context_targets_)[static_cast<std::size_t>(feature)];
    (column.part == FeatureColumn::Part::kValues ? target.values : target.lengths) =
        static_cast<std::int32_t>(c);
  }
}

// False when the feature is not what the index says.
bool ExampleCutter::place(const FeatureView& view, const FeatureColumn& column,
                          ColumnBytes& out) const noexcept {
  if (view.kind == FeatureKind::kNone && !column.is_list) {
    out = ColumnBytes{};  // A feature without a kind holds nothing, and replaces what was there.
    return true;
  }
  if (view.is_mixed || !is_count_right(view, column)) return false;
  if (column.part == FeatureColumn::Part::kLengths) {
    out = written(view, column, write_lengths, array_head_bytes(1) + 8 * view.step_count);
    return true;
  }
  if (view.kind != column.kind && view.kind != FeatureKind::kNone) return false;
  out = column.kind == FeatureKind::kBytes ? byte_values(view, column) : numbers(view, column);
  return true;
}

// A later entry of the key without a kind takes the value away again.
Status ExampleCutter::refuse_unknown(std::span<const std::byte> record) const {
  std::set<std::pair<bool, std::string_view>> unknown;
  static_cast<void>(read_example(record, [&](const FeatureView& view, bool is_list) {
    if ((is_list ? lists_ : context_).find(view.key) >= 0) return true;
    if (is_list || view.kind != FeatureKind::kNone) {
      unknown.emplace(is_list, view.key);
    } else {
      unknown.erase({is_list, view.key});
    }
    return true;
  }));
  return unknown.empty() ? Status() : drifted(unknown.begin()->second);
}

Status ExampleCutter::cut(std::span<const std::byte> record, std::span<ColumnBytes> out) const {
  std::fill(out.begin(), out.end(), ColumnBytes{});
  bool has_unknown = false;
  bool has_wrong = false;
  const bool is_read = read_example(record, [&](const FeatureView& view, bool is_list) {
    const std::int32_t feature = (is_list ? lists_ : context_).find(view.key);
    if (feature < 0) {
      has_unknown |= layout_.is_complete && (is_list || view.kind != FeatureKind::kNone);
      return true;
    }
    const Target& target =
        (is_list ? list_targets_ : context_targets_)[static_cast<std::size_t>(feature)];
    for (const std::int32_t c : {target.values, target.lengths}) {
      if (c < 0) continue;
      const auto i = static_cast<std::size_t>(c);
      if (place(view, layout_.columns[i], out[i])) continue;
      // Only wrong if no later entry of the key takes its place.
      out[i] = ColumnBytes{};
      out[i].value_bytes = kWrong;
      has_wrong = true;
    }
    return true;
  });
  if (!is_read) return Status(Code::kCorrupt, "tfrecord: not a tf.train.Example");
  if (has_unknown) HEADRACE_TRY(refuse_unknown(record));
  for (std::size_t i = 0; has_wrong && i < out.size(); ++i) {
    if (!out[i].present && out[i].value_bytes == kWrong) return drifted(layout_.columns[i].feature);
  }
  return Status();
}

}  // namespace headrace::detail
