#pragma once
/// \file
/// Fields of a dict that Python may leave out.
#include "bind.h"

namespace headrace {

/// Where the dict has no such field, or None in it, `value` stays.
template <class T>
void read_field(const nb::dict& fields, const char* name, T& value) {
  if (fields.contains(name) && !fields[name].is_none()) value = nb::cast<T>(fields[name]);
}

}  // namespace headrace
