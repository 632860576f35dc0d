#pragma once
/// \file
/// A directory as a store: "file:///path" or a plain path. Keys are relative paths.
///
/// Names that start with ".headrace-" are ours (temporary files, uploads) and are no objects. What
/// a file system cannot hold is refused: keys that are absolute, contain NUL, "." or "..", empty
/// components (kInvalidArgument), and an object below another object (kUnsupported). Links are
/// followed, except by remove(): of a link to a file it removes the link, and what lies below a
/// link to a directory it refuses (kUnsupported).
///
/// An upload belongs to the process that created it, while a handle of that store exists; what dead
/// ones left is removed at the next create_upload(). No fsync.
#include <memory>

#include "headrace/store.h"

namespace headrace {

/// Uses url, default_timeout, queue_capacity, max_in_flight (threads, at most 16) and clock of
/// `options`. The directory need not exist until it is used; writing creates it. Errors:
/// kInvalidArgument (URL), kExhausted (no thread).
Result<std::unique_ptr<Store>> open_file_store(const StoreOptions& options);

}  // namespace headrace
