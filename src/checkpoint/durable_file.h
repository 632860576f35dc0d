#pragma once
/// \file
/// Files that are on the disk when they have their name: what a loss of power must not take back.
///
/// Threads: any.
#include <string>
#include <string_view>

#include "base/atomic_file.h"
#include "headrace/status.h"

namespace headrace::checkpoint {

/// Creates the directories of `root`/`key`, and in the last of them a file to be published.
Result<TemporaryFile> begin_durable(const std::string& root, std::string_view key);
/// Synchronises the file, gives it its name, and synchronises the directories from there up to
/// `root` and the one above, where it may be listed. `if_absent`: kChanged when the name is taken.
/// Errors: of errno_status(); nothing is published then, or it may go with the power.
Status publish_durable(TemporaryFile& file, const std::string& root, std::string_view key,
                       bool if_absent);
/// Both, around `bytes`.
Status write_durable(const std::string& root, std::string_view key, std::string_view bytes,
                     bool if_absent);

}  // namespace headrace::checkpoint
