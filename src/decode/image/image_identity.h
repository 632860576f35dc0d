#pragma once
/// \file
/// image_identity(): what decides the pixels of images beside their bytes (ValueDecoder::identity).
///
/// Threads: a function; any.
#include <string>

#include "headrace/decode.h"

namespace headrace::detail {

/// Empty where pixels are drawn at random. `is_pil`: the column has MDS's encoding of that name.
std::string image_identity(const ImageOptions& options, bool is_pil);

}  // namespace headrace::detail
