#pragma once
/// \file
/// Options of the engine from the keyword arguments of Python: which field each name sets.
#include <algorithm>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>

#include "bind.h"
#include "errors.h"

namespace headrace {

template <class Options>
class OptionTable {
 public:
  using Setter = std::function<void(Options&, nb::handle)>;

  OptionTable(std::initializer_list<std::pair<const std::string, Setter>> rows) : rows_(rows) {}

  void add(std::string name, Setter setter) { rows_.emplace(std::move(name), std::move(setter)); }

  /// Sets what `fields` names; None: the default stays. Raises InvalidArgumentError for an unknown
  /// name or a value of the wrong kind.
  void apply(const nb::dict& fields, Options& options) const {
    for (auto [name_object, value] : fields) {
      const auto name = nb::cast<std::string>(name_object);
      const auto found = rows_.find(name);
      if (found == rows_.end()) {
        std::string message = "no option " + name + "; known are";
        for (const auto& [known, setter] : rows_) message += " " + known;
        raise(Status(Code::kInvalidArgument, std::move(message)));
      }
      if (value.is_none()) continue;
      try {
        found->second(options, value);
      } catch (const nb::cast_error&) {
        raise(Status(Code::kInvalidArgument, shown(name, value) + ": a value of the wrong kind"));
      }
    }
  }

 private:
  /// "name=value", without values that are secrets or may hold some.
  static std::string shown(const std::string& name, nb::handle value) {
    if (name == "proxy" || name == "endpoint" || name.starts_with("password")) return name;
    constexpr std::size_t kMostBytes = 200;
    std::string text = nb::cast<std::string>(nb::repr(value));
    if (text.size() <= kMostBytes) return name + "=" + text;
    std::size_t end = kMostBytes;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // UTF-8.
    return name + "=" + text.substr(0, end) + "...";
  }

  std::map<std::string, Setter> rows_;
};

/// Seconds as a span of time. Raises InvalidArgumentError unless they are above 0 and at most a
/// year.
inline std::chrono::milliseconds seconds_of(const std::string& name, nb::handle value) {
  const auto seconds = nb::cast<double>(value);
  if (!(seconds > 0 && seconds <= 365 * 86400.0)) {
    raise(Status(Code::kInvalidArgument, name + "=" + nb::cast<std::string>(nb::repr(value)) +
                                             ": expected seconds above 0, at most a year"));
  }
  return std::max(std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3)),
                  std::chrono::milliseconds(1));
}

/// Of a field that takes the value as it is.
template <class Options, class T>
typename OptionTable<Options>::Setter plain(T Options::*field) {
  return [field](Options& options, nb::handle value) { options.*field = nb::cast<T>(value); };
}

/// Of one that takes what `read` makes of the value.
template <class Options, class T, class Given>
typename OptionTable<Options>::Setter parsed(T Options::*field, T (*read)(const Given&)) {
  return [field, read](Options& options, nb::handle value) {
    options.*field = read(nb::cast<Given>(value));
  };
}

}  // namespace headrace
