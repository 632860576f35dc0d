#pragma once
/// \file
/// msgpack values as Python objects.
///
/// Threads: the caller holds the GIL.
#include <cstddef>
#include <span>

#include "bind.h"

namespace headrace {

/// None, bool, int, float, str, bytes, list, dict, and numpy.datetime64 of a timestamp. `of_map`:
/// what is made of a dict (headrace.data.msgpack_values.of_map), or an invalid object: the dict.
/// Throws nb::value_error (bytes that check_msgpack() refuses), Python's errors.
nb::object make_msgpack(std::span<const std::byte> bytes, const nb::object& of_map);

}  // namespace headrace
