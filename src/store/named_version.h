#pragma once
/// \file
/// Whether an answer is about the version that was asked for. Pure.
///
/// Servers that know no versions pass over the parameter and answer with the newest.
#include <string_view>

#include "headrace/object_settings.h"
#include "headrace/status.h"

namespace headrace {

/// `told`: by the answer; nullptr: nothing. `version_id` empty: any version will do. Errors:
/// kUnsupported.
Status check_named_version(const ObjectDetails* told, std::string_view version_id);

}  // namespace headrace
