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

#include "http/fields.h"

namespace headrace::vendor {

class HeadFields {
 public:
  /// Where to append what stands between the pieces below.
  std::string& out() noexcept { return out_; }

  /// \pre lower-case name, above the one before; at most kMaxFields.
  void field(std::string_view name, std::string_view value);
  /// The same in pieces: the value is appended to out() in between.
  void begin_field(std::string_view name);
  void end_field();
  void decimal_field(std::string_view name, std::uint64_t value);

  static constexpr std::size_t kMaxFields = 24;

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

  std::array<FieldSpan, kMaxFields> fields_;
  std::size_t field_count_ = 0;
};

}  // namespace headrace::vendor
