#include "process.h"

#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "errors.h"
#include "headrace/log.h"
#include "headrace/machine.h"

namespace headrace {
namespace {

// Written only by the child side of fork(), which has one thread; read by any.
std::atomic<std::uint32_t> g_fork_generation{0};

// Threads inside a ReleaseGil. A hint for the exit, so relaxed.
std::atomic<int> g_waiting_threads{0};

// Thread that ends the interpreter; no thread's id before. Written once, under the GIL.
std::atomic<std::thread::id> g_exiting_thread{};

void begin_exit() { g_exiting_thread.store(std::this_thread::get_id()); }

/// Waits until no other thread is in a ReleaseGil, at most `timeout_s`; whether that came.
bool drain_calls(double timeout_s) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
  nb::gil_scoped_release release;
  while (g_waiting_threads.load(std::memory_order_relaxed) > 0) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace

bool is_left_behind_by_exit() noexcept {
  const std::thread::id exiting = g_exiting_thread.load();
  return exiting != std::thread::id() && exiting != std::this_thread::get_id();
}

ReleaseGil::ReleaseGil() noexcept {
  g_waiting_threads.fetch_add(1, std::memory_order_relaxed);
  state_ = PyEval_SaveThread();
}

ReleaseGil::~ReleaseGil() {
  PyEval_RestoreThread(state_);
  g_waiting_threads.fetch_sub(1, std::memory_order_relaxed);
}

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
  pthread_atfork(nullptr, nullptr, [] {
    g_fork_generation.fetch_add(1, std::memory_order_relaxed);
    // The threads that waited are not in the child.
    g_waiting_threads.store(0, std::memory_order_relaxed);
    renew_process_log();
  });
  m.def("begin_exit", &begin_exit);
  m.def("drain_calls", &drain_calls, nb::arg("timeout"));
  m.def("available_cores", &available_cores);
  m.def("cpu_features", [] {
    nb::list names;
    for (const std::string_view name : cpu_features())
      names.append(nb::str(name.data(), name.size()));
    return names;
  });
  m.def("memory_limit", [] {
    const MachineShare share = machine_share();
    return nb::make_tuple(share.memory_bytes, share.memory_limit_file);
  });
  m.attr("__version__") = HEADRACE_VERSION;
}

}  // namespace headrace
