#pragma once
/// \file
/// Which objects a task takes, and what they are called at the target. Pure.
#include <string>
#include <string_view>

#include "headrace/copy.h"

namespace headrace::copy_detail {

/// Whether the task takes the object. What it takes from the source it may delete at the target.
/// `pattern`: the task's, parsed.
bool takes(const CopyTask& task, const Glob& pattern, const NameFilter& filter,
           std::string_view from_key);

/// Whether it stands for a directory: such marks are all the same, and no file can be one.
bool is_directory_mark(const ObjectInfo& info);

/// Where an object of a tree goes.
std::string target_key(const CopyTask& task, bool flattens, std::string_view from_key);

}  // namespace headrace::copy_detail
