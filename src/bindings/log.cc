// Lines go to Python by a call of Python's: no engine thread ever comes here.
#include "headrace/log.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>

#include "bind.h"

namespace headrace {
namespace {

/// Of Python's logging.
constexpr int kPythonLevels[] = {10, 20, 30, 40};

int python_level(LogLevel level) noexcept {
  return kPythonLevels[std::min<std::size_t>(static_cast<std::size_t>(level), 3)];
}

void set_log_level(int python) noexcept {
  std::size_t level = 0;
  while (level < std::size(kPythonLevels) && kPythonLevels[level] < python) ++level;
  process_log().set_level(static_cast<LogLevel>(level));
}

/// (level, area, text, seconds since 1970) of what waited.
nb::list take_log(bool ends_spans) {
  nb::list out;
  const auto keep = [&](const LogLine& line) {
    const double at_s = std::chrono::duration<double>(line.at.time_since_epoch()).count();
    out.append(nb::make_tuple(python_level(line.level), line.area, line.text, at_s));
  };
  process_log().take(keep, ends_spans);
  return out;
}

}  // namespace

void bind_log(nb::module_& m) {
  m.def("set_log_level", &set_log_level, nb::arg("level"));
  m.def("take_log", &take_log, nb::arg("ends_spans") = false);
}

}  // namespace headrace
