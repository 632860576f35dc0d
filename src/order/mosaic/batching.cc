// Which table entry is in a slot is computed, never stored: a Partition is arithmetic, and only
// the methods that mix batches of several streams keep a list, of 8 bytes a batch.
//
// - "random" partitions all streams as one. A run that goes on drops samples inside of the
//   partition.
// - The others make rows, of one global batch each, from one partition a stream. A run that goes
//   on drops whole rows.
// - per_stream and stratified take only as many rows as they can fill; what pads the epoch to a
//   multiple of the workers are empty slots.
#include "order/mosaic/batching.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "order/numpy_random/generator.h"

namespace headrace::mosaic {
namespace {

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) noexcept {
  return (value + unit - 1) / unit * unit;
}

/// First id of each stream.
std::vector<std::uint64_t> first_ids(std::span<const std::uint64_t> samples) {
  std::vector<std::uint64_t> first(samples.size());
  std::exclusive_scan(samples.begin(), samples.end(), first.begin(), std::uint64_t{0});
  return first;
}

Status stream_error(std::size_t stream, const std::string& what) {
  return Status(Code::kInvalidArgument, "stream " + std::to_string(stream) + " " + what);
}

Result<std::vector<Partition>> partition_streams(const BatchingSpec& spec, PartitionSpec shape) {
  std::vector<Partition> out;
  for (std::size_t s = 0; s < spec.samples.size(); ++s) {
    shape.samples = spec.samples[s];
    if (shape.samples == 0) return stream_error(s, "takes no part in the epoch: its weight is 0");
    auto made = spec.is_relaxed ? Partition::create_relaxed(shape, spec.initial_nodes)
                                : Partition::create(shape);
    if (!made) return std::move(made).error().annotate("stream " + std::to_string(s));
    out.push_back(*std::move(made));
  }
  return out;
}

PartitionSpec shape_of(const BatchingSpec& spec) {
  PartitionSpec shape;
  shape.canonical_nodes = spec.canonical_nodes;
  shape.physical_nodes = spec.world.physical_nodes;
  shape.ranks_per_node = spec.world.ranks_per_node;
  shape.workers = spec.world.workers;
  shape.batch_size = spec.world.batch_size;
  return shape;
}

class RandomBatching final : public Batching {
 public:
  static Result<std::unique_ptr<const Batching>> create(const BatchingSpec& spec) {
    PartitionSpec shape = shape_of(spec);
    shape.samples = std::accumulate(spec.samples.begin(), spec.samples.end(), std::uint64_t{0});
    shape.drop_first = spec.sample_in_epoch;
    HEADRACE_TRY_ASSIGN(Partition partition,
                        spec.is_relaxed ? Partition::create_relaxed(shape, spec.initial_nodes)
                                        : Partition::create(shape));
    return std::unique_ptr<const Batching>(new RandomBatching(partition));
  }
  std::uint64_t slot_count() const noexcept override { return partition_.slot_count(); }
  std::int64_t at(std::uint64_t t) const noexcept override { return partition_.at(t); }

 private:
  explicit RandomBatching(const Partition& partition) : partition_(partition) {}
  Partition partition_;
};

/// Batchings whose global batches are rows made beforehand: a resumed run drops rows.
class RowBatching : public Batching {
 public:
  std::uint64_t slot_count() const noexcept final { return row_count_ * global_batch_; }
  std::int64_t at(std::uint64_t t) const noexcept final {
    const std::uint64_t row = t / global_batch_;
    return row + first_row_ < full_rows_ ? in_row(row + first_row_, t - row * global_batch_) : -1;
  }

 protected:
  RowBatching(const BatchingSpec& spec, std::vector<Partition> partitions)
      : partitions_(std::move(partitions)),
        first_id_(first_ids(spec.samples)),
        global_batch_(spec.world.global_batch()) {}
  /// `rows` of the whole epoch.
  void set_rows(const BatchingSpec& spec, std::uint64_t rows) {
    full_rows_ = rows;
    first_row_ = std::min(rows, spec.sample_in_epoch / global_batch_);
    row_count_ = round_up(rows - first_row_, spec.world.workers);
  }
  virtual std::int64_t in_row(std::uint64_t row, std::uint64_t column) const noexcept = 0;
  std::int64_t id_of(std::size_t stream, std::int64_t id) const noexcept {
    return id < 0 ? -1 : id + static_cast<std::int64_t>(first_id_[stream]);
  }

  std::vector<Partition> partitions_;
  std::vector<std::uint64_t> first_id_;
  std::uint64_t global_batch_;

 private:
  std::uint64_t full_rows_ = 0;
  std::uint64_t first_row_ = 0;
  std::uint64_t row_count_ = 0;
};

/// Slots of each stream in every global batch: its share, remainders to the largest fractions.
Result<std::vector<std::uint64_t>> stratified_portions(const BatchingSpec& spec) {
  const std::uint64_t global_batch = spec.world.global_batch();
  const auto size = static_cast<double>(global_batch);
  std::vector<std::uint64_t> portion;
  std::vector<double> left;
  std::uint64_t given = 0;
  for (const double p : spec.proportion) {
    portion.push_back(static_cast<std::uint64_t>(p * size));
    left.push_back(size * p - static_cast<double>(portion.back()));
    given += portion.back();
  }
  std::vector<std::size_t> by_left(portion.size());
  std::iota(by_left.begin(), by_left.end(), std::size_t{0});
  std::stable_sort(by_left.begin(), by_left.end(),
                   [&](std::size_t a, std::size_t b) { return left[a] < left[b]; });
  for (std::size_t i = by_left.size(); i-- > 0 && given < global_batch; ++given) {
    ++portion[by_left[i]];
  }
  for (std::size_t s = 0; s < portion.size(); ++s) {
    if (portion[s] == 0) {
      return Status(Code::kInvalidArgument, "Number of samples for stream " + std::to_string(s) +
                                                " is 0 in a global batch of " +
                                                std::to_string(global_batch) +
                                                "; raise the batch size or its proportion");
    }
  }
  return portion;
}

class StratifiedBatching final : public RowBatching {
 public:
  static Result<std::unique_ptr<const Batching>> create(const BatchingSpec& spec) {
    HEADRACE_TRY_ASSIGN(auto portion, stratified_portions(spec));
    PartitionSpec shape = shape_of(spec);
    // One node and batches of one: the partition then gives the stream's samples one after the
    // other, and rows cut them by portions.
    shape.physical_nodes = 1;
    shape.batch_size = 1;
    HEADRACE_TRY_ASSIGN(auto partitions, partition_streams(spec, shape));
    return std::unique_ptr<const Batching>(
        new StratifiedBatching(spec, std::move(portion), std::move(partitions)));
  }

 private:
  StratifiedBatching(const BatchingSpec& spec, std::vector<std::uint64_t> portion,
                     std::vector<Partition> partitions)
      : RowBatching(spec, std::move(partitions)), portion_(std::move(portion)) {
    std::uint64_t rows = ~std::uint64_t{0};
    for (std::size_t s = 0; s < portion_.size(); ++s) {
      rows = std::min(
          rows, partitions_[s].full_batch_count() * partitions_[s].global_batch() / portion_[s]);
      for (std::uint64_t i = 0; i < portion_[s]; ++i) columns_.push_back({s, i});
    }
    set_rows(spec, rows);
  }
  std::int64_t in_row(std::uint64_t row, std::uint64_t column) const noexcept override {
    const auto [stream, offset] = columns_[column];
    return id_of(stream, partitions_[stream].at(row * portion_[stream] + offset));
  }

  std::vector<std::uint64_t> portion_;
  std::vector<std::pair<std::size_t, std::uint64_t>> columns_;
};

/// Batches of several streams in random sequence, each stream's in its own order.
struct BatchOrigin {
  std::uint32_t stream = 0;
  std::uint32_t batch = 0;  ///< Of the stream.
};
std::vector<BatchOrigin> shuffle_origins(std::span<const std::uint64_t> batches,
                                         numpy_random::Generator& rng) {
  std::vector<BatchOrigin> origins;
  for (std::size_t s = 0; s < batches.size(); ++s) {
    origins.insert(origins.end(), batches[s], {static_cast<std::uint32_t>(s), 0});
  }
  rng.shuffle(std::span(origins));
  std::vector<std::uint32_t> next(batches.size());
  for (BatchOrigin& origin : origins) origin.batch = next[origin.stream]++;
  return origins;
}

class PerStreamBatching final : public RowBatching {
 public:
  static Result<std::unique_ptr<const Batching>> create(const BatchingSpec& spec) {
    HEADRACE_TRY_ASSIGN(auto partitions, partition_streams(spec, shape_of(spec)));
    std::vector<std::uint64_t> batches;
    for (std::size_t s = 0; s < partitions.size(); ++s) {
      batches.push_back(partitions[s].full_batch_count());
      if (batches.back() == 0) {
        return stream_error(s, "has too few samples for one global batch of " +
                                   std::to_string(spec.world.global_batch()));
      }
    }
    return std::unique_ptr<const Batching>(
        new PerStreamBatching(spec, std::move(partitions), batches));
  }

 private:
  PerStreamBatching(const BatchingSpec& spec, std::vector<Partition> partitions,
                    std::span<const std::uint64_t> batches)
      : RowBatching(spec, std::move(partitions)) {
    numpy_random::Generator rng(spec.origin_seed);
    origins_ = shuffle_origins(batches, rng);
    set_rows(spec, origins_.size());
  }
  std::int64_t in_row(std::uint64_t row, std::uint64_t column) const noexcept override {
    const BatchOrigin& origin = origins_[row];
    return id_of(origin.stream, partitions_[origin.stream].at(
                                    std::uint64_t{origin.batch} * global_batch_ + column));
  }

  std::vector<BatchOrigin> origins_;
};

class DevicePerStreamBatching final : public RowBatching {
 public:
  static Result<std::unique_ptr<const Batching>> create(const BatchingSpec& spec) {
    if (spec.canonical_nodes % spec.world.physical_nodes != 0) {
      return Status(Code::kInvalidArgument,
                    "device_per_stream: " + std::to_string(spec.canonical_nodes) +
                        " canonical nodes are not a multiple of " +
                        std::to_string(spec.world.physical_nodes) + " physical nodes");
    }
    PartitionSpec shape = shape_of(spec);
    shape.physical_nodes = spec.canonical_nodes;
    shape.batch_size = 1;
    HEADRACE_TRY_ASSIGN(auto partitions, partition_streams(spec, shape));
    const std::uint64_t canonical = spec.canonical_nodes / spec.world.physical_nodes;
    std::vector<std::uint64_t> batches;
    for (std::size_t s = 0; s < partitions.size(); ++s) {
      batches.push_back(partitions[s].rank_samples() * canonical * spec.world.ranks_per_node /
                        spec.world.batch_size);
      if (batches.back() == 0) {
        return stream_error(s, "has too few samples for one batch of " +
                                   std::to_string(spec.world.batch_size) + " on each node");
      }
    }
    return std::unique_ptr<const Batching>(
        new DevicePerStreamBatching(spec, std::move(partitions), batches));
  }

 private:
  DevicePerStreamBatching(const BatchingSpec& spec, std::vector<Partition> partitions,
                          std::span<const std::uint64_t> batches)
      : RowBatching(spec, std::move(partitions)),
        world_(spec.world),
        canonical_per_node_(spec.canonical_nodes / spec.world.physical_nodes) {
    numpy_random::Generator rng(spec.origin_seed);
    for (std::uint32_t n = 0; n < world_.physical_nodes; ++n) {
      origins_.push_back(shuffle_origins(batches, rng));
    }
    // Mosaic pads by a whole round of devices even when none is missing.
    const std::uint64_t devices = world_.rank_count();
    const std::uint64_t most = origins_[0].size();
    set_rows(spec, (most + devices - most % devices) / world_.ranks_per_node);
  }
  std::int64_t in_row(std::uint64_t row, std::uint64_t column) const noexcept override {
    // Device batches in the order of traversal: node after node, again and again.
    const std::uint64_t device = row * world_.rank_count() + column / world_.batch_size;
    const std::uint64_t node = device % world_.physical_nodes;
    const std::uint64_t place = device / world_.physical_nodes;
    if (place >= origins_[node].size()) return -1;
    const BatchOrigin& origin = origins_[node][place];
    // x counts the samples that this node takes of the stream: they come from its canonical nodes
    // in turn.
    const std::uint64_t x =
        std::uint64_t{origin.batch} * world_.batch_size + column % world_.batch_size;
    const std::uint64_t width = canonical_per_node_ * world_.ranks_per_node;
    const std::uint64_t rest = x % width;
    return id_of(origin.stream, partitions_[origin.stream].element(
                                    node * canonical_per_node_ + rest / world_.ranks_per_node,
                                    rest % world_.ranks_per_node, x / width));
  }

  MosaicWorld world_;
  std::uint64_t canonical_per_node_;
  std::vector<std::vector<BatchOrigin>> origins_;  // a node
};

}  // namespace

Result<std::unique_ptr<const Batching>> make_batching(const std::string& method,
                                                      const BatchingSpec& spec) {
  if (method == "random") return RandomBatching::create(spec);
  if (method == "stratified") return StratifiedBatching::create(spec);
  if (method == "per_stream") return PerStreamBatching::create(spec);
  if (method == "device_per_stream") return DevicePerStreamBatching::create(spec);
  return Status(Code::kInvalidArgument, "batching_method=" + method +
                                            ": expected random, stratified, per_stream or "
                                            "device_per_stream");
}

}  // namespace headrace::mosaic
