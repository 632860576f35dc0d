#include "process.h"

#include <pthread.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "errors.h"

namespace headrace {
namespace {

// Written only by the child side of fork(), which has one thread; read by any.
std::atomic<std::uint32_t> g_fork_generation{0};

}  // namespace

std::uint32_t fork_generation() noexcept {
  return g_fork_generation.load(std::memory_order_relaxed);
}

Environment capture_environment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const char* equals = std::strchr(*entry, '=');
    if (equals == nullptr) continue;
    environment.variables.emplace(std::string(*entry, static_cast<std::size_t>(equals - *entry)),
                                  std::string(equals + 1));
  }
  return environment;
}

void raise_unusable(const char* what, bool closed) {
  std::string message = std::string(what);
  message += closed ? " is closed"
                    : " was opened before fork(): its threads are not in this process; open a new "
                      "one here, or start "
                      "the workers with the spawn method";
  raise(Status(Code::kInvalidArgument, std::move(message)));
}

void bind_process(nb::module_& m) {
  pthread_atfork(nullptr, nullptr,
                 [] { g_fork_generation.fetch_add(1, std::memory_order_relaxed); });
  m.attr("__version__") = HEADRACE_VERSION;
}

}  // namespace headrace
