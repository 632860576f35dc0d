// Braces are expanded when a pattern is parsed, so that matching knows stars, classes and single
// characters only. The number of alternatives is bounded, because groups multiply: {a,b}{a,b}...
// with thirty groups would be a thousand million.
//
// Matching has no recursion. A star that fails is given one character more, and only the last star
// is: what an earlier one took can stay as it is, since a later star can take up whatever follows.
// "*" and "?" never take a "/", "**" does, so there are two levels to go back to: the last "*"
// behind the last "**", then this "**" itself, which forgets the former.
//
// Names are bytes, and a character is one UTF-8 sequence where there is one, else one byte. Stars
// step over whole characters: from the middle of one, its last bytes would count as several.
#include <cstddef>
#include <cstdint>
#include <utility>

#include "headrace/copy.h"

namespace headrace {
namespace {

constexpr std::size_t kMostAlternatives = 1000;
constexpr std::string_view kSpecial = "*?[{\\";

Status malformed(std::string_view pattern, const char* why) {
  return Status(Code::kInvalidArgument, "pattern \"" + std::string(pattern) + "\": " + why);
}

/// Position of the bracket that ends the class at `open`, or npos. A `]` right after `[` or `[!`
/// stands for itself.
std::size_t end_of_class(std::string_view pattern, std::size_t open) {
  std::size_t at = open + 1;
  if (at < pattern.size() && (pattern[at] == '!' || pattern[at] == '^')) ++at;
  return pattern.find(']', at + 1);
}

/// Splits the first brace group of `pattern`: (before, alternatives, after); false when there is
/// none.
struct BraceGroup {
  std::string_view before, after;
  std::vector<std::string_view> alternatives;
};

Result<bool> find_braces(std::string_view pattern, BraceGroup& out) {
  std::size_t open = std::string_view::npos, depth = 0, start = 0;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\') {
      ++i;
    } else if (c == '[') {
      const std::size_t end = end_of_class(pattern, i);
      if (end == std::string_view::npos) return malformed(pattern, "[ without ]");
      i = end;
    } else if (c == '{') {
      if (depth++ == 0) {
        open = i;
        start = i + 1;
      }
    } else if (depth > 0 && ((c == ',' && depth == 1) || c == '}')) {
      if (c == '}' && --depth > 0) continue;
      out.alternatives.push_back(pattern.substr(start, i - start));
      start = i + 1;
      if (c == ',') continue;
      out.before = pattern.substr(0, open);
      out.after = pattern.substr(i + 1);
      return true;
    }
  }
  if (depth > 0) return malformed(pattern, "{ without }");
  return false;
}

Status expand(std::string_view pattern, std::vector<std::string>& out) {
  BraceGroup group;
  HEADRACE_TRY_ASSIGN(const bool has_braces, find_braces(pattern, group));
  if (!has_braces) {
    if (out.size() == kMostAlternatives) return malformed(pattern, "too many alternatives");
    out.emplace_back(pattern);
    return {};
  }
  for (const std::string_view alternative : group.alternatives) {
    HEADRACE_TRY(expand(
        std::string(group.before) + std::string(alternative) + std::string(group.after), out));
  }
  return {};
}

struct Character {
  std::uint32_t code = 0;  ///< Unicode's; of a byte that is no UTF-8 above all of those.
  std::size_t length = 1;
};

/// The first character of a text that is not empty.
Character first_character(std::string_view text) {
  constexpr std::uint32_t kNoUnicode = 0x110000;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {.code = lead};
  const Character single{.code = kNoUnicode + lead};
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return single;
  std::uint32_t code = lead & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return single;
    code = code << 6 | (byte(i) & 0x3FU);
  }
  // Longer than need be, half of a pair, beyond the last one.
  const bool is_bad = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000) ||
                      (code >= 0xD800 && code < 0xE000) || code >= kNoUnicode;
  return is_bad ? single : Character{.code = code, .length = length};
}

/// Takes the first character of a text.
std::uint32_t take_character(std::string_view& text) {
  const Character first = first_character(text);
  text.remove_prefix(first.length);
  return first.code;
}

/// Whether `code` is in the class whose text between the brackets is `set`.
bool is_in_class(std::string_view set, std::uint32_t code) {
  const bool is_negated = !set.empty() && (set[0] == '!' || set[0] == '^');
  if (is_negated) set.remove_prefix(1);
  bool is_found = false;
  while (!set.empty()) {
    const std::uint32_t first = take_character(set);
    std::uint32_t last = first;
    if (set.size() > 1 && set[0] == '-') {
      set.remove_prefix(1);
      last = take_character(set);
    }
    is_found |= first <= code && code <= last;
  }
  return is_found != is_negated && code != '/';
}

/// Bytes that one element takes of a pattern and of a text; 0 when it does not match.
struct Match {
  std::size_t pattern_bytes = 0, text_bytes = 0;
};

/// Matches one pattern element that takes exactly one character, or one byte that stands for
/// itself, at the start of a text that is not empty.
Match match_one(std::string_view pattern, std::string_view text) {
  switch (pattern[0]) {
    case '?':
      return text[0] != '/' ? Match{1, first_character(text).length} : Match{};
    case '[': {
      const std::size_t end = end_of_class(pattern, 0);
      const Character c = first_character(text);
      return is_in_class(pattern.substr(1, end - 1), c.code) ? Match{end + 1, c.length} : Match{};
    }
    case '\\':
      if (pattern.size() > 1) return pattern[1] == text[0] ? Match{2, 1} : Match{};
      return text[0] == '\\' ? Match{1, 1} : Match{};
    default:
      return pattern[0] == text[0] ? Match{1, 1} : Match{};
  }
}

/// Backtracks to the last star only, and for `**` to the last double star: linear for what people
/// write, at most quadratic in the text for each of its components.
bool match_plain(std::string_view pattern, std::string_view text) {
  constexpr std::size_t kNone = std::string_view::npos;
  std::size_t p = 0, t = 0, star_p = kNone, star_t = 0, deep_p = kNone, deep_t = 0;
  bool skips_components = false;  // the last double star is "**/"
  while (t < text.size() || p < pattern.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      std::size_t end = p;
      while (end < pattern.size() && pattern[end] == '*') ++end;
      if (end - p > 1) {
        // "**/" also matches nothing: a/**/b matches a/b.
        const bool is_component =
            (p == 0 || pattern[p - 1] == '/') && end < pattern.size() && pattern[end] == '/';
        skips_components = is_component;
        if (is_component) ++end;
        deep_p = end;
        deep_t = t;
        star_p = kNone;
      } else {
        star_p = end;
        star_t = t;
      }
      p = end;
      continue;
    }
    if (p < pattern.size() && t < text.size()) {
      if (const Match match = match_one(pattern.substr(p), text.substr(t)); match.text_bytes > 0) {
        p += match.pattern_bytes;
        t += match.text_bytes;
        continue;
      }
    }
    if (star_p != kNone && star_t < text.size() && text[star_t] != '/') {
      p = star_p;
      t = star_t += first_character(text.substr(star_t)).length;
    } else if (deep_p != kNone && deep_t < text.size()) {
      // "**/" takes whole components only: a/**/b must not match a/xb.
      const std::size_t slash = skips_components ? text.find('/', deep_t) : deep_t;
      if (slash == kNone) return false;
      p = deep_p;
      t = deep_t = slash + first_character(text.substr(slash)).length;
      star_p = kNone;
    } else {
      return false;
    }
  }
  return true;
}

std::string_view last_component(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  return slash == std::string_view::npos ? name : name.substr(slash + 1);
}

bool any_matches(const std::vector<Glob>& globs, std::string_view name) {
  for (const Glob& glob : globs) {
    if (glob.matches_name(name)) return true;
  }
  return false;
}

}  // namespace

Result<Glob> Glob::parse(std::string_view pattern) {
  Glob glob;
  HEADRACE_TRY(expand(pattern, glob.alternatives_));
  const std::size_t special = pattern.find_first_of(kSpecial);
  glob.has_wildcard_ = special != std::string_view::npos;
  glob.prefix_ = pattern.substr(0, special);
  return glob;
}

bool Glob::matches(std::string_view text) const {
  for (const std::string& pattern : alternatives_) {
    if (match_plain(pattern, text)) return true;
  }
  return false;
}

bool Glob::matches_name(std::string_view text) const {
  for (const std::string& pattern : alternatives_) {
    const bool is_path = pattern.find('/') != std::string::npos;
    if (match_plain(pattern, is_path ? text : last_component(text))) return true;
  }
  return false;
}

bool NameFilter::accepts(std::string_view name) const {
  return (include.empty() || any_matches(include, name)) && !any_matches(exclude, name);
}

}  // namespace headrace
