#pragma once
/// \file
/// Which columns a dataset of separated values has: the header of its files, kept as the index's
/// layout. Pure.
///
/// Threads: functions.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/dataset.h"
#include "headrace/status.h"

namespace headrace::detail {

/// A header of more fields, or longer than this, is none.
inline constexpr std::size_t kMostCsvFields = 4096;
inline constexpr std::size_t kMostCsvHeaderBytes = std::size_t{1} << 20;

struct CsvLayout {
  char delimiter = ',';
  std::vector<std::string> header;     ///< Names of all fields of a record; all different.
  std::vector<std::uint32_t> columns;  ///< Positions in `header` of the columns.
};

/// What separates the fields of a file whose name says so (.csv .tsv .tab, also compressed);
/// nothing for other names.
std::optional<char> csv_delimiter_of(std::string_view key) noexcept;

/// The names in a header record. A field without a name is "unnamed_<position>". Errors:
/// kUnsupported (not UTF-8, a name twice, too many).
Result<std::vector<std::string>> parse_csv_header(std::string_view record, char delimiter);

/// Errors: kInvalidArgument (an unknown column: says which there are).
Result<CsvLayout> make_csv_layout(char delimiter, std::vector<std::string> header,
                                  const std::vector<std::string>& chosen);
std::vector<Column> csv_columns(const CsvLayout& layout);
std::string layout_to_json(const CsvLayout& layout);
bool is_csv_layout(std::string_view json) noexcept;
Result<CsvLayout> parse_csv_layout(std::string_view json);

/// A list of names as text, and back: what a scan keeps of a header. Errors: kCorrupt.
std::string header_to_text(const std::vector<std::string>& header);
Result<std::vector<std::string>> header_from_text(std::string_view text);

}  // namespace headrace::detail
