#include "headrace/clock.h"

#include "base/running_clock.h"

namespace headrace {
namespace {
class SystemClock final : public RunningClock {
 public:
  TimePoint now() const noexcept override { return std::chrono::steady_clock::now(); }
  std::chrono::sys_seconds wall_now() const noexcept override {
    return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  }
};
}  // namespace

Clock& system_clock() noexcept {
  static SystemClock clock;
  return clock;
}
}  // namespace headrace
