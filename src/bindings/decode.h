#pragma once
/// \file
/// What is made of a column's values, as Python holds it. Immutable.
#include <memory>

#include "bind.h"
#include "headrace/decode.h"

namespace headrace {

struct PyDecode {
  std::shared_ptr<const Decode> decode;
};

}  // namespace headrace
