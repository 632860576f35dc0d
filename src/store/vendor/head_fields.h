#pragma once
/// \file
/// The start and the fields of a request head, written into a caller's string and kept as places in
/// it, for whoever signs them where they stand.
///
/// Place: below the head builders of s3/ and azure/.
///
/// Threads: one at a time.
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "http/fields.h"

namespace headrace::vendor {

class HeadFields {
 public:
  /// Where to append what stands between the pieces below.
  std::string& out() noexcept { return out_; }

  /// Fields that are to stand among those that follow, each where its name belongs. In order of
  /// names; stays valid until the head is finished. \pre called once, before the first field.
  void merge(std::span<const std::pair<std::string, std::string>> fields) noexcept {
    to_merge_ = fields;
  }
  /// \pre lower-case name, above the one before; at most kMaxFields, those of merge() included.
  void field(std::string_view name, std::string_view value);
  /// The same in pieces: the value is appended to out() in between.
  void begin_field(std::string_view name);
  void end_field();
  void decimal_field(std::string_view name, std::uint64_t value);
  /// Writes what is left of merge(): after the last field, before what is not signed.
  void end_fields() { merge_below({}); }

  /// Ours, and ObjectSettings::kMostMetadata.
  static constexpr std::size_t kMaxFields = 96;

 protected:
  // Offsets, not views: the string may move while it grows.
  struct Span {
    std::size_t begin = 0;
    std::size_t size = 0;
    std::string_view in(const std::string& text) const {
      return std::string_view(text).substr(begin, size);
    }
  };
  using FieldRoom = std::array<http::Field, kMaxFields>;

  /// Starts with "<method> ". `method` must outlive this.
  HeadFields(std::string_view method, std::string& out);

  /// Appends "authorization: ", and sees to it that `bytes` and the names of all fields can follow
  /// without moving the string: views of what was written stay valid.
  void begin_authorization(std::size_t bytes);
  /// The fields as they stand in out(), written into `room`.
  std::span<const http::Field> fields(FieldRoom& room) const;

  std::string& out_;
  const std::string_view method_;
  Span path_;

 private:
  struct FieldSpan {
    Span name, value;
  };

  /// Writes fields of merge() with names below `name`; empty: all.
  void merge_below(std::string_view name);
  void start_field(std::string_view name);

  std::span<const std::pair<std::string, std::string>> to_merge_;
  std::array<FieldSpan, kMaxFields> fields_;
  std::size_t field_count_ = 0;
};

}  // namespace headrace::vendor
