#pragma once
/// \file
/// Directories of the cache: made when missing, and the names in them.
///
/// Threads: any.
#include <functional>
#include <string>

#include "base/fd.h"
#include "headrace/status.h"

namespace headrace::tier {

/// Opens `path`, seen from the directory `parent`; with `make`, made for its owner alone when it is
/// missing. Errors: those of making and opening it.
Result<Fd> open_folder(int parent, const std::string& path, bool make);

/// Calls `visit` with each name in an open directory. Errors: those of reading it.
Status visit_names(int directory, const std::function<void(const char*)>& visit);

}  // namespace headrace::tier
