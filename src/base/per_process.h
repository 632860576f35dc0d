#pragma once
/// \file
/// What a process has one of, whoever in it asks: registries of what is open.
///
/// Threads: any.
#include <pthread.h>

#include <atomic>

namespace headrace {

/// The process's object of type T, made at the first call and never destroyed, since threads may
/// outlive static destructors. A child of fork() has a new one: the parent's has locks that may be
/// held for ever, and knows objects whose threads the child does not have.
template <class T>
T& per_process() {
  static std::atomic<T*> object{new T};  // The child that replaces it has one thread.
  static const int is_watching = pthread_atfork(nullptr, nullptr, [] { object.store(new T); });
  static_cast<void>(is_watching);
  return *object.load();
}

}  // namespace headrace
