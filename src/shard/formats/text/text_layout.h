#pragma once
/// \file
/// Which columns the lines of a text dataset have: collected from the first lines of each file,
/// kept as the index's layout. Pure.
///
/// Threads: one owner.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/dataset.h"
#include "headrace/status.h"

namespace headrace::detail {

enum class TextKind : std::uint8_t { kText, kJson };

/// Lines of each file that are looked at for fields.
inline constexpr std::uint64_t kLookedAtLines = 100;
/// A line beyond this is not looked at.
inline constexpr std::size_t kMostLookedAtBytes = std::size_t{1} << 20;
/// More different fields than this are no schema: only the whole line is a column then.
inline constexpr std::size_t kMostFields = 256;

/// How the values of one field become bytes.
enum class FieldKind : std::uint8_t {
  kNone,   ///< Only null so far.
  kBool,   ///< uint8 0 or 1, dtype "bool".
  kInt,    ///< int64
  kFloat,  ///< float64; integers too.
  kString,
  kJson  ///< The text of the value, whatever it is.
};
std::string_view field_kind_name(FieldKind kind) noexcept;

/// What was seen in the first lines.
struct TextFields {
  /// Lines are cut into fields: the first begins as an object does, and there are no more than
  /// kMostFields.
  bool are_objects = true;
  std::map<std::string, FieldKind, std::less<>> kinds;
  /// Which line is no object, and why; empty: none that was seen.
  std::string problem;

  /// Takes the first line, or the begin of it: decides `are_objects`. `number` is its place in the
  /// file (from 1, blank ones count).
  void begin(std::string_view line, std::uint64_t number);
  /// Takes a whole line; false when no more need be seen.
  bool add(std::string_view line, std::uint64_t number);
  void merge(const TextFields& other);
  std::string to_text() const;
  static Result<TextFields> from_text(std::string_view text);
};

struct TextField {
  std::string name;
  FieldKind kind = FieldKind::kNone;
};

struct TextLayout {
  TextKind kind = TextKind::kText;
  /// Of kJson: the columns; a field without a name is the whole line ("json").
  std::vector<TextField> fields;
};

/// Errors: kInvalidArgument (an unknown column: says which there are).
Result<TextLayout> make_text_layout(TextKind kind, const TextFields& seen,
                                    const std::vector<std::string>& chosen);
std::vector<Column> text_columns(const TextLayout& layout);
std::string layout_to_json(const TextLayout& layout);
Result<TextLayout> parse_text_layout(std::string_view json);

}  // namespace headrace::detail
