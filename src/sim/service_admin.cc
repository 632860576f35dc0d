// The simulator's own endpoints below /_headrace/.
#include <nlohmann/json.hpp>

#include "sim/service.h"

namespace headrace::sim {
namespace {

std::string error_json(std::string_view message) {
  return nlohmann::json({{"error", message}})
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// The seed that a behaviour document may carry; `current` without one, nullopt when ill-typed.
std::optional<std::uint64_t> seed_of(std::string_view text, std::uint64_t current) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("seed")) return current;
  if (!json["seed"].is_number_unsigned()) return std::nullopt;
  return json["seed"].get<std::uint64_t>();
}

}  // namespace

void Service::answer_admin(const http::RequestHead& head, Exchange& exchange) {
  Response& response = exchange.response;
  response.fields += "Content-Type: application/json\r\n";
  const std::string_view what = exchange.target.key;
  const bool is_post = head.method == "POST";
  if (head.method == "GET" && what == "stats") {
    response.body = shared_.stats_json();
  } else if (head.method == "GET" && what == "behaviour") {
    response.body = behaviour_to_json(shared_.behaviour.get().behaviour);
  } else if (is_post && what == "reset") {
    shared_.reset();
    response.body = "{}";
  } else if (is_post && what == "expire-token") {
    shared_.is_token_expired.store(true, std::memory_order_relaxed);
    response.body = "{}";
  } else if (is_post && what == "behaviour") {
    const std::string_view text = exchange.body ? exchange.body->memory() : std::string_view();
    const BehaviourCell::Value current = shared_.behaviour.get();
    auto changed = behaviour_from_json(text, current.behaviour);
    const auto seed = seed_of(text, current.seed);
    if (!changed || !seed) {
      response.status = 400;
      response.body = error_json(changed ? "simulator behaviour: seed must be a whole number >= 0"
                                         : changed.error().message());
      return;
    }
    shared_.behaviour.set(*changed, *seed);
    response.body = behaviour_to_json(*changed);
  } else {
    response.status = 404;
    response.body = error_json(
        "no such endpoint: GET stats, GET or POST behaviour, POST reset, POST expire-token");
  }
}

}  // namespace headrace::sim
