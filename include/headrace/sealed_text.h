#pragma once
/// \file
/// Small texts (manifests, indexes) encrypted as a whole: AES-256-GCM. docs/design/0057.
///
/// Place: src/seal/. Pure; any thread.
#include <string>
#include <string_view>

#include "headrace/seal_key.h"
#include "headrace/status.h"

namespace headrace {

/// `text` encrypted and authenticated for `purpose`, which whoever opens it says again. It is 56
/// bytes longer, and the same for the same key, purpose and text.
std::string seal_text(const SealKey& key, std::string_view purpose, std::string_view text);

/// Undoes seal_text(). Without a key, what is not encrypted is given back as it is. Errors: kDenied
/// (encrypted under another key than `key`, or without one; not encrypted although there is one:
/// the message names the keys), kCorrupt.
Result<std::string> open_text(const SealKey* key, std::string_view purpose, std::string_view text);

}  // namespace headrace
