#pragma once
/// \file
/// The one place where a Status becomes a Python exception (classes in headrace/errors.py).
///
/// Threads: the caller holds the GIL.
#include <string_view>

#include "bind.h"
#include "headrace/status.h"

namespace headrace {

/// Throws the exception for an error. `key` becomes its attribute `key` (None when empty). \pre
/// !status.ok()
[[noreturn]] void raise(const Status& status, std::string_view key = {});

/// The same, with the caller's own object as `key`.
[[noreturn]] void raise(const Status& status, const nb::object& key);

/// The exception for an error, not raised: for calls that report several. \pre !status.ok()
nb::object make_error(const Status& status, std::string_view key = {});

inline void raise_if_error(const Status& status, std::string_view key = {}) {
  if (!status.ok()) raise(status, key);
}

template <class T>
T value_or_raise(Result<T> result, std::string_view key = {}) {
  if (!result) raise(result.error(), key);
  return *std::move(result);
}

}  // namespace headrace
