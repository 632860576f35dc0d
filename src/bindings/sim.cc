#include "headrace/sim.h"

#include <map>
#include <string>

#include "errors.h"
#include "process.h"

namespace headrace {
namespace {

struct PySimServer {
  Guarded<SimServer> server;
};

std::optional<SimBehaviour> parse_behaviour(const nb::object& fields) {
  if (fields.is_none()) return std::nullopt;
  SimBehaviour behaviour;
  const std::map<std::string, double*> by_name = {
      {"first_byte_p50_ms", &behaviour.first_byte_p50_ms},
      {"first_byte_p99_ms", &behaviour.first_byte_p99_ms},
      {"slow_first_byte_rate", &behaviour.slow_first_byte_rate},
      {"slow_first_byte_ms", &behaviour.slow_first_byte_ms},
      {"connection_bytes_per_s", &behaviour.connection_bytes_per_s},
      {"throttle_rate", &behaviour.throttle_rate},
      {"error_rate", &behaviour.error_rate},
      {"reset_rate", &behaviour.reset_rate},
      {"truncate_rate", &behaviour.truncate_rate}};
  for (auto [name, value] : nb::cast<nb::dict>(fields)) {
    const auto text = nb::cast<std::string>(name);
    const auto it = by_name.find(text);
    if (it == by_name.end()) {
      std::string message = "behaviour has no field " + text + "; fields are";
      for (const auto& [known, target] : by_name) message += " " + known;
      raise(Status(Code::kInvalidArgument, std::move(message)));
    }
    *it->second = nb::cast<double>(value);
  }
  return behaviour;
}

}  // namespace

void bind_sim(nb::module_& m) {
  nb::class_<PySimServer>(m, "SimServer")
      .def(
          "__init__",
          [](PySimServer* self, const std::string& directory, const std::string& host,
             std::uint16_t port, const std::string& profile, const nb::object& behaviour,
             std::uint64_t seed, std::uint32_t threads, bool require_signature,
             const std::string& access_key, const std::string& secret_key,
             const std::string& session_token, const std::string& region) {
            SimOptions options;
            options.directory = directory;
            options.host = host;
            options.port = port;
            options.profile = profile;
            options.behaviour = parse_behaviour(behaviour);
            options.seed = seed;
            options.thread_count = threads;
            options.require_signature = require_signature;
            options.access_key = access_key;
            options.secret_key = secret_key;
            options.session_token = session_token;
            options.region = region;
            std::shared_ptr<SimServer> server = value_or_raise(SimServer::start(options));
            new (self) PySimServer{Guarded<SimServer>("the simulator", std::move(server))};
          },
          nb::arg("directory"), nb::kw_only(), nb::arg("host") = "127.0.0.1", nb::arg("port") = 0,
          nb::arg("profile") = "none", nb::arg("behaviour") = nb::none(), nb::arg("seed") = 0,
          nb::arg("threads") = 1, nb::arg("require_signature") = true,
          nb::arg("access_key") = "headrace", nb::arg("secret_key") = "headrace-secret",
          nb::arg("session_token") = "", nb::arg("region") = "us-east-1")
      .def_prop_ro("port", [](PySimServer& self) { return self.server.get()->port(); })
      .def_prop_ro("endpoint", [](PySimServer& self) { return self.server.get()->endpoint(); })
      .def("stats_json", [](PySimServer& self) { return self.server.get()->stats_json(); })
      .def("stop", [](PySimServer& self) { self.server.drop(); });
}

}  // namespace headrace
