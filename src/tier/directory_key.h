#pragma once
/// \file
/// Whether a cache directory is encrypted, and under which key: decided when it is made, for as
/// long as it is there. The file `key-id` in it says so; a directory without one is not encrypted.
///
/// Threads: any.
#include <string>

#include "headrace/seal_key.h"
#include "headrace/status.h"

namespace headrace::tier {

/// What an encrypted directory says of itself, and decides that where it is new: \pre its ledger's
/// init lock is held (Ledger::open()). `key`: nullptr: none is known. Returns the id of its key; ""
/// where it is not encrypted. Errors: kInvalidArgument (a key for a directory that is not
/// encrypted), kDenied (another key than the directory's), kCorrupt, those of the file system.
Result<std::string> agree_on_key(int root, const SealKey* key);

}  // namespace headrace::tier
