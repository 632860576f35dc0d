#pragma once
/// \file
/// What reactors tell the log (headrace/log.h): requests that are repeated, a store that asks for
/// less, second attempts. Counted: a line a kind and store for ten seconds, whatever happens.
///
/// Threads: any.
#include <functional>
#include <string>
#include <string_view>

#include "headrace/status.h"

namespace headrace::transfer {

/// A store's URL as lines name it: without what a query may hold.
std::string log_subject(std::string_view url);

/// A request failed by `code` and will be tried again. `what`: "GET s3://b/k [0, 8): 503 SlowDown,
/// attempt 2 of 10, 12 ms".
void log_repeated(const std::string& subject, Code code, const std::string& what);

/// A request has not reached its server in several attempts, and will be tried again: told at once,
/// as somebody may be looking at a program that does nothing. `what`: as above.
void log_unreached(const std::string& subject, const std::string& what);

/// A second attempt begins; `what` makes the text, where anybody listens.
void log_hedged(const std::string& subject, const std::function<std::string()>& what);

}  // namespace headrace::transfer
