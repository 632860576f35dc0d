#pragma once
/// \file
/// The process the module lives in: its environment, and what fork() does to engine objects.
///
/// A forked child has our memory but none of our threads, and locks may be held for ever. So a
/// child neither uses nor destroys engine objects of its parent: using one raises, dropping one
/// leaks it.
#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>

#include "bind.h"
#include "headrace/store.h"

namespace headrace {

/// How often this process image was forked since the module was loaded. Async-signal-safe to read.
std::uint32_t fork_generation() noexcept;

/// From when the interpreter begins to exit: whether the calling thread is another than the one
/// that ends it. Such a thread ends by SystemExit, in silence; a traceback printed meanwhile can
/// abort the process (CPython: "could not acquire lock for stderr at interpreter shutdown").
bool is_left_behind_by_exit() noexcept;

/// Whether the calling thread holds the GIL.
inline bool has_gil() noexcept {
#ifdef Py_LIMITED_API
  // From 3.12 on the current thread state is the thread's own, so without the GIL there is no dict.
  return PyThreadState_GetDict() != nullptr;
#else
  return PyGILState_Check() != 0;
#endif
}

/// Releases the GIL for a scope, and counts the threads that are in such scopes: at exit they must
/// come back before the interpreter goes, or taking the GIL kills them in the middle of C++ code.
class ReleaseGil {
 public:
  ReleaseGil() noexcept;
  ~ReleaseGil();
  ReleaseGil(const ReleaseGil&) = delete;
  ReleaseGil& operator=(const ReleaseGil&) = delete;

 private:
  PyThreadState* state_;
};

/// The variables of the process as they are now (os.environ writes through to them).
Environment capture_environment();

/// A shared engine object that fork() and close() can take away. Copies share the object, not the
/// closing.
///
/// Threads: the GIL protects it.
template <class T>
class Guarded {
 public:
  Guarded() = default;
  /// `what` names the object in messages ("Store") and must be a literal.
  Guarded(const char* what, std::shared_ptr<T> object)
      : what_(what), object_(std::move(object)), generation_(fork_generation()) {}
  Guarded(Guarded&& o) noexcept = default;
  Guarded& operator=(Guarded&& o) noexcept {
    drop();
    what_ = o.what_;
    object_ = std::move(o.object_);
    generation_ = o.generation_;
    return *this;
  }
  ~Guarded() { drop(); }

  /// The object, alive for as long as the caller keeps the pointer. Raises when closed or forked.
  std::shared_ptr<T> get() const;

  /// The object or nullptr when closed or of the parent process.
  std::shared_ptr<T> peek() const noexcept { return is_foreign() ? nullptr : object_; }
  bool is_closed() const noexcept { return object_ == nullptr; }

  /// Gives up the reference; the destructor may join threads, so without the GIL.
  void drop() noexcept {
    if (!object_) return;
    if (is_foreign()) {
      // Leaked on purpose: its destructor would join threads that this process does not have.
      new std::shared_ptr<T>(std::move(object_));
    } else if (has_gil()) {
      auto dying = std::move(object_);
      ReleaseGil release;
      dying.reset();
    }
    object_.reset();
  }

 private:
  bool is_foreign() const noexcept { return generation_ != fork_generation(); }
  const char* what_ = "object";
  std::shared_ptr<T> object_;
  std::uint32_t generation_ = 0;
};

/// Raises the error for a closed object, or one made before fork().
[[noreturn]] void raise_unusable(const char* what, bool closed);

template <class T>
std::shared_ptr<T> Guarded<T>::get() const {
  if (is_foreign()) raise_unusable(what_, false);
  if (!object_) raise_unusable(what_, true);
  return object_;
}

}  // namespace headrace
