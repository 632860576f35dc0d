// Mosaic builds an array of node x rank x worker x batch x sample with numpy and reshapes it. Here
// the same places are computed one at a time, so that 10^8 samples take no memory. The steps, each
// undone by one function when a slot asks:
//
// | step                                               | made by        | undone by       |
// |----------------------------------------------------|----------------|-----------------|
// | canonical nodes x columns, padded                  | lay_out_rows() | row_element()   |
// | transposed, the first samples dropped, dealt out   |                |                 |
// | to the physical nodes, filled up for their ranks   | lay_out_ranks()| node_element()  |
// | dealt out to the ranks of a node, cut into batches |                | element(), at() |
//
// Padding repeats samples that were there already. numpy's slices decide
// which ones, and the same ones are taken here: a sample that comes twice does so at the same
// places.
#include "order/mosaic/partition.h"

#include <algorithm>
#include <string>

namespace headrace::mosaic {
namespace {

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) noexcept {
  return (value + unit - 1) / unit * unit;
}

Status check_nodes(const PartitionSpec& spec) {
  const auto [low, high] = std::minmax(spec.canonical_nodes, spec.physical_nodes);
  if (high % low == 0) return Status();
  return Status(Code::kInvalidArgument,
                std::to_string(spec.canonical_nodes) + " canonical and " +
                    std::to_string(spec.physical_nodes) +
                    " physical nodes: one must be a multiple of the other; change "
                    "num_canonical_nodes, or resume with partition_algo=\"relaxed\"");
}

Status check_position(const PartitionSpec& spec) {
  const std::uint64_t world = spec.physical_nodes * spec.ranks_per_node;
  if (spec.drop_first <= spec.samples + (world - spec.samples % world)) return Status();
  return Status(Code::kInvalidArgument, "sample_in_epoch " + std::to_string(spec.drop_first) +
                                            " is past the epoch's " + std::to_string(spec.samples) +
                                            " samples");
}

}  // namespace

Result<Partition> Partition::create(const PartitionSpec& spec) {
  HEADRACE_TRY(check_position(spec));
  HEADRACE_TRY(check_nodes(spec));
  Partition p;
  p.spec_ = spec;
  p.spec_.drop_first -= spec.drop_first % spec.physical_nodes;
  p.global_batch_ = spec.physical_nodes * spec.ranks_per_node * spec.batch_size;
  HEADRACE_TRY(p.lay_out_rows());
  p.lay_out_ranks();
  return p;
}

Result<Partition> Partition::create_relaxed(const PartitionSpec& spec,
                                            std::uint64_t initial_nodes) {
  if (initial_nodes == 0 || check_nodes(spec).ok()) return create(spec);
  HEADRACE_TRY(check_position(spec));
  const std::uint64_t global_batch = spec.physical_nodes * spec.ranks_per_node * spec.batch_size;
  const std::uint64_t initial_ranks = initial_nodes * spec.ranks_per_node;
  if (global_batch % initial_ranks != 0) {
    return Status(Code::kInvalidArgument,
                  "global batch " + std::to_string(global_batch) + " is not a multiple of the " +
                      std::to_string(initial_ranks) +
                      " ranks that the run began with; keep its global batch size");
  }
  // The initial world's batches, dealt out anew: slot t stays slot t, as G does not change.
  PartitionSpec initial = spec;
  initial.physical_nodes = initial_nodes;
  initial.batch_size = global_batch / initial_ranks;
  // create() checks the position against the initial world once more; the world of the resumed run
  // is the one that Mosaic checks.
  initial.drop_first = spec.drop_first;
  HEADRACE_TRY(check_nodes(initial));
  Partition p;
  p.spec_ = initial;
  p.spec_.drop_first -= initial.drop_first % initial.physical_nodes;
  p.global_batch_ = global_batch;
  HEADRACE_TRY(p.lay_out_rows());
  p.lay_out_ranks();
  return p;
}

// Rows: one a canonical node, each as long as the longest, padded so that physical nodes divide it.
Status Partition::lay_out_rows() {
  const std::uint64_t rows = spec_.canonical_nodes;
  row_length_ = (spec_.samples + rows - 1) / rows;
  std::uint64_t ratio = 0;
  if (rows < spec_.physical_nodes) {
    ratio = spec_.physical_nodes / rows;
    row_padding_ = round_up(row_length_, ratio) - row_length_;
  }
  is_cycled_ = !(spec_.samples > rows || (spec_.samples == rows && rows >= spec_.physical_nodes));
  if (is_cycled_ || row_padding_ == 0) return Status();
  // numpy's ids[:, -padding:] = ids[:, -2 padding - ratio + 1 : -padding - ratio + 1], with its
  // clipping of slices and its broadcast of a slice of one.
  const auto length = static_cast<std::int64_t>(row_length_ + row_padding_);
  const auto padding = static_cast<std::int64_t>(row_padding_);
  const std::int64_t stop =
      std::max<std::int64_t>(length - padding - static_cast<std::int64_t>(ratio) + 1, 0);
  const std::int64_t start =
      std::max<std::int64_t>(length - 2 * padding - static_cast<std::int64_t>(ratio) + 1, 0);
  if (stop - start != padding && stop - start != 1) {
    return Status(Code::kInvalidArgument, std::to_string(spec_.samples) + " samples over " +
                                              std::to_string(rows) + " canonical and " +
                                              std::to_string(spec_.physical_nodes) +
                                              " physical nodes: too few to fill up all nodes");
  }
  padding_source_ = start;
  is_padding_single_ = stop - start == 1;
  return Status();
}

void Partition::lay_out_ranks() {
  const std::uint64_t total = spec_.canonical_nodes * (row_length_ + row_padding_);
  const std::uint64_t left = total - std::min(total, spec_.drop_first);
  const std::uint64_t ranks = spec_.ranks_per_node;
  node_samples_ = left / spec_.physical_nodes;
  const std::uint64_t fill = round_up(node_samples_, ranks) - node_samples_;
  if (fill != 0) {
    is_fill_cycled_ = ranks + fill - 1 > node_samples_;
    if (!is_fill_cycled_) fill_source_ = node_samples_ + 1 - ranks - fill;
  }
  rank_samples_ = (node_samples_ + fill) / ranks;
  const std::uint64_t round = spec_.workers * spec_.batch_size;
  batches_ = round_up(rank_samples_, round) / spec_.batch_size;
}

std::int64_t Partition::node_element(std::uint64_t node, std::uint64_t m) const noexcept {
  if (m >= node_samples_) {
    m = is_fill_cycled_ ? m % node_samples_ : fill_source_ + (m - node_samples_);
  }
  const std::uint64_t flat = spec_.drop_first + m * spec_.physical_nodes + node;
  const std::uint64_t column = flat / spec_.canonical_nodes;
  return row_element(flat - column * spec_.canonical_nodes, column);
}

std::int64_t Partition::row_element(std::uint64_t row, std::uint64_t column) const noexcept {
  if (is_cycled_) {
    return static_cast<std::int64_t>((row * (row_length_ + row_padding_) + column) % spec_.samples);
  }
  if (column >= row_length_) {
    const auto source = static_cast<std::uint64_t>(padding_source_);
    column = is_padding_single_ ? source : source + (column - row_length_);
  }
  const std::uint64_t start = row * spec_.samples / spec_.canonical_nodes;
  if (column + 1 == row_length_) {
    const std::uint64_t stop = (row + 1) * spec_.samples / spec_.canonical_nodes;
    if (stop - start < row_length_) --column;
  }
  return static_cast<std::int64_t>(start + column);
}

}  // namespace headrace::mosaic
