#pragma once
/// \file
/// Which hosts are this machine: nobody listens on the way to them.
#include <string_view>

namespace headrace {

/// An address of this machine, or the name that RFC 6761 keeps for it. In lower case, IPv6 without
/// brackets.
inline bool is_loopback_host(std::string_view host) noexcept {
  return host == "::1" || host == "localhost" ||
         (host.starts_with("127.") &&
          host.find_first_not_of("0123456789.") == std::string_view::npos);
}

}  // namespace headrace
