#pragma once
/// \file
/// The Python class _native.Store, for the other files here that take one.
#include <memory>
#include <string>

#include "bind.h"
#include "headrace/store_client.h"
#include "process.h"
#include "waiting.h"

namespace headrace {

struct PyStore {
  Guarded<StoreClient> client;
};

/// Runs `work(pause)` without the GIL; `pause` takes it back to look for signals.
template <class Work>
auto without_gil(Work&& work) {
  ReleaseGil release;
  return work([] {
    nb::gil_scoped_acquire acquire;
    check_signals();
  });
}

}  // namespace headrace
