#pragma once
/// \file
/// Whether a file of sound has as many bytes of samples as it says. Pure.
///
/// Threads: functions.
#include <cstddef>
#include <span>

#include "headrace/status.h"

namespace headrace::detail {

/// Of WAV (RIFF, RIFX, RF64, BW64), W64, AIFF, AIFF-C, CAF, AU, NIST SPHERE, VOC and 8SVX. Others
/// say no size, or their decoder misses what is not there (FLAC, Ogg). O(chunks). Errors: kCorrupt,
/// where there are fewer bytes.
Status check_sound_size(std::span<const std::byte> bytes);

}  // namespace headrace::detail
