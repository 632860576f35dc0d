#pragma once
/// \file
/// Which settings a write has, of those that its store and its request say. Pure.
#include "headrace/object_settings.h"

namespace headrace {

/// `own` of the store, and over it those of the request, if any. Refers to one of them, or to
/// `room`: no copy is made unless both say something.
inline const ObjectSettings& effective_settings(const ObjectSettings& own,
                                                const ObjectSettings* request,
                                                ObjectSettings& room) {
  if (request == nullptr) return own;
  if (own.empty()) return *request;
  room = settings_over(*request, own);
  return room;
}

}  // namespace headrace
