#pragma once
/// \file
/// Writing a small object that must not be there yet.
#include "headrace/store.h"

namespace headrace::io {

/// write_object() that fails with kChanged when there is such an object. When the answer to an
/// earlier attempt was lost it may be this call's own: read it and compare.
Result<ObjectInfo> write_new_object(Store& store, SlabPool& pool, const std::string& key,
                                    std::string_view bytes, const CallOptions& call = {});

}  // namespace headrace::io
