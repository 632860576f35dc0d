#pragma once
/// \file
/// CsvScan: finds the records of one file of separated values (RFC 4180; csv_text.h has the rules).
/// Pure.
///
/// The first record is the header. A line without a character is no record; it belongs to the one
/// before it, or to the header.
///
/// Threads: one owner.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shard/scan/file_scan.h"

namespace headrace::detail {

/// Leaves header_to_text() in FileSamples::facts; nothing for a file without a record.
class CsvScan final : public BoundsScan {
 public:
  /// Bounds: begin of each sample, then where the next would begin; none without a header.
  explicit CsvScan(char delimiter) : BoundsScan({}), delimiter_(delimiter) {}

  std::uint64_t needed_bytes() const noexcept override { return offset_ == 0 ? 3 : 1; }
  /// Errors: kCorrupt (quotes, a record with more or fewer fields than the header), kUnsupported
  /// (a header that parse_csv_header() refuses).
  Status feed(std::span<const std::byte> bytes) override;
  Status finish(std::uint64_t size_bytes) override;
  FileSamples take() override;

 private:
  enum class State : std::uint8_t {
    kRecordStart,
    kFieldStart,
    kField,
    kQuoted,
    kQuoteSeen,  ///< In a quoted field: its end, or the first of a pair.
    kReturnSeen  ///< Behind "\r", which ended a record or a blank line; "\n" belongs to it.
  };

  Status step(char c);
  std::size_t plain_bytes(std::string_view text) const noexcept;
  Status end_record();
  Status end_header();
  void begin_line() noexcept;
  Status fail(std::string_view what) const;

  const char delimiter_;
  State state_ = State::kRecordStart;
  std::uint64_t record_begin_ = 0;
  std::uint64_t field_count_ = 1;  ///< Of the record that goes on.
  std::string header_text_;        ///< Until the header has ended.
  bool has_header_ = false;
  std::vector<std::string> header_;
};

}  // namespace headrace::detail
