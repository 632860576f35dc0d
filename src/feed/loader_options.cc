// Memory is estimated from means here (bytes a sample, a batch), since batches are not known
// before they are cut. An estimate that is too low costs speed, never the limit: the head of the
// pipeline takes what others hold, and fails with kExhausted if even that is not enough
// (docs/design/0009-feed.md).
//
// Lanes are chosen here once, for a first run; a state brings its own. They must not depend on the
// rank, nor on the number of ranks beyond the global batch: all ranks have to come to the same
// order.
#include "feed/loader_options.h"

#include <algorithm>
#include <string>

#include "feed/pipeline.h"
#include "headrace/machine.h"
#include "order/order_driver.h"

namespace headrace::feed {
namespace {

std::vector<std::uint32_t> block_samples(const Dataset& dataset) {
  std::vector<std::uint32_t> counts(dataset.block_count());
  for (std::uint32_t i = 0; i < counts.size(); ++i) counts[i] = dataset.block(i).sample_count;
  return counts;
}

std::string names_of(const BatchSchema& schema) {
  std::string names;
  for (const OutputColumn& column : schema) names += (names.empty() ? "" : ", ") + column.name;
  return names;
}

/// kInvalidArgument: a name in `decode` is no column's.
Status check_names(const Dataset& dataset, const LoaderOptions& options,
                   const BatchSchema& schema) {
  for (const auto& entry : options.decode) {
    const std::string& name = entry.first;
    if (std::any_of(schema.begin(), schema.end(),
                    [&](const OutputColumn& c) { return c.name == name; }))
      continue;
    return Status(Code::kInvalidArgument, "decode: no column '" + name + "' is delivered from " +
                                              dataset.url() + "; there are " + names_of(schema));
  }
  return {};
}

/// Adds a column made of the dataset's `index`.
Status add_decoded(DecodedColumn column, std::size_t index, Selection& selection) {
  const std::string& name = column.output.name;
  if (std::any_of(selection.schema.begin(), selection.schema.end(),
                  [&](const OutputColumn& c) { return c.name == name; })) {
    return Status(Code::kInvalidArgument, "decode: two columns would be named '" + name + "', of " +
                                              names_of(selection.schema) +
                                              "; choose the dataset's with columns");
  }
  selection.schema.push_back(std::move(column.output));
  selection.indices.push_back(index);
  selection.growth.push_back(column.growth);
  selection.decoders.push_back(std::move(column.decoder));
  return {};
}

/// Puts what is made of the columns into their places.
Status bind_decoders(const Dataset& dataset, const LoaderOptions& options, Selection& selection) {
  HEADRACE_TRY(check_names(dataset, options, selection.schema));
  if (options.decode.empty()) return {};
  const BatchSchema stored = std::move(selection.schema);
  const std::vector<std::size_t> indices = std::move(selection.indices);
  selection.schema.clear();
  selection.indices.clear();
  for (std::size_t c = 0; c < stored.size(); ++c) {
    DecodedColumns made = {{.output = stored[c], .decoder = nullptr}};
    const auto wish = options.decode.find(stored[c].name);
    if (wish != options.decode.end()) {
      HEADRACE_TRY_ASSIGN(made, wish->second->bind(stored[c]));
    }
    for (DecodedColumn& column : made)
      HEADRACE_TRY(add_decoded(std::move(column), indices[c], selection));
  }
  const bool has_any = std::any_of(selection.decoders.begin(), selection.decoders.end(),
                                   [](const auto& decoder) { return decoder != nullptr; });
  if (!has_any) selection.decoders.clear();
  return {};
}

/// What decoders make of a sample, besides what is stored. Where sizes vary, a guess.
std::uint64_t decoded_bytes(const Selection& selection, std::uint64_t sample_bytes) {
  double sum = 0;
  for (std::size_t c = 0; c < selection.decoders.size(); ++c) {
    if (selection.decoders[c] == nullptr) continue;
    const auto fixed = static_cast<double>(selection.schema[c].fixed_size_bytes);
    sum += fixed > 0 ? fixed : selection.growth[c] * static_cast<double>(sample_bytes);
  }
  return static_cast<std::uint64_t>(sum);
}

void add_column(Selection& selection, const Column& column, std::size_t index) {
  selection.schema.push_back(output_of(column));
  selection.indices.push_back(index);
}

Status check_quarantine(const Dataset& dataset, const LoaderOptions& options) {
  const std::vector<SampleRange> ranges = never_delivered(dataset, options);
  if (ranges.empty()) return {};
  const std::uint64_t count = dataset.sample_count();
  if (ranges.back().end > count) {
    return Status(Code::kInvalidArgument,
                  "quarantine: sample " + std::to_string(ranges.back().end - 1) +
                      " lies beyond the " + std::to_string(count) + " of " + dataset.url());
  }
  if (ranges.front().begin > 0 || ranges.front().end < count) return {};
  return Status(Code::kInvalidArgument,
                "quarantine: every sample of " + dataset.url() + " is in it");
}

}  // namespace

std::vector<SampleRange> never_delivered(const Dataset& dataset, const LoaderOptions& options) {
  std::vector<SampleRange> ranges = options.quarantine;
  for (const BrokenShard& shard : dataset.broken_shards())
    ranges.push_back({shard.first_sample, shard.first_sample + shard.sample_count});
  return joined(std::move(ranges));
}

Result<Selection> select_columns(const Dataset& dataset, const LoaderOptions& options) {
  const std::vector<std::string>& names = options.columns;
  const std::vector<Column>& columns = dataset.columns();
  Selection selection;
  selection.column_count = columns.size();
  for (std::size_t i = 0; names.empty() && i < columns.size(); ++i)
    add_column(selection, columns[i], i);
  for (const std::string& name : names) {
    const auto found = std::find_if(columns.begin(), columns.end(),
                                    [&](const Column& c) { return c.name == name; });
    if (found == columns.end()) {
      std::string known;
      for (const Column& column : columns) known += (known.empty() ? "" : ", ") + column.name;
      return Status(Code::kInvalidArgument,
                    "columns: '" + name + "' is not in " + dataset.url() + "; it has " + known);
    }
    add_column(selection, *found, static_cast<std::size_t>(found - columns.begin()));
  }
  selection.seed = options.seed;
  HEADRACE_TRY(bind_decoders(dataset, options, selection));
  return selection;
}

MemoryNeeds needs_of(const Dataset& dataset, const Selection& selection, const SlabSizes& sizes,
                     const SlabPool& pool, const LoaderOptions& options) {
  std::uint64_t raw_bytes = 0;
  MemoryNeeds needs;
  for (std::uint32_t i = 0; i < dataset.block_count(); ++i) {
    const Block block = dataset.block(i);
    raw_bytes += block.raw_bytes;
    needs.block_bytes =
        std::max(needs.block_bytes, sizes.charged_bytes(dataset, i, block.stored_bytes));
    needs.workspace_bytes = std::max(needs.workspace_bytes, dataset.unpack_workspace_bytes(i, {}));
  }
  needs.workspace_bytes = SlabPool::charged_bytes(needs.workspace_bytes);
  const std::uint64_t sample_bytes =
      raw_bytes / std::max<std::uint64_t>(dataset.sample_count(), 1) + 1;
  needs.limit_bytes = pool.limit_bytes();
  // 9: id and mask of a slot. 64 bytes of alignment for ids, mask, and up to three arrays a
  // column.
  needs.batch_bytes = SlabPool::charged_bytes(
      options.batch_size * (sample_bytes + decoded_bytes(selection, sample_bytes) + 9) +
      64 * (2 + 3 * dataset.columns().size()));
  needs.sparse_bytes = options.batch_size * SlabPool::charged_bytes(sample_bytes);
  needs.prefetch_batches = options.prefetch_batches;
  return needs;
}

Status check_options(const Dataset& dataset, const LoaderOptions& options) {
  const auto bad = [](std::string what) { return Status(Code::kInvalidArgument, std::move(what)); };
  if (dataset.sample_count() == 0) return bad(dataset.url() + " has no samples");
  if (options.world_size == 0 || options.rank >= options.world_size) {
    return bad("rank " + std::to_string(options.rank) + " is not below world_size " +
               std::to_string(options.world_size));
  }
  if (options.batch_size == 0) return bad("batch_size is 0");
  if (options.prefetch_batches < 1 || options.prefetch_batches > 1024) {
    return bad("prefetch_batches is " + std::to_string(options.prefetch_batches) +
               ", not in 1 .. 1024");
  }
  if (options.worker_count > 1024) {
    return bad("worker_count is " + std::to_string(options.worker_count) + ", more than 1024");
  }
  HEADRACE_TRY(check_quarantine(dataset, options));
  if (options.order_source != nullptr) return {};
  HEADRACE_TRY_ASSIGN(const auto* order, order_detail::find_order(options.order));
  if (!order->has_lanes && (options.lane_count > 1 || options.window_blocks > 1)) {
    return bad("lanes and windows belong to order headrace; order " + options.order +
               " has neither");
  }
  return {};
}

std::uint32_t worker_count(const Dataset& dataset, const LoaderOptions& options) {
  if (options.worker_count > 0) return options.worker_count;
  const std::uint32_t cores = available_cores();
  // Decoding takes what there is, but for the training loop's core where they are not few: with
  // two, the loop mostly waits for batches.
  if (!options.decode.empty()) return cores > 2 ? cores - 1 : cores;
  if (!has_compressed_blocks(dataset) && !finishes_on_workers(options)) return 0;
  return std::clamp(cores - 1, 1U, 4U);
}

bool finishes_on_workers(const LoaderOptions& options) {
  // The feed thread, the training loop and what reads have a core each before a copy gains one.
  constexpr std::uint32_t kLeastCores = 4;
  return options.worker_count > 0 || available_cores() >= kLeastCores;
}

Result<std::shared_ptr<const OrderSource>> make_source(const Dataset& dataset,
                                                       const SlabSizes& sizes, const SlabPool& pool,
                                                       const LoaderOptions& options) {
  std::vector<std::uint32_t> samples = block_samples(dataset);
  OrderSpec spec;
  spec.id = options.order;
  spec.seed = options.seed;
  spec.block_table_digest = block_table_digest(samples);
  HEADRACE_TRY_ASSIGN(const auto* driver, order_detail::find_order(options.order));
  if (!driver->has_lanes) {
    spec.window_blocks = 1;
    return create_order_source(spec, std::move(samples));
  }
  const bool is_compressed = has_compressed_blocks(dataset);
  // A compressed block is held inflated: one a window, for the memory.
  spec.window_blocks = options.window_blocks > 0 ? options.window_blocks : (is_compressed ? 1 : 2);
  HEADRACE_TRY_ASSIGN(const auto order, EpochOrder::create(spec, samples, 0));
  const std::uint64_t memory =
      options.order_memory_bytes > 0 ? options.order_memory_bytes : pool.limit_bytes();
  const LaneChoice choice =
      choose_lanes({.global_batch = std::uint64_t{options.batch_size} * options.world_size,
                    .sample_count = dataset.sample_count(),
                    .block_count = dataset.block_count(),
                    .window_blocks = spec.window_blocks,
                    .window_bytes = Pipeline::largest_window_bytes(dataset, *order, sizes),
                    .memory_bytes = memory - memory / kBatchShare});
  spec.lane_count = choice.lane_count;
  spec.bundle_lanes = choice.bundle_lanes;
  if (options.lane_count > 0) {
    spec.lane_count = options.lane_count;
    spec.bundle_lanes = bundle_of(options.lane_count);
  }
  return create_order_source(spec, std::move(samples));
}

}  // namespace headrace::feed
