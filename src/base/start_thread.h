#pragma once
/// \file
/// start_thread(): a thread, where the system allows one more.
///
/// Threads: any.
#include <cstddef>
#include <system_error>
#include <utility>

namespace headrace {

/// Starts `work` in `thread`, a std::thread or std::jthread that runs nothing. \return false where
/// the system refuses one more (a limit of the user or of the control group, or no memory for it).
template <class Thread, class Work>
bool start_thread(Thread& thread, Work&& work) {
  try {
    thread = Thread(std::forward<Work>(work));
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

/// Starts up to `count` threads that do `work`, and pushes them back; fewer where the system
/// refuses more.
template <class Threads, class Work>
void start_threads(Threads& threads, std::size_t count, const Work& work) {
  for (std::size_t i = 0; i < count; ++i) {
    typename Threads::value_type thread;
    if (!start_thread(thread, work)) return;
    threads.push_back(std::move(thread));
  }
}

}  // namespace headrace
