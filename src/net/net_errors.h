#pragma once
/// \file
/// What errors of the network mean to the caller: the one table from errno and getaddrinfo() codes
/// to Status.
#include <string_view>

#include "headrace/status.h"

namespace headrace {

/// `error` is a positive errno of a socket operation. Transient and peer-caused failures are
/// kUnavailable (worth a retry); missing descriptors or memory kExhausted; -ECANCELED's kCancelled;
/// the rest kInternal. Message: "<doing>: <text>", or the text alone when `doing` is empty.
Status status_from_errno(int error, std::string_view doing = {});

/// `error` is a getaddrinfo() result != 0. A name that does not exist is kNotFound, everything else
/// kUnavailable.
Status status_from_resolver(int error, std::string_view host);

}  // namespace headrace
