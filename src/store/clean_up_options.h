#pragma once
/// \file
/// clean_up_options(): how a call is made that removes what another has left which failed.
///
/// Threads: any.
#include <chrono>

#include "headrace/clock.h"
#include "headrace/store.h"

namespace headrace {

/// Neither stop nor deadline of the call that failed: they may be what ended it. But whoever waits
/// for that end must not wait long for this.
inline CallOptions clean_up_options() {
  return {.deadline = system_clock().now() + std::chrono::seconds(5), .stop = {}};
}

}  // namespace headrace
