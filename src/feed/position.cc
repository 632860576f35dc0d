#include "feed/position.h"

#include <simdjson.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "feed/foreign_state.h"

namespace headrace::feed {
namespace {

/// OrderSpec::id of mixtures: their states have a field "mixture".
constexpr std::string_view kMixtureId = "mixture";
constexpr std::string_view kEndNames[] = {"pad", "drop", "uneven"};

Status bad(std::string what) {
  return Status(Code::kInvalidArgument, "loader state: " + std::move(what));
}

/// Reads fields of one JSON object; the first failure sticks.
class Fields {
 public:
  explicit Fields(simdjson::dom::object object) : object_(object) {}

  std::uint64_t number(const char* name, std::uint64_t most = ~std::uint64_t{0}) {
    std::uint64_t value = 0;
    if (object_[name].get_uint64().get(value) != simdjson::SUCCESS || value > most)
      fail(name, "a whole number in range");
    return value;
  }
  std::string text(const char* name) {
    std::string_view value;
    if (object_[name].get_string().get(value) != simdjson::SUCCESS) fail(name, "a string");
    return std::string(value);
  }
  std::uint64_t hex(const char* name) {
    const std::string digits = text(name);
    std::uint64_t value = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (error != std::errc() || end != digits.data() + digits.size() || digits.size() != 16)
      fail(name, "16 hex digits");
    return value;
  }
  void fail(const char* name, const char* wanted) {
    if (status_.ok())
      status_ = bad(std::string("field '") + name + "' is missing or not " + wanted);
  }
  Status take() { return std::move(status_); }

 private:
  simdjson::dom::object object_;
  Status status_;
};

Status differs(const char* field, const std::string& theirs, const std::string& ours,
               const char* advice) {
  return bad(std::string(field) + " is " + theirs + " in the state and " + ours +
             " here: " + advice);
}

}  // namespace

std::string hex16(std::uint64_t value) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (std::size_t i = 16; i-- > 0; value >>= 4) text[i] = kDigits[value & 15];
  return text;
}

std::string_view epoch_end_name(EpochEnd end) noexcept {
  return kEndNames[static_cast<std::size_t>(end)];
}

std::string write_state(const LoaderState& state, std::string_view extra) {
  nlohmann::ordered_json json;
  json["version"] = kStateVersion;
  json["fingerprint"] = state.fingerprint;
  json["order"] = state.order.id;
  json["order_version"] = state.order.version;
  json["seed"] = state.order.seed;
  json["epoch"] = state.position.epoch;
  json["t"] = state.position.t;
  json["batches"] = state.position.batches;
  json["lane_count"] = state.order.lane_count;
  json["window_blocks"] = state.order.window_blocks;
  json["bundle_lanes"] = state.order.bundle_lanes;
  json["block_table_digest"] = hex16(state.order.block_table_digest);
  json["epoch_end"] = epoch_end_name(state.epoch_end);
  json["global_batch"] = state.global_batch;
  if (!state.quarantine.empty()) json["quarantine"] = state.quarantine;
  json["mixture"] = nullptr;
  const auto more = nlohmann::ordered_json::parse(extra, nullptr, false);
  HEADRACE_DCHECK(more.is_object());
  for (const auto& [name, value] : more.items()) json[name] = value;
  return json.dump();
}

Result<LoaderState> read_state(std::string_view json) {
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  const simdjson::padded_string padded(json);
  if (const auto error = parser.parse(padded).get_object().get(object);
      error != simdjson::SUCCESS) {
    return bad(std::string("not a JSON object (") + simdjson::error_message(error) + ")");
  }
  HEADRACE_TRY(refuse_foreign(object));
  Fields fields(object);
  const std::uint64_t version = fields.number("version");
  HEADRACE_TRY(fields.take());
  if (version != kStateVersion) {
    return bad("version is " + std::to_string(version) +
               " in the state; this build reads version " + std::to_string(kStateVersion));
  }
  constexpr std::uint64_t kMax32 = 0xffffffff;
  LoaderState state;
  state.fingerprint = fields.text("fingerprint");
  state.order.id = fields.text("order");
  state.order.version = static_cast<std::uint32_t>(fields.number("order_version", kMax32));
  state.order.seed = fields.number("seed");
  state.position = {.epoch = fields.number("epoch"),
                    .t = fields.number("t"),
                    .batches = fields.number("batches")};
  state.order.lane_count = static_cast<std::uint32_t>(fields.number("lane_count", kMax32));
  state.order.window_blocks = static_cast<std::uint32_t>(fields.number("window_blocks", kMax32));
  state.order.bundle_lanes = static_cast<std::uint32_t>(fields.number("bundle_lanes", kMax32));
  state.order.block_table_digest = fields.hex("block_table_digest");
  state.global_batch = fields.number("global_batch");
  const std::string end = fields.text("epoch_end");
  bool is_known = false;
  for (std::size_t i = 0; i < std::size(kEndNames); ++i) {
    if (end != kEndNames[i]) continue;
    state.epoch_end = static_cast<EpochEnd>(i);
    is_known = true;
  }
  if (!is_known) fields.fail("epoch_end", "pad, drop or uneven");
  if (auto list = object["quarantine"]; list.error() == simdjson::SUCCESS && !list.is_null())
    state.quarantine = hex16(fields.hex("quarantine"));
  if (auto mixture = object["mixture"];
      mixture.error() == simdjson::SUCCESS && !mixture.is_null() && state.order.id != kMixtureId) {
    fields.fail("mixture", "null (only order 'mixture' has one)");
  }
  HEADRACE_TRY(fields.take());
  return state;
}

Status check_state(const LoaderState& state, const LoaderState& ours) {
  if (state.fingerprint != ours.fingerprint) {
    return differs("fingerprint", state.fingerprint, ours.fingerprint,
                   "this is another dataset, or it has changed");
  }
  if (state.order.id != ours.order.id)
    return differs("order", state.order.id, ours.order.id,
                   "open the loader with the state's order");
  if (state.order.version != ours.order.version) {
    return differs("order_version", std::to_string(state.order.version),
                   std::to_string(ours.order.version), "this build cannot continue that order");
  }
  if (state.order.seed != ours.order.seed) {
    return differs("seed", std::to_string(state.order.seed), std::to_string(ours.order.seed),
                   "open the loader with the state's seed");
  }
  if (state.order.block_table_digest != ours.order.block_table_digest) {
    return differs(
        "block_table_digest", hex16(state.order.block_table_digest),
        hex16(ours.order.block_table_digest),
        "open dataset and loader with the block_bytes and order options of the first run");
  }
  if (!state.quarantine.empty() && state.quarantine != ours.quarantine) {
    return differs("quarantine", state.quarantine,
                   ours.quarantine.empty() ? "none" : ours.quarantine,
                   "open the loader with the list of the run that wrote it, or set the state's "
                   "quarantine to null to go on with this one");
  }
  return {};
}

}  // namespace headrace::feed
