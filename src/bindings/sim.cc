#include "headrace/sim.h"

#include <chrono>
#include <optional>
#include <string>

#include "errors.h"
#include "fields.h"
#include "process.h"

namespace headrace {
namespace {

struct PySimServer {
  Guarded<SimServer> server;
};

/// `text`: JSON that changes what the profile says; nullopt without any.
std::optional<SimBehaviour> parse_behaviour(const std::optional<std::string>& text,
                                            const std::string& profile) {
  if (!text) return std::nullopt;
  const SimBehaviour base =
      value_or_raise(sim_behaviour_from_json("{\"profile\": \"" + profile + "\"}"));
  return value_or_raise(sim_behaviour_from_json(*text, base));
}

SimOptions parse_options(const nb::dict& fields) {
  SimOptions options;
  read_field(fields, "host", options.host);
  read_field(fields, "port", options.port);
  read_field(fields, "profile", options.profile);
  read_field(fields, "seed", options.seed);
  read_field(fields, "threads", options.thread_count);
  read_field(fields, "require_signature", options.require_signature);
  read_field(fields, "access_key", options.access_key);
  read_field(fields, "secret_key", options.secret_key);
  read_field(fields, "session_token", options.session_token);
  read_field(fields, "region", options.region);
  read_field(fields, "bearer_token", options.bearer_token);
  read_field(fields, "addresses", options.address_count);
  read_field(fields, "tls", options.tls);
  read_field(fields, "certificate", options.certificate_path);
  read_field(fields, "private_key", options.private_key_path);
  read_field(fields, "redirect_reads", options.redirect_reads);
  read_field(fields, "count_repeats", options.count_repeats);
  std::optional<std::string> behaviour;
  read_field(fields, "behaviour", behaviour);
  options.behaviour = parse_behaviour(behaviour, options.profile);
  return options;
}

}  // namespace

void bind_sim(nb::module_& m) {
  nb::class_<PySimServer>(m, "SimServer")
      .def(
          "__init__",
          [](PySimServer* self, const std::string& directory, const nb::dict& fields) {
            SimOptions options = parse_options(fields);
            options.directory = directory;
            std::shared_ptr<SimServer> server = value_or_raise(SimServer::start(options));
            new (self) PySimServer{Guarded<SimServer>("the simulator", std::move(server))};
          },
          nb::arg("directory"), nb::arg("options"))
      .def_prop_ro("port", [](PySimServer& self) { return self.server.get()->port(); })
      .def_prop_ro("endpoint", [](PySimServer& self) { return self.server.get()->endpoint(); })
      .def_prop_ro("addresses", [](PySimServer& self) { return self.server.get()->addresses(); })
      .def_prop_ro("ca_path", [](PySimServer& self) { return self.server.get()->ca_path(); })
      .def(
          "set_behaviour",
          [](PySimServer& self, const std::string& json) {
            const auto server = self.server.get();
            raise_if_error(server->set_behaviour(
                value_or_raise(sim_behaviour_from_json(json, server->behaviour()))));
          },
          nb::arg("json"))
      .def(
          "advance",
          [](PySimServer& self, std::uint64_t ms) {
            self.server.get()->advance(std::chrono::milliseconds(ms));
          },
          nb::arg("ms"))
      .def("expire_credentials", [](PySimServer& self) { self.server.get()->expire_credentials(); })
      .def(
          "touch",
          [](PySimServer& self, const std::string& bucket, const std::string& key) {
            raise_if_error(self.server.get()->touch(bucket, key));
          },
          nb::arg("bucket"), nb::arg("key"))
      .def_static("profile_names", &sim_profile_names)
      .def("stats_json", [](PySimServer& self) { return self.server.get()->stats_json(); })
      .def("stop", [](PySimServer& self) { self.server.drop(); });
}

}  // namespace headrace
