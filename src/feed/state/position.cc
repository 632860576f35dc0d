// A state is written by one build and read by another, on another dataset object, perhaps by hand
// in between. Reading and judging are apart: read_state() says whether this is a whole state of
// ours, check_state() whether it goes on here.
//
// Invariants:
// - Names of fields never change their meaning; a field that is not known is somebody else's and
//   stays out of the checksum. What must be the same for the run to be the same is in kProven, or a
//   field of the order's own (`extra`), and is covered; what people may change, or set to null, is
//   not.
// - The checksum is of the parsed fields, not of the text: a state may be formatted, and its
//   members may change places. Numbers have to come back as they were written for that.
// - A state of another loader is called by that loader's name before anything else is said of it.
// - States of version 1 have no checksum: all their numbers are held against what a run can reach,
//   so that products of them stay inside 64 bits.
// - What differs is told with both values and what to do. Lanes, window and bundle are the state's:
//   a run goes on with the order that it began with.
#include "feed/state/position.h"

#include <simdjson.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "order/foreign_state.h"

namespace headrace::feed {
namespace {

/// OrderSpec::id of mixtures: their states have a field "mixture".
constexpr std::string_view kMixtureId = "mixture";
constexpr std::string_view kEndNames[] = {"pad", "drop", "uneven"};

/// Fields that say where a run goes on; the checksum covers them, and not what is for people
/// (epoch_end, global_batch) or may be set to null (quarantine). Orders add the second lot.
constexpr std::string_view kProven[] = {
    "version", "fingerprint", "order", "order_version", "seed", "epoch", "t", "batches",
    "lane_count", "window_blocks", "bundle_lanes", "block_table_digest", "mixture", "broken_shards",
    // Mosaic's and LitData's orders.
    "sample_in_epoch", "num_canonical_nodes", "shuffle_seed", "initial_physical_nodes",
    "world_size", "num_nodes", "num_workers", "batch_size", "dealt_out", "taken_over"};
bool is_among(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

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

namespace {

/// Of the proven fields of a state and those that its order adds (the names of `extra`), whatever
/// their sequence and the blanks between them. What others add plays no part.
std::string checksum_of(const nlohmann::json& state, const nlohmann::json& extra) {
  nlohmann::json proven = nlohmann::json::object();
  for (const auto& [name, value] : state.items()) {
    if (is_among(kProven, name) || extra.contains(name)) proven[name] = value;
  }
  const std::string text = proven.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return hex16(XXH3_64bits(text.data(), text.size()));
}

/// What a state without a checksum can be asked: states of version 1.
Status check_ranges(const LoaderState& state) {
  const auto [epoch, t, batches] = state.position;
  if (batches > t) {
    return bad("batches is " + std::to_string(batches) + " and t " + std::to_string(t) +
               ": no run stands there");
  }
  // No run goes through so many: keeps every product of it inside 64 bits.
  if (epoch >= std::uint64_t{1} << 40) return bad("epoch is " + std::to_string(epoch));
  if (state.order.id == "headrace" && state.order.bundle_lanes != 1 &&
      state.order.bundle_lanes != 2 && state.order.bundle_lanes != 4)
    return bad("bundle_lanes is " + std::to_string(state.order.bundle_lanes) + ", not 1, 2 or 4");
  return {};
}

}  // namespace

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
  if (state.broken_shards > 0) json["broken_shards"] = state.broken_shards;
  json["mixture"] = nullptr;
  const auto more = nlohmann::ordered_json::parse(extra, nullptr, false);
  HEADRACE_DCHECK(more.is_object());
  for (const auto& [name, value] : more.items()) json[name] = value;
  json["checksum"] = checksum_of(nlohmann::json(json), nlohmann::json(more));
  return json.dump();
}

Result<LoaderState> read_state(std::string_view json, std::string_view extra) {
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  const simdjson::padded_string padded(json);
  if (const auto error = parser.parse(padded).get_object().get(object);
      error != simdjson::SUCCESS) {
    return bad(std::string("not a JSON object (") + simdjson::error_message(error) + ")");
  }
  // First: a state of another loader is to be called that, and not a broken one of ours.
  HEADRACE_TRY(order_detail::refuse_foreign(object));
  Fields fields(object);
  const std::uint64_t version = fields.number("version");
  HEADRACE_TRY(fields.take());
  if (version < 1 || version > kStateVersion) {
    return bad("version is " + std::to_string(version) +
               " in the state; this build reads versions 1 to " + std::to_string(kStateVersion));
  }
  constexpr std::uint64_t kMax32 = 0xffffffff;
  LoaderState state;
  state.version = version;
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
  if (object["broken_shards"].error() == simdjson::SUCCESS)
    state.broken_shards = fields.number("broken_shards");
  if (auto mixture = object["mixture"];
      mixture.error() == simdjson::SUCCESS && !mixture.is_null() && state.order.id != kMixtureId) {
    fields.fail("mixture", "null (only order 'mixture' has one)");
  }
  const bool has_checksum = version > 1 || object["checksum"].error() == simdjson::SUCCESS;
  const std::string checksum = has_checksum ? fields.text("checksum") : std::string();
  HEADRACE_TRY(fields.take());
  if (has_checksum && checksum != checksum_of(nlohmann::json::parse(json, nullptr, false),
                                              nlohmann::json::parse(extra, nullptr, false))) {
    return bad(
        "its checksum does not fit its fields: it was altered, or is damaged. Go on from one as it "
        "was written");
  }
  HEADRACE_TRY(check_ranges(state));
  return state;
}

Status check_state(const LoaderState& state, const LoaderState& ours) {
  const bool is_old = state.version == 1;
  const std::string& fingerprint = is_old ? ours.version_fingerprint : ours.fingerprint;
  if (state.fingerprint != fingerprint && state.broken_shards != ours.broken_shards) {
    return bad("it is of a dataset without " + std::to_string(state.broken_shards) +
               " broken shards, this one is without " + std::to_string(ours.broken_shards) +
               " (fingerprint " + state.fingerprint + " and " + fingerprint +
               "): orders of different sets of shards are different orders. Bring back the shards "
               "that it knew, or begin anew");
  }
  if (state.fingerprint != fingerprint) {
    return differs("fingerprint", state.fingerprint, fingerprint,
                   is_old ? "this is another dataset, or it has changed; a state of this age goes "
                            "on over the same objects only, not over a copy"
                          : "this is another dataset, or it has changed");
  }
  if (state.order.id != ours.order.id)
    return differs("order", state.order.id, ours.order.id,
                   "open the loader with the state's order");
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
  // Of a state without a checksum: wider windows than that are all the same.
  const std::uint32_t widest = std::max(ours.block_count, ours.order.window_blocks);
  if (is_old && state.order.window_blocks > widest) {
    return bad("window_blocks is " + std::to_string(state.order.window_blocks) +
               ", more than the dataset's " + std::to_string(ours.block_count) + " blocks");
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
