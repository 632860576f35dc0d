// Mosaic's orders as a source: which list an epoch has from a place on, and Mosaic's own state.
#include "order/mosaic/mosaic_source.h"

#include <simdjson.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "order/foreign_state.h"
#include "order/list_cache.h"

namespace headrace {
namespace {

using order_detail::node_count;
using order_detail::OpenMosaicList;

struct Inputs {
  MosaicSpec spec;
  std::vector<MosaicStream> streams;
  std::vector<std::uint32_t> block_samples;
  RunWorld world;
  OpenMosaicList open_list;
  std::uint64_t digest = 0;
};

/// Everything that the order depends on but for its seed and the world.
std::uint64_t digest_of_inputs(const MosaicSpec& spec, const std::vector<MosaicStream>& streams) {
  nlohmann::json json = {
      spec.shuffle,        spec.shuffle_block_size, spec.sampling_method, spec.sampling_granularity,
      spec.partition_algo, spec.batching_method,    spec.epoch_size};
  for (const MosaicStream& stream : streams) {
    json.push_back({stream.shard_samples, stream.proportion.value_or(-1),
                    stream.repeat.value_or(-1), stream.choose.value_or(0)});
  }
  return order_detail::digest_of(json.dump());
}

Status bad_field(const char* name) {
  return Status(Code::kInvalidArgument, std::string("loader state: field '") + name +
                                            "' is missing or not a whole number in range");
}

/// Reads Mosaic's fields of a state. `is_strict`: all must be there, as in our own states.
Result<MosaicState> read_fields(std::string_view json, bool is_strict) {
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  const simdjson::padded_string padded(json);
  MosaicState state;
  if (parser.parse(padded).get_object().get(object) != simdjson::SUCCESS) return bad_field("epoch");
  if (object["epoch"].get_uint64().get(state.epoch)) return bad_field("epoch");
  if (object["sample_in_epoch"].get_uint64().get(state.sample_in_epoch))
    return bad_field("sample_in_epoch");
  const auto small = [&](const char* name, std::uint32_t& out) -> Status {
    simdjson::dom::element element;
    if (object[name].get(element) || element.is_null()) {
      return is_strict ? bad_field(name) : Status();
    }
    std::uint64_t value = 0;
    if (element.get_uint64().get(value) || value > 0xffff'ffffU) return bad_field(name);
    out = static_cast<std::uint32_t>(value);
    return {};
  };
  HEADRACE_TRY(small("num_canonical_nodes", state.num_canonical_nodes));
  HEADRACE_TRY(small("initial_physical_nodes", state.initial_physical_nodes));
  std::uint64_t seed = 0;
  if (!object["shuffle_seed"].get_uint64().get(seed)) {
    state.shuffle_seed = seed;
  } else if (is_strict) {
    return bad_field("shuffle_seed");
  }
  return state;
}

class MosaicSource final : public OrderSource {
 public:
  /// `origin`: what the run took over from its state or began with; its position is unused.
  MosaicSource(std::shared_ptr<const Inputs> inputs, MosaicState origin)
      : inputs_(std::move(inputs)), origin_(origin) {}

  OrderSpec spec() const override {
    OrderSpec spec;
    spec.id = "mosaic:" + inputs_->spec.shuffle_algo;
    // The loader's argument; a seed taken over travels in the state's shuffle_seed.
    spec.seed = inputs_->spec.shuffle_seed;
    spec.window_blocks = 1;
    spec.block_table_digest = inputs_->digest;
    return spec;
  }

  Result<OrderPlan> plan(const OrderQuery& query, const std::stop_token& stop) const override {
    return cache_.get(query, [&] { return make_plan(query, stop); });
  }

  std::string state_extra(std::uint64_t, std::uint64_t t) const override {
    nlohmann::ordered_json json;
    json["sample_in_epoch"] = t;
    json["num_canonical_nodes"] = origin_.num_canonical_nodes;
    json["shuffle_seed"] = seed();
    json["initial_physical_nodes"] = origin_.initial_physical_nodes;
    return json.dump();
  }

  Result<std::shared_ptr<const OrderSource>> restored(const OrderSpec&,
                                                      std::string_view state) const override {
    HEADRACE_TRY_ASSIGN(const MosaicState saved, read_fields(state, true));
    simdjson::dom::parser parser;
    std::uint64_t t = 0;
    const simdjson::padded_string padded(state);
    const bool is_read = !parser.parse(padded)["t"].get_uint64().get(t);
    if (!is_read || t != saved.sample_in_epoch) return bad_field("sample_in_epoch");
    return with_origin(saved);
  }

  Result<std::optional<Foreign>> read_foreign(std::string_view state) const override {
    simdjson::dom::parser parser;
    if (!order_detail::state_of(order_detail::StateWriter::kMosaic, state, parser))
      return std::optional<Foreign>();
    HEADRACE_TRY_ASSIGN(const MosaicState saved, read_fields(state, false));
    HEADRACE_TRY_ASSIGN(auto source, with_origin(saved));
    return std::optional<Foreign>(
        Foreign{.position = {.epoch = saved.epoch, .t = saved.sample_in_epoch},
                .source = std::move(source)});
  }

  Result<MosaicState> begin() const {
    HEADRACE_TRY_ASSIGN(const MosaicWorld world,
                        world_of(inputs_->world.world_size, inputs_->world.batch_size));
    MosaicState state = origin_;
    state.epoch = 0;
    state.sample_in_epoch = 0;
    HEADRACE_TRY_ASSIGN(const auto epoch,
                        MosaicEpoch::create(inputs_->spec, inputs_->streams, world, state));
    MosaicState begun = epoch->state();
    begun.initial_physical_nodes = world.physical_nodes;
    return begun;
  }

 private:
  std::uint64_t seed() const { return origin_.shuffle_seed.value_or(inputs_->spec.shuffle_seed); }

  Result<MosaicWorld> world_of(std::uint32_t world_size, std::uint64_t batch_size) const {
    HEADRACE_TRY_ASSIGN(const std::uint32_t nodes,
                        node_count(world_size, inputs_->world.ranks_per_node));
    return MosaicWorld{.physical_nodes = nodes,
                       .ranks_per_node = world_size / nodes,
                       .workers = std::max(inputs_->world.workers, 1U),
                       .batch_size = static_cast<std::uint32_t>(batch_size)};
  }

  Result<std::shared_ptr<const OrderSource>> with_origin(const MosaicState& saved) const {
    MosaicState origin = origin_;
    if (saved.num_canonical_nodes > 0) origin.num_canonical_nodes = saved.num_canonical_nodes;
    if (saved.shuffle_seed) origin.shuffle_seed = saved.shuffle_seed;
    if (saved.initial_physical_nodes > 0)
      origin.initial_physical_nodes = saved.initial_physical_nodes;
    return std::shared_ptr<const OrderSource>(
        std::make_shared<const MosaicSource>(inputs_, origin));
  }

  Result<OrderPlan> make_plan(const OrderQuery& query, const std::stop_token& stop) const {
    HEADRACE_TRY_ASSIGN(const MosaicWorld world,
                        world_of(query.world_size, query.global_batch / query.world_size));
    HEADRACE_TRY_ASSIGN(const MosaicWeights weights,
                        apply_mosaic_weights(inputs_->streams, inputs_->spec.epoch_size,
                                             inputs_->spec.shuffle_seed));
    // Mosaic refuses to go on from a place past this one. Its last columns hold samples there yet,
    // when the canonical nodes do not divide the samples.
    const std::uint64_t ranks = world.rank_count();
    const bool is_late = query.t > weights.epoch_size + ranks - weights.epoch_size % ranks;
    MosaicState state = origin_;
    state.epoch = query.epoch;
    state.sample_in_epoch = is_late ? 0 : query.t;
    HEADRACE_TRY_ASSIGN(const auto epoch,
                        MosaicEpoch::create(inputs_->spec, inputs_->streams, world, state));
    const std::uint64_t begin = is_late ? query.t / query.global_batch * query.global_batch : 0;
    if (begin >= epoch->slot_count()) return OrderPlan();
    HEADRACE_TRY_ASSIGN(auto list, inputs_->open_list(*epoch, stop));
    if (begin > 0) list = std::make_shared<const order_detail::ListTail>(std::move(list), begin);
    HEADRACE_TRY_ASSIGN(auto order, create_listed_order(spec(), inputs_->block_samples, query.epoch,
                                                        std::move(list)));
    return OrderPlan{.order = std::move(order), .start = 0};
  }

  const std::shared_ptr<const Inputs> inputs_;
  const MosaicState origin_;
  order_detail::PlanCache cache_;
};

Status check_streams(const order_detail::DatasetShape& shape,
                     const std::vector<MosaicStream>& streams) {
  std::size_t shard = 0;
  for (const MosaicStream& stream : streams) {
    for (const std::uint64_t samples : stream.shard_samples) {
      if (shard == shape.shards.size() || shape.shards[shard].sample_count != samples) {
        return Status(Code::kInvalidArgument, "order: shard " + std::to_string(shard) +
                                                  " of the streams is not that of the dataset");
      }
      ++shard;
    }
  }
  if (shard == shape.shards.size()) return {};
  return Status(Code::kInvalidArgument, "order: the streams have " + std::to_string(shard) +
                                            " shards, the dataset " +
                                            std::to_string(shape.shards.size()));
}

}  // namespace

Result<std::shared_ptr<const OrderSource>> order_detail::create_mosaic_source(
    DatasetShape shape, const MosaicSpec& spec, std::vector<MosaicStream> streams,
    const RunWorld& world, OpenMosaicList open_list) {
  HEADRACE_TRY(check_world(world));
  if (streams.empty()) {
    streams.emplace_back();
    for (const DatasetShape::Shard& shard : shape.shards)
      streams[0].shard_samples.push_back(shard.sample_count);
  }
  HEADRACE_TRY(check_streams(shape, streams));
  auto inputs = std::make_shared<Inputs>();
  inputs->spec = spec;
  inputs->digest = digest_of_inputs(spec, streams);
  inputs->streams = std::move(streams);
  inputs->block_samples = std::move(shape.block_samples);
  inputs->world = world;
  inputs->open_list = std::move(open_list);
  // The number of canonical nodes is that of the first run, whatever comes after.
  HEADRACE_TRY_ASSIGN(const MosaicState origin, MosaicSource(inputs, {}).begin());
  return std::shared_ptr<const OrderSource>(
      std::make_shared<const MosaicSource>(std::move(inputs), origin));
}

}  // namespace headrace
