#pragma once
/// \file
/// Reading one record of separated values (RFC 4180) without building anything: fields are spans of
/// the record. Pure; nothing is allocated.
///
/// A field that begins with a quote ends with one; two quotes in it are one. A quote elsewhere is a
/// character as any other. Records end with "\n", "\r\n" or "\r".
///
/// Threads: values; CsvText has one owner.
#include <cstddef>
#include <span>
#include <string_view>

namespace headrace::detail {

struct CsvField {
  std::string_view inner;       ///< Without the quotes around it, as written.
  std::size_t quote_pairs = 0;  ///< Pairs of quotes in `inner`, each of which is one.

  std::size_t value_bytes() const noexcept { return inner.size() - quote_pairs; }
  /// \pre out.size() == value_bytes().
  void write_to(std::span<char> out) const noexcept;
};

/// Walks over the fields of a record (without its line end): one at least.
class CsvText {
 public:
  CsvText(std::string_view record, char delimiter) noexcept
      : rest_(record), delimiter_(delimiter) {}

  /// False at the end of the record, and where it is broken.
  bool take(CsvField& field) noexcept;
  /// A quoted field did not end, or went on behind its quote.
  bool is_broken() const noexcept { return is_broken_; }

 private:
  bool take_quoted(CsvField& field) noexcept;

  std::string_view rest_;
  const char delimiter_;
  bool is_at_end_ = false;
  bool is_broken_ = false;
};

/// Without the line ends around it.
std::string_view trim_csv_record(std::string_view record) noexcept;

}  // namespace headrace::detail
