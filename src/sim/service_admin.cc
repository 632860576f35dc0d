// The simulator's own endpoints below /_headrace/.
#include <algorithm>
#include <array>
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

constexpr std::array<std::string_view, 4> kStates = {"up", "refuse", "blackhole", "mute"};

std::string addresses_to_json(const std::vector<SimAddress>& addresses) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const SimAddress& address : addresses) {
    json.push_back({{"state", kStates[static_cast<std::size_t>(address.state)]},
                    {"delay_ms", address.delay_ms},
                    {"slow_factor", address.slow_factor},
                    {"connection_bytes_per_s", address.connection_bytes_per_s}});
  }
  return json.dump();
}

/// The address that a document describes, the rest as it is. Errors: kInvalidArgument.
Status read_address(std::string_view text, const std::vector<SimAddress>& current,
                    std::size_t& index, SimAddress& out) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("index") || !json["index"].is_number_unsigned() ||
      json["index"].get<std::size_t>() >= current.size()) {
    return Status(Code::kInvalidArgument, "simulator: index must be that of an address");
  }
  index = json["index"].get<std::size_t>();
  out = current[index];
  for (const auto& [name, value] : json.items()) {
    if (name == "index") continue;
    if (name == "state" && value.is_string()) {
      const auto state =
          std::find(kStates.begin(), kStates.end(), value.get_ref<const std::string&>());
      if (state == kStates.end()) {
        return Status(Code::kInvalidArgument,
                      "simulator: state must be up, refuse, blackhole or mute");
      }
      out.state = static_cast<SimAddress::State>(state - kStates.begin());
      continue;
    }
    double* field = name == "delay_ms"                 ? &out.delay_ms
                    : name == "slow_factor"            ? &out.slow_factor
                    : name == "connection_bytes_per_s" ? &out.connection_bytes_per_s
                                                       : nullptr;
    if (field == nullptr || !value.is_number()) {
      return Status(Code::kInvalidArgument, "simulator: bad field \"" + name + "\"");
    }
    *field = value.get<double>();
  }
  return {};
}

Status advance_by(std::string_view text, Control& control) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("ms") || !json["ms"].is_number_unsigned()) {
    return Status(Code::kInvalidArgument, "simulator: ms must be a whole number >= 0");
  }
  control.advance(std::chrono::milliseconds(json["ms"].get<std::uint32_t>()));
  return {};
}

Status touch_object(std::string_view text, Storage& storage) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("bucket") || !json["bucket"].is_string() ||
      !json.contains("key") || !json["key"].is_string()) {
    return Status(Code::kInvalidArgument, "simulator: bucket and key must be strings");
  }
  if (storage.touch(json["bucket"].get<std::string>(), json["key"].get<std::string>())) return {};
  return Status(Code::kNotFound, "simulator: no such object");
}

/// Without port: a numeric address, localhost or below it.
bool is_local_name(std::string_view host) {
  if (host.starts_with('[')) return true;  // IPv6
  host = host.substr(0, host.rfind(':'));
  if (host == "localhost" || host.ends_with(".localhost")) return true;
  return !host.empty() && host.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace

bool is_cross_site(const http::RequestHead& head) {
  const std::string_view site = head.header("sec-fetch-site");
  if (!site.empty() && site != "same-origin" && site != "none") return true;
  if (const std::string_view origin = head.header("origin"); !origin.empty()) {
    const std::size_t name = origin.find("://");
    if (name == std::string_view::npos || origin.substr(name + 3) != head.host) return true;
  }
  return head.path.starts_with("/_headrace/") && !is_local_name(head.host);
}

/// Google's: the metadata server's token and, for a service account, POST token.
bool Service::answer_token_request(const http::RequestHead& head, Exchange& exchange) {
  const std::string_view what = exchange.target.key;
  const bool is_metadata = what == "computeMetadata/v1/instance/service-accounts/default/token";
  if (!is_metadata && !(what == "token" && head.method == "POST")) return false;
  Response& response = exchange.response;
  if (is_metadata) response.fields += "Metadata-Flavor: Google\r\n";
  if (is_metadata && head.header("metadata-flavor") != "Google") {
    response.status = 403;
    response.body = error_json("Missing Metadata-Flavor:Google header");
    return true;
  }
  response.body = nlohmann::json({{"access_token", shared_.options.bearer_token},
                                  {"expires_in", 3599},
                                  {"token_type", "Bearer"}})
                      .dump();
  return true;
}

/// POSTs that answer {} or an error. False: not one of them.
bool Service::answer_command(std::string_view what, std::string_view text, Response& response) {
  Status status;
  if (what == "reset") {
    shared_.reset();
  } else if (what == "expire-token") {
    shared_.expire_credentials();
  } else if (what == "advance") {
    status = advance_by(text, *shared_.control);
  } else if (what == "touch") {
    status = touch_object(text, shared_.storage);
  } else if (what == "addresses") {
    std::size_t index = 0;
    SimAddress address;
    status = read_address(text, shared_.behaviour.get().addresses, index, address);
    if (status.ok()) status = shared_.control->set_address(index, address);
  } else {
    return false;
  }
  response.body = "{}";
  if (!status.ok()) {
    response.status = status.code() == Code::kNotFound ? 404 : 400;
    response.body = error_json(status.message());
  }
  return true;
}

void Service::answer_admin(const http::RequestHead& head, Exchange& exchange) {
  Response& response = exchange.response;
  response.fields += "Content-Type: application/json\r\n";
  const std::string_view what = exchange.target.key;
  const bool is_post = head.method == "POST";
  const std::string_view text = exchange.body ? exchange.body->memory() : std::string_view();
  if (answer_token_request(head, exchange)) return;
  if (head.method == "GET" && what == "stats") {
    response.body = shared_.stats_json();
  } else if (head.method == "GET" && what == "behaviour") {
    response.body = behaviour_to_json(shared_.behaviour.get().behaviour);
  } else if (head.method == "GET" && what == "addresses") {
    response.body = addresses_to_json(shared_.behaviour.get().addresses);
  } else if (is_post && what == "behaviour") {
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
  } else if (!is_post || !answer_command(what, text, response)) {
    response.status = 404;
    response.body = error_json(
        "no such endpoint: GET stats; GET or POST behaviour, addresses; POST reset, expire-token, "
        "advance, touch");
  }
}

}  // namespace headrace::sim
