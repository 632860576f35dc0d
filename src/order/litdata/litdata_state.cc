// A state is taken over only where going on would deliver the samples that LitData would have
// delivered. What a state says and our loader contradicts is refused, with the argument that would
// agree; a field that a state does not have (older releases have fewer) takes a default.
#include "order/litdata/litdata_state.h"

#include <algorithm>
#include <string>

namespace headrace::order_detail {
namespace {

// More than any machine has; keeps products of counts below 2^63.
constexpr std::uint64_t kMostOfWorld = 1 << 24;
constexpr std::uint64_t kMostSamples = std::uint64_t{1} << 48;

/// Reads whole numbers; the first failure sticks.
class Numbers {
 public:
  explicit Numbers(simdjson::dom::object object) : object_(object) {}
  /// A field that is not there has the value `absent`.
  std::uint64_t get(const char* name, std::uint64_t absent, std::uint64_t most) {
    const auto field = object_[name];
    if (field.error() == simdjson::NO_SUCH_FIELD) return absent;
    std::uint64_t value = 0;
    if (!field.get_uint64().get(value) && value <= most) return value;
    if (failed_ == nullptr) failed_ = name;
    return absent;
  }
  /// A count of the world; LitData writes 0 workers as well.
  std::uint32_t count(const char* name, std::uint32_t absent) {
    return static_cast<std::uint32_t>(std::max<std::uint64_t>(get(name, absent, kMostOfWorld), 1));
  }
  Status take() const {
    if (failed_ == nullptr) return {};
    return Status(Code::kInvalidArgument, std::string("loader state: LitData's field '") + failed_ +
                                              "' is not a whole number in range");
  }

 private:
  simdjson::dom::object object_;
  const char* failed_ = nullptr;
};

Status differs(const std::string& name, const std::string& theirs, const std::string& ours,
               const std::string& advice) {
  return Status(Code::kInvalidArgument, "loader state: " + name + " is " + theirs +
                                            " in LitData's state and " + ours +
                                            " here: open the loader with " + advice);
}

std::string python(bool value) { return value ? "True" : "False"; }

Status check_flag(simdjson::dom::object state, const char* name, bool ours,
                  const std::string& advice) {
  bool theirs = false;
  if (state[name].get_bool().get(theirs) || theirs == ours) return {};
  return differs(name, python(theirs), python(ours), advice + python(theirs));
}

Status check_seed(simdjson::dom::object state, std::uint64_t ours) {
  std::uint64_t theirs = 0;
  if (state["seed"].get_uint64().get(theirs) || theirs == ours) return {};
  return differs("seed", std::to_string(theirs), std::to_string(ours),
                 "seed=" + std::to_string(theirs));
}

Status check_item_window(simdjson::dom::object state, const LitDataSpec& spec) {
  // States of old releases lack it: whole chunks.
  std::uint64_t theirs = 0;
  const auto field = state["item_shuffle_window"];
  if (field.error() != simdjson::NO_SUCH_FIELD && field.get_uint64().get(theirs)) return {};
  const auto is_whole = [](std::uint64_t window) { return window <= 1; };
  const auto& ours = spec.item_shuffle_window;
  if (ours && (*ours == theirs || (is_whole(*ours) && is_whole(theirs)))) return {};
  return differs("item_shuffle_window", std::to_string(theirs),
                 ours ? std::to_string(*ours) : "None",
                 "order_options={\"item_shuffle_window\": " + std::to_string(theirs) + "}");
}

/// A run over a part of the chunks, or of their items, is another data set.
Status check_chunks(simdjson::dom::object state, std::span<const LitDataChunk> chunks) {
  simdjson::dom::array parts;
  if (state["region_of_interest"].get_array().get(parts)) return {};
  std::size_t same = 0;
  std::size_t count = 0;
  for (const simdjson::dom::element part : parts) {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    const bool is_range = !part.at(0).get_uint64().get(begin) && !part.at(1).get_uint64().get(end);
    const bool is_same = is_range && begin == 0 && count < chunks.size() &&
                         end == chunks[count].end - chunks[count].begin;
    same += is_same ? 1 : 0;
    ++count;
  }
  if (count == chunks.size() && same == count) return {};
  return Status(Code::kInvalidArgument,
                "loader state: LitData's run read " + std::to_string(count) + " chunks, of which " +
                    std::to_string(same) + " are like the " + std::to_string(chunks.size()) +
                    " chunks here: it is of another data set, or of a part (subsample)");
}

}  // namespace

Result<LitDataState> read_litdata_state(simdjson::dom::object state, const LitDataWorld& here) {
  Numbers numbers(state);
  LitDataState out;
  out.epoch = static_cast<std::uint32_t>(numbers.get("current_epoch", 0, 0xffff'ffffU));
  out.num_samples_yielded = numbers.get("num_samples_yielded", 0, kMostSamples);
  out.saved_by = {.world_size = numbers.count("world_size", 1),
                  .nodes = 1,
                  .workers = numbers.count("num_workers", 1),
                  .batch_size = numbers.count("batch_size", 1)};
  const LitDataWorld& saved = out.saved_by;
  out.sample_in_epoch = numbers.get("sample_in_epoch", out.num_samples_yielded * saved.world_size,
                                    ~std::uint64_t{0} >> 1);
  out.initial.world_size = numbers.count("initial_world_size", saved.world_size);
  const bool fits = out.initial.world_size % here.nodes == 0;
  out.initial.nodes = numbers.count("initial_num_nodes", fits ? here.nodes : 1);
  out.initial.workers = numbers.count("initial_num_workers", saved.workers);
  out.initial.batch_size = numbers.count("initial_batch_size", saved.batch_size);
  HEADRACE_TRY(numbers.take());
  std::string_view mode;
  out.is_elastic = !state["resume_mode"].get_string().get(mode) && mode == "elastic";
  if (out.epoch > 0 && out.initial.world_size % out.initial.nodes == 0) return out;
  return Status(Code::kInvalidArgument,
                std::string("loader state: LitData's field '") +
                    (out.epoch > 0 ? "initial_num_nodes" : "current_epoch") + "' is out of range");
}

nlohmann::ordered_json write_litdata_state(const LitDataState& state) {
  nlohmann::ordered_json json;
  json["current_epoch"] = state.epoch;
  json["num_samples_yielded"] = state.num_samples_yielded;
  json["sample_in_epoch"] = state.sample_in_epoch;
  json["world_size"] = state.saved_by.world_size;
  json["num_workers"] = state.saved_by.workers;
  json["batch_size"] = state.saved_by.batch_size;
  json["initial_world_size"] = state.initial.world_size;
  json["initial_num_nodes"] = state.initial.nodes;
  json["initial_num_workers"] = state.initial.workers;
  json["initial_batch_size"] = state.initial.batch_size;
  if (state.is_elastic) json["resume_mode"] = "elastic";
  return json;
}

Status check_litdata_state(simdjson::dom::object state, const LitDataSpec& spec,
                           std::span<const LitDataChunk> chunks) {
  const bool is_shuffled = spec.shuffle != "none";
  HEADRACE_TRY(check_flag(state, "shuffle", is_shuffled, "shuffle="));
  HEADRACE_TRY(check_flag(state, "drop_last", spec.drop_last, "order_options drop_last="));
  if (is_shuffled) {
    HEADRACE_TRY(check_seed(state, spec.seed));
    HEADRACE_TRY(check_item_window(state, spec));
  }
  return check_chunks(state, chunks);
}

}  // namespace headrace::order_detail
