#include "store_options.h"

#include <algorithm>
#include <cmath>

#include "names.h"
#include "object_settings.h"
#include "option_table.h"
#include "process.h"

namespace headrace {
namespace {

PollerKind parse_poller(const std::string& name) {
  return by_name<PollerKind>(
      "poller", name,
      {{"auto", PollerKind::kAuto}, {"uring", PollerKind::kUring}, {"epoll", PollerKind::kEpoll}});
}

ChecksumKind parse_checksum(const std::string& name) {
  return by_name<ChecksumKind>("upload_checksum", name,
                               {{"crc32c", ChecksumKind::kCrc32c},
                                {"crc64nvme", ChecksumKind::kCrc64Nvme},
                                {"none", ChecksumKind::kNone}});
}

double parse_fraction(nb::handle value) {
  const auto fraction = nb::cast<double>(value);
  if (!(fraction >= 0 && fraction <= 1)) {
    raise(Status(Code::kInvalidArgument, "hedge_fraction: expected a number from 0 to 1"));
  }
  return fraction;
}

std::pair<const std::string, OptionTable<StoreOptions>::Setter> seconds(
    const std::string& name, std::chrono::milliseconds StoreOptions::*field) {
  return {name, [name, field](StoreOptions& options, nb::handle value) {
            options.*field = seconds_of(name, value);
          }};
}

OptionTable<StoreOptions> make_table() {
  return {
      {"endpoint", plain(&StoreOptions::endpoint)},
      {"region", plain(&StoreOptions::region)},
      {"anonymous", plain(&StoreOptions::anonymous)},
      {"path_style",
       [](StoreOptions& options, nb::handle value) { options.path_style = nb::cast<bool>(value); }},
      {"poller", parsed(&StoreOptions::poller, parse_poller)},
      {"reactors", plain(&StoreOptions::reactor_count)},
      {"max_in_flight", plain(&StoreOptions::max_in_flight)},
      {"adaptive", plain(&StoreOptions::is_adaptive)},
      {"hedge_fraction", [](StoreOptions& options,
                            nb::handle value) { options.hedge_fraction = parse_fraction(value); }},
      {"control_directory", plain(&StoreOptions::control_directory)},
      seconds("timeout", &StoreOptions::default_timeout),
      seconds("connect_timeout", &StoreOptions::connect_timeout),
      seconds("first_byte_timeout", &StoreOptions::first_byte_timeout),
      seconds("progress_timeout", &StoreOptions::progress_timeout),
      {"max_attempts", plain(&StoreOptions::max_attempts)},
      {"retry_seed", plain(&StoreOptions::retry_seed)},
      {"verify_checksums", plain(&StoreOptions::verify_checksums)},
      {"upload_checksum", parsed(&StoreOptions::upload_checksum, parse_checksum)},
      {"settings",
       [](StoreOptions& options, nb::handle value) {
         options.settings = parse_settings(nb::cast<nb::dict>(value));
       }},
      {"requester_pays", plain(&StoreOptions::requester_pays)},
      {"tls_verify", plain(&StoreOptions::tls_verify)},
      {"ca_bundle", plain(&StoreOptions::ca_bundle)},
      {"proxy", plain(&StoreOptions::proxy)},
      {"trusted_hosts", plain(&StoreOptions::trusted_hosts)},
  };
}

}  // namespace

Environment make_environment(const std::map<std::string, std::string>& overrides) {
  Environment environment = capture_environment();
  for (const auto& [name, value] : overrides) environment.variables[name] = value;
  return environment;
}

StoreOptions parse_store_options(const std::string& url, const nb::dict& fields) {
  static const OptionTable<StoreOptions> kTable = make_table();
  StoreOptions options;
  options.url = url;
  kTable.apply(fields, options);
  return options;
}

}  // namespace headrace
