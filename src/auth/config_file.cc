#include "auth/config_file.h"

#include <cctype>
#include <optional>

#include "base/strings.h"
#include "http/fields.h"

namespace headrace::auth {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

bool is_blank(char c) { return c == ' ' || c == '\t'; }

/// Cuts off " # comment" and " ; comment": only after white space, since values may hold both
/// characters.
std::string_view without_comment(std::string_view value) {
  for (std::size_t i = 1; i < value.size(); ++i) {
    if ((value[i] == '#' || value[i] == ';') && is_blank(value[i - 1]))
      return trim(value.substr(0, i));
  }
  return value;
}

/// "profile 'my  dev'" -> "profile my  dev": the AWS command line quotes names with blanks. Others
/// stay as they are.
std::optional<std::string> without_quotes(std::string_view section) {
  const std::size_t blank = section.find_first_of(" \t");
  if (blank == std::string_view::npos) return std::nullopt;
  const std::string_view name = trim(section.substr(blank));
  const char quote = name.front();
  const bool is_quoted = (quote == '"' || quote == '\'') && name.size() > 2 && name.back() == quote;
  if (!is_quoted) return std::nullopt;
  return std::string(section.substr(0, blank)).append(1, ' ').append(name, 1, name.size() - 2);
}

/// "[profile  dev]" -> "profile dev". False when there is no closing bracket.
bool parse_section(std::string_view line, std::string& out) {
  const std::size_t close = line.find(']');
  if (close == std::string_view::npos) return false;
  const std::string_view section = trim(line.substr(1, close - 1));
  if (auto name = without_quotes(section)) {
    out = *std::move(name);
    return true;
  }
  out.clear();
  for (char c : section) {
    if (is_blank(c) && !out.empty() && out.back() == ' ') continue;
    out.push_back(is_blank(c) ? ' ' : c);
  }
  return !out.empty();
}

}  // namespace

Result<ConfigSections> parse_config(std::string_view text, const std::string& path) {
  ConfigSections sections;
  std::map<std::string, std::string>* section = nullptr;
  std::string outer_key;  // of the indented lines that may follow
  std::size_t line_number = 0;
  const auto bad = [&](std::string_view why) {
    return Status(Code::kInvalidArgument,
                  path + ", line " + std::to_string(line_number) + ": " + std::string(why));
  };
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view raw = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++line_number;
    if (!raw.empty() && raw.back() == '\r') raw.remove_suffix(1);
    const std::string_view line = trim(raw);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (!is_blank(raw.front()) && line.front() == '[') {
      std::string name;
      if (!parse_section(line, name)) return bad("a section must look like [name]");
      section = &sections[name];
      outer_key.clear();
      continue;
    }
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos || equals == 0)
      return bad("expected \"name = value\" or a [section]");
    if (section == nullptr) return bad("a value before the first [section]");
    std::string key = lower(trim(line.substr(0, equals)));
    const std::string value(without_comment(trim(line.substr(equals + 1))));
    if (is_blank(raw.front()) && !outer_key.empty()) {
      key.insert(0, outer_key + ".");
    } else {
      outer_key = value.empty() ? key : "";
    }
    (*section)[key] = value;
  }
  return sections;
}

}  // namespace headrace::auth
