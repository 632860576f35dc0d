#include "headrace/probe.h"

#include <vector>

#include "errors.h"
#include "store.h"

namespace headrace {
namespace {

nb::dict to_dict(const FetchProbeResult& result) {
  nb::dict fields;
  fields["seconds"] = result.seconds;
  fields["bytes"] = result.bytes;
  fields["requests"] = result.requests;
  fields["extra_attempts"] = result.extra_attempts;
  fields["failures"] = result.failures;
  fields["first_failure"] = std::string(result.first_failure.message());
  fields["first_byte_p50_us"] = result.first_byte_p50_us;
  fields["first_byte_p90_us"] = result.first_byte_p90_us;
  fields["first_byte_p99_us"] = result.first_byte_p99_us;
  fields["first_byte_p999_us"] = result.first_byte_p999_us;
  fields["request_p50_us"] = result.request_p50_us;
  fields["request_p99_us"] = result.request_p99_us;
  fields["request_p999_us"] = result.request_p999_us;
  return fields;
}

nb::dict probe(PyStore& self, const std::vector<ObjectInfo>& objects, std::uint64_t part_bytes,
               std::uint32_t in_flight, double seconds, std::uint64_t max_bytes,
               std::uint64_t seed) {
  FetchProbeOptions options;
  options.part_bytes = part_bytes;
  options.in_flight = in_flight;
  options.duration = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
  options.max_bytes = max_bytes;
  options.seed = seed;
  auto client = self.client.get();
  return to_dict(value_or_raise(run_interruptible([&](std::stop_token stop) {
                                  return probe_fetch(client->store(), *client->pool(), objects,
                                                     options, std::move(stop));
                                }),
                                client->store().url()));
}

}  // namespace

void bind_probe(nb::module_& m) {
  m.def("probe_fetch", &probe, nb::arg("store"), nb::arg("objects"), nb::arg("part_bytes"),
        nb::arg("in_flight"), nb::arg("seconds"), nb::arg("max_bytes") = 0, nb::arg("seed") = 0);
}

}  // namespace headrace
