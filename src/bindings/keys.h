#pragma once
/// \file
/// Keys by where they are: what options called `key` name; and the Python class _native.SealKey.
#include <memory>
#include <string>

#include "bind.h"
#include "headrace/seal_key.h"

namespace headrace {

struct PySealKey {
  std::shared_ptr<const SealKey> key;
};

/// SealKey::read(), without the GIL and with Ctrl-C: a program may be asked for it. Raises.
std::shared_ptr<const SealKey> read_key(const std::string& source);

}  // namespace headrace
