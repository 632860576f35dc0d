#pragma once
/// \file
/// Keys of several stores as one (headrace/router.h): "<number of the store>/<key there>". Pure.
#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>
#include <system_error>

namespace headrace {

/// Which store a key names, and the key there.
struct Route {
  std::size_t store = 0;
  std::string_view key;
};

/// None: it names no store below `store_count`, or nothing in it.
inline std::optional<Route> parse_route(std::string_view key, std::size_t store_count) {
  Route route;
  const char* const end = key.data() + key.size();
  const auto [rest, error] = std::from_chars(key.data(), end, route.store);
  if (error != std::errc() || rest == end || *rest != '/' || route.store >= store_count)
    return std::nullopt;
  route.key = key.substr(static_cast<std::size_t>(rest - key.data()) + 1);
  if (route.key.empty()) return std::nullopt;
  return route;
}

}  // namespace headrace
