#pragma once
/// \file
/// LocalStore: the Store contract over a LocalBackend: accepting, queueing, deadlines, cancelling,
/// completing, counting.
///
/// Threads: as Store. With workers, requests run on up to `worker_limit` threads that start when
/// there is work for them and serve all handles in turn; without, submit() runs them before it
/// returns.
#include <cstdint>
#include <memory>
#include <string>

#include "headrace/store.h"
#include "store/local_backend.h"

namespace headrace {

struct LocalStoreOptions {
  std::string url;
  std::size_t worker_limit = 0;     ///< 0: run requests inside submit().
  std::size_t accept_limit = 4096;  ///< Requests of one handle between submit() and wait().
  std::chrono::milliseconds default_timeout{60'000};
  Clock* clock = nullptr;            ///< nullptr: system_clock().
  std::string local_directory = {};  ///< See Store.
  std::string origin = {};           ///< See Store.
  bool keeps_settings = false;       ///< With objects.
  ObjectSettings settings = {};      ///< StoreOptions::settings.
};

/// Errors: kInvalidArgument (limits), kExhausted (no thread).
Result<std::unique_ptr<Store>> make_local_store(std::unique_ptr<LocalBackend> backend,
                                                const LocalStoreOptions& options);

/// "GET file:///d/k [0, 8388608)", "PUT file:///d/k (12 bytes)".
std::string describe_request(std::string_view url, const Request& request);

/// Whether the fields of a request fit together. Errors: kInvalidArgument.
Status check_request(const Request& request);

}  // namespace headrace
