// LitData's order as a source. In the world that an epoch began in it goes on at any slot; in
// another what is left is dealt out anew, as LitData does. A state of LitData goes on as there.
#include "order/litdata/litdata_source.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "order/foreign_state.h"
#include "order/list_cache.h"
#include "order/litdata/litdata_state.h"

namespace headrace {
namespace {

struct Inputs {
  LitDataSpec spec;
  std::vector<LitDataChunk> chunks;
  std::vector<std::uint32_t> block_samples;
  std::uint32_t ranks_per_node = 0;
  std::uint32_t workers = 1;
  std::uint64_t digest = 0;
};

/// An epoch that began in another world than the run's, or that LitData began.
struct Origin {
  std::uint64_t epoch = 0;
  std::uint64_t t = 0;  ///< Where what was left of it begins.
  LitDataWorld world;
  std::optional<LitDataState> taken_over;  ///< From LitData; then `world` says nothing.
};

// More than any machine has; keeps products of counts below 2^63.
constexpr std::uint64_t kMostOfWorld = 1 << 24;

Status bad_field(const char* name) {
  return Status(Code::kInvalidArgument,
                std::string("loader state: field '") + name + "' is missing or out of range");
}

/// The world that wrote a state. Older states do not say its nodes: 0.
Result<LitDataWorld> read_world(simdjson::dom::object object) {
  LitDataWorld world;
  const auto is_read = [&](const char* name, std::uint32_t& out) {
    std::uint64_t value = 0;
    if (object[name].get_uint64().get(value) || value == 0 || value > kMostOfWorld) return false;
    out = static_cast<std::uint32_t>(value);
    return true;
  };
  if (!is_read("world_size", world.world_size)) return bad_field("world_size");
  if (!is_read("num_workers", world.workers)) return bad_field("num_workers");
  if (!is_read("batch_size", world.batch_size)) return bad_field("batch_size");
  world.nodes = 0;
  if (object["num_nodes"].error() == simdjson::NO_SUCH_FIELD) return world;
  if (!is_read("num_nodes", world.nodes) || world.world_size % world.nodes != 0)
    return bad_field("num_nodes");
  return world;
}

/// Reads "dealt_out" of a state, which stands at out.t: [t, ranks, workers, batch size, nodes] of
/// the world before. Older states do not say the nodes: 0.
bool parse_origin(simdjson::simdjson_result<simdjson::dom::element> field, Origin& out) {
  simdjson::dom::array values;
  if (field.get_array().get(values) || values.size() < 4 || values.size() > 5) return false;
  std::array<std::uint64_t, 5> numbers{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool is_number = !values.at(i).get_uint64().get(numbers[i]);
    const std::uint64_t most = i == 0 ? out.t : kMostOfWorld;
    if (!is_number || numbers[i] == 0 || numbers[i] > most) return false;
  }
  out.t = numbers[0];
  out.world = {.world_size = static_cast<std::uint32_t>(numbers[1]),
               .nodes = static_cast<std::uint32_t>(numbers[4]),
               .workers = static_cast<std::uint32_t>(numbers[2]),
               .batch_size = static_cast<std::uint32_t>(numbers[3])};
  return out.world.nodes == 0 || out.world.world_size % out.world.nodes == 0;
}

bool is_same(const LitDataWorld& a, const LitDataWorld& b) {
  return a.world_size == b.world_size && a.nodes == b.nodes && a.workers == b.workers &&
         a.batch_size == b.batch_size;
}

class LitDataSource final : public OrderSource {
 public:
  LitDataSource(std::shared_ptr<const Inputs> inputs, LitDataWorld world,
                std::optional<Origin> origin)
      : inputs_(std::move(inputs)), world_(world), origin_(origin) {}

  OrderSpec spec() const override {
    OrderSpec spec;
    spec.id = "litdata";
    spec.seed = inputs_->spec.seed;
    spec.window_blocks = 1;
    spec.block_table_digest = inputs_->digest;
    return spec;
  }

  Result<OrderPlan> plan(const OrderQuery& query, const std::stop_token&) const override {
    return cache_.get(query, [&] { return make_plan(query); });
  }

  std::string state_extra(std::uint64_t epoch, std::uint64_t) const override {
    const bool has_origin = origin_ && origin_->epoch == epoch;
    nlohmann::ordered_json json;
    json["world_size"] = world_.world_size;
    json["num_nodes"] = world_.nodes;
    json["num_workers"] = world_.workers;
    json["batch_size"] = world_.batch_size;
    json["dealt_out"] = nullptr;
    if (has_origin && origin_->taken_over) {
      json["taken_over"] = order_detail::write_litdata_state(*origin_->taken_over);
    } else if (has_origin) {
      json["dealt_out"] = {origin_->t, origin_->world.world_size, origin_->world.workers,
                           origin_->world.batch_size, origin_->world.nodes};
    }
    return json.dump();
  }

  Result<std::shared_ptr<const OrderSource>> restored(const OrderSpec&,
                                                      std::string_view state) const override {
    simdjson::dom::parser parser;
    simdjson::dom::object object;
    const simdjson::padded_string padded(state);
    if (parser.parse(padded).get_object().get(object)) return bad_field("epoch");
    Origin origin;
    if (object["epoch"].get_uint64().get(origin.epoch)) return bad_field("epoch");
    if (object["t"].get_uint64().get(origin.t)) return bad_field("t");
    HEADRACE_TRY_ASSIGN(origin.world, read_world(object));
    if (origin.world.nodes == 0 && origin.world.world_size == world_.world_size)
      origin.world.nodes = world_.nodes;
    const bool is_here = is_same(origin.world, world_);
    const bool was_dealt_out = !object["dealt_out"].is_null();
    simdjson::dom::object theirs;
    const bool was_taken_over = !object["taken_over"].get_object().get(theirs);
    if ((was_dealt_out || was_taken_over) && !is_here) {
      return Status(Code::kUnsupported,
                    "loader state: this epoch of order litdata was already continued in another "
                    "world once, or from a state of LitData; continue it in that world, or from a "
                    "state of another epoch");
    }
    if (was_taken_over) return take_over(theirs, origin.t);
    if (was_dealt_out && !parse_origin(object["dealt_out"], origin)) return bad_field("dealt_out");
    if (!was_dealt_out && (is_here || origin.t == 0)) {
      return origin_ ? with_origin(std::nullopt) : std::shared_ptr<const OrderSource>();
    }
    if (origin.world.nodes == 0) {
      HEADRACE_TRY_ASSIGN(origin.world.nodes, order_detail::node_count(origin.world.world_size,
                                                                       inputs_->ranks_per_node));
    }
    return with_origin(origin);
  }

  std::shared_ptr<const OrderSource> begun_anew() const override {
    return origin_ ? with_origin(std::nullopt) : nullptr;
  }

  Result<std::optional<Foreign>> read_foreign(std::string_view state) const override {
    simdjson::dom::parser parser;
    const auto object = order_detail::state_of(order_detail::StateWriter::kLitData, state, parser);
    if (!object) return std::optional<Foreign>();
    simdjson::dom::object part;
    if ((*object)["dataset"].get_object().get(part)) part = *object;
    HEADRACE_TRY(order_detail::check_litdata_state(part, inputs_->spec, inputs_->chunks));
    HEADRACE_TRY_ASSIGN(const LitDataState saved, order_detail::read_litdata_state(part, world_));
    HEADRACE_TRY_ASSIGN(auto source, take_over(part, saved.sample_in_epoch));
    return std::optional<Foreign>(
        Foreign{.position = {.epoch = saved.epoch - 1, .t = saved.sample_in_epoch},
                .source = std::move(source)});
  }

 private:
  /// `t`: where the state that holds LitData's fields stands.
  Result<std::shared_ptr<const OrderSource>> take_over(simdjson::dom::object fields,
                                                       std::uint64_t t) const {
    HEADRACE_TRY_ASSIGN(const LitDataState saved, order_detail::read_litdata_state(fields, world_));
    if (saved.sample_in_epoch > t) return bad_field("taken_over");
    return with_origin(Origin{.epoch = saved.epoch - 1,
                              .t = saved.sample_in_epoch,
                              .world = saved.initial,
                              .taken_over = saved});
  }

  std::shared_ptr<const OrderSource> with_origin(const std::optional<Origin>& origin) const {
    return std::make_shared<const LitDataSource>(inputs_, world_, origin);
  }

  Result<OrderPlan> make_plan(const OrderQuery& query) const {
    LitDataWorld world = world_;
    world.world_size = query.world_size;
    world.batch_size = static_cast<std::uint32_t>(query.global_batch / query.world_size);
    HEADRACE_TRY_ASSIGN(world.nodes,
                        order_detail::node_count(query.world_size, inputs_->ranks_per_node));
    const auto epoch = static_cast<std::uint32_t>(query.epoch + 1);
    std::shared_ptr<const SampleList> list;
    std::uint64_t begin = query.t;
    const bool is_dealt_out = origin_ && origin_->epoch == query.epoch && query.t >= origin_->t;
    if (is_dealt_out) {
      begin -= origin_->t;
      HEADRACE_TRY_ASSIGN(list, origin_->taken_over
                                    ? resume_litdata_list(inputs_->spec, inputs_->chunks, world,
                                                          *origin_->taken_over)
                                    : deal_out_anew(world, epoch));
    } else {
      HEADRACE_TRY_ASSIGN(list, make_litdata_list(inputs_->spec, inputs_->chunks, world, epoch));
    }
    if (begin > list->size()) {
      return Status(Code::kInvalidArgument,
                    "order: t is " + std::to_string(query.t) + ", beyond the epoch's end");
    }
    if (begin == list->size()) return OrderPlan();
    if (begin > 0) list = std::make_shared<const order_detail::ListTail>(std::move(list), begin);
    HEADRACE_TRY_ASSIGN(auto order, create_listed_order(spec(), inputs_->block_samples, query.epoch,
                                                        std::move(list)));
    return OrderPlan{.order = std::move(order), .start = 0};
  }

  /// What the origin's world had left.
  Result<std::shared_ptr<const SampleList>> deal_out_anew(const LitDataWorld& world,
                                                          std::uint32_t epoch) const {
    HEADRACE_TRY_ASSIGN(const auto before,
                        make_litdata_list(inputs_->spec, inputs_->chunks, origin_->world, epoch));
    // Slots may be empty near the end: LitData counts samples.
    std::vector<std::int64_t> ids(origin_->world.batch_size);
    LitDataState state;
    state.epoch = epoch;
    state.saved_by = origin_->world;
    state.initial = origin_->world;
    state.is_elastic = true;  // Also where the worlds differ in their nodes alone.
    for (std::uint64_t t = 0; t < std::min(origin_->t, before->size()); ++t) {
      if (t % origin_->world.batch_size == 0) {
        ids.resize(std::min<std::uint64_t>(ids.size(), before->size() - t));
        before->read(t, ids);
      }
      if (ids[t % origin_->world.batch_size] >= 0) ++state.sample_in_epoch;
    }
    return resume_litdata_list(inputs_->spec, inputs_->chunks, world, state);
  }

  const std::shared_ptr<const Inputs> inputs_;
  const LitDataWorld world_;
  const std::optional<Origin> origin_;
  order_detail::PlanCache cache_;
};

}  // namespace

Result<std::shared_ptr<const OrderSource>> order_detail::create_litdata_source(
    DatasetShape shape, const LitDataSpec& spec, const RunWorld& world) {
  HEADRACE_TRY(check_world(world));
  auto inputs = std::make_shared<Inputs>();
  inputs->spec = spec;
  inputs->block_samples = std::move(shape.block_samples);
  inputs->ranks_per_node = world.ranks_per_node;
  inputs->workers = std::max(world.workers, 1U);
  nlohmann::json json = {spec.shuffle, spec.drop_last, spec.item_shuffle_window.value_or(~0U),
                         spec.window, spec.max_cache_size};
  std::uint64_t begin = 0;
  for (const DatasetShape::Shard& shard : shape.shards) {
    const std::uint64_t end = begin + shard.sample_count;
    inputs->chunks.push_back({.begin = begin,
                              .roi_begin = begin,
                              .roi_end = end,
                              .end = end,
                              .bytes = shard.size_bytes});
    json.push_back(shard.sample_count);
    begin = end;
  }
  inputs->digest = digest_of(json.dump());
  HEADRACE_TRY_ASSIGN(const std::uint32_t nodes,
                      node_count(world.world_size, world.ranks_per_node));
  const LitDataWorld here{.world_size = world.world_size,
                          .nodes = nodes,
                          .workers = inputs->workers,
                          .batch_size = world.batch_size};
  auto source = std::make_shared<const LitDataSource>(std::move(inputs), here, std::nullopt);
  HEADRACE_TRY_ASSIGN(
      const OrderPlan proof,
      source->plan({.epoch = 0,
                    .t = 0,
                    .global_batch = std::uint64_t{world.world_size} * world.batch_size,
                    .world_size = world.world_size},
                   {}));
  static_cast<void>(proof);
  return std::shared_ptr<const OrderSource>(std::move(source));
}

}  // namespace headrace
