#pragma once
/// \file
/// tf.train.Example and tf.train.SequenceExample on the wire, by protobuf's rules: packed and
/// unpacked values and several runs are one list, messages of one kind merge, the last kind and the
/// last entry of a key win, unknown fields are skipped. Pure; nothing is allocated.
///
/// Source: tensorflow/core/example/{example,feature}.proto; verdicts of protobuf in the reference
/// cases.
///
/// Threads: functions and values.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "wire/message.h"

namespace headrace::detail {

/// Kind of a list of values; the numbers are the fields of tf.train.Feature.
enum class FeatureKind : std::uint8_t { kNone = 0, kBytes = 1, kFloat = 2, kInt64 = 3 };

/// What one Feature (or one FeatureList, when `is_list`) holds.
struct FeatureView {
  FeatureKind kind = FeatureKind::kNone;  ///< kNone: no value was ever set.
  /// True when `run` holds all values: the value of bytes, or packed floats or varints.
  bool is_one_run = false;
  std::uint64_t value_count = 0;
  std::uint64_t value_bytes = 0;  ///< Of kBytes: all values together.
  std::span<const std::byte> run;
  /// The map entry: what the write_ functions read the values from in any case.
  std::span<const std::byte> entry;
  std::string_view key;
  // Of a FeatureList only:
  std::uint64_t step_count = 0;  ///< Its Features.
  std::uint64_t step_least = 0;  ///< Fewest values in one of them.
  std::uint64_t step_most = 0;
  bool is_mixed = false;  ///< Its Features have different kinds.
};

/// Reads one map entry. False when the bytes are broken.
bool read_entry(std::span<const std::byte> entry, bool is_list, FeatureView& out) noexcept;

/// The write_ functions read an entry that read_entry() understood again and lay its values out.
/// `out` has exactly the size that its FeatureView tells.
///
/// Float or int64 values one after the other: value_count * 4 or 8 bytes.
void write_numbers(const FeatureView& view, bool is_list, std::span<std::byte> out) noexcept;
/// Values of bytes: a u32 size of each, then all of them: value_count * 4 + value_bytes.
void write_byte_values(const FeatureView& view, bool is_list, std::span<std::byte> out) noexcept;
/// Values of each Feature of a FeatureList as int64: step_count * 8.
void write_step_counts(const FeatureView& view, std::span<std::byte> out) noexcept;

/// The feature of an Example (or of a SequenceExample's context) whose key is `key`; kind kNone
/// when it has none. Other features are passed over by their sizes. False when the bytes are
/// broken.
bool find_feature(std::span<const std::byte> message, std::string_view key,
                  FeatureView& out) noexcept;

/// Calls `on_feature(const FeatureView&, bool is_list) -> bool` for every map entry of an Example
/// (fields 1) or SequenceExample (fields 1 and 2), in order of the wire: a key that comes again
/// replaces what it had. False when the bytes are broken or `on_feature` says so.
template <class OnFeature>
bool read_example(std::span<const std::byte> message, OnFeature&& on_feature) {
  WireReader example(message);
  while (!example.is_done()) {
    std::uint32_t field = 0;
    std::uint32_t type = 0;
    if (!example.read_tag(field, type)) return false;
    if (type != WireReader::kDelimited || field > 2) {
      if (!example.skip(field, type)) return false;
      continue;
    }
    std::span<const std::byte> map;
    if (!example.read_bytes(map)) return false;
    WireReader entries(map);
    while (!entries.is_done()) {
      std::uint32_t inner = 0;
      if (!entries.read_tag(inner, type)) return false;
      if (inner != 1 || type != WireReader::kDelimited) {
        if (!entries.skip(inner, type)) return false;
        continue;
      }
      std::span<const std::byte> entry;
      FeatureView view;
      if (!entries.read_bytes(entry) || !read_entry(entry, field == 2, view)) return false;
      if (!on_feature(view, field == 2)) return false;
    }
  }
  return true;
}

}  // namespace headrace::detail
