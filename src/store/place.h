#pragma once
/// \file
/// Which objects a store holds. Pure.
#include <string>

#include "headrace/store.h"

namespace headrace {

/// The same text for every spelling of a store's URL (az://, azure://, abfss://, wasb:// and the
/// Blob service's own; gs:// and gcs://) at one server, with a slash at the end: a store whose
/// place starts with that of another holds a part of its objects. To compare, not to open.
std::string place_of(const Store& store);

}  // namespace headrace
