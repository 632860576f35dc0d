#pragma once
/// \file
/// Mosaic's partition of N samples over nodes, ranks, workers and batches, as arithmetic: which
/// sample id is in which slot. Ids count through the epoch before it is shuffled.
///
/// Place: src/order/mosaic; pure. Definition: docs/order.md, "Partition".
#include <cstdint>

#include "headrace/mosaic_order.h"
#include "headrace/status.h"

namespace headrace::mosaic {

struct PartitionSpec {
  std::uint64_t samples = 0;  ///< N >= 1
  std::uint64_t canonical_nodes = 1;
  std::uint64_t physical_nodes = 1;
  std::uint64_t ranks_per_node = 1;
  std::uint64_t workers = 1;
  std::uint64_t batch_size = 1;
  std::uint64_t drop_first = 0;
};

/// get_partitions_orig(). Immutable value; any thread.
class Partition {
 public:
  Partition() = default;
  /// Errors: kInvalidArgument (nodes that do not divide one another; a position past the end; so
  /// few samples for so many nodes that Mosaic fails as well).
  static Result<Partition> create(const PartitionSpec& spec);
  /// `relaxed`, when `initial_nodes` (0: unknown) asks for it; otherwise as above. Slots are those
  /// of the world in `spec`.
  static Result<Partition> create_relaxed(const PartitionSpec& spec, std::uint64_t initial_nodes);

  /// Batches of every rank; a multiple of the workers.
  std::uint64_t batch_count() const noexcept { return batches_; }
  /// Slots of each rank that hold a sample: the first ones.
  std::uint64_t rank_samples() const noexcept { return rank_samples_; }
  std::uint64_t global_batch() const noexcept { return global_batch_; }
  std::uint64_t slot_count() const noexcept { return batches_ * global_batch_; }
  /// Batches (slots of one batch over all ranks) without an empty slot: the first ones.
  std::uint64_t full_batch_count() const noexcept { return rank_samples_ / spec_.batch_size; }

  /// The id in slot t = batch * G + rank * B + j; -1: empty. \pre t < slot_count().
  std::int64_t at(std::uint64_t t) const noexcept {
    const std::uint64_t batch = t / global_batch_;
    const std::uint64_t rest = t - batch * global_batch_;
    const std::uint64_t rank = rest / spec_.batch_size;
    const std::uint64_t j = rest - rank * spec_.batch_size;
    const std::uint64_t node = rank / spec_.ranks_per_node;
    return element(node, rank - node * spec_.ranks_per_node, batch * spec_.batch_size + j);
  }
  /// The id of a rank's e-th sample; -1 past its last.
  std::int64_t element(std::uint64_t node, std::uint64_t rank_of_node,
                       std::uint64_t e) const noexcept {
    if (e >= rank_samples_) return -1;
    return node_element(node, e * spec_.ranks_per_node + rank_of_node);
  }

 private:
  Status lay_out_rows();
  void lay_out_ranks();
  std::int64_t node_element(std::uint64_t node, std::uint64_t m) const noexcept;
  std::int64_t row_element(std::uint64_t row, std::uint64_t column) const noexcept;

  PartitionSpec spec_;
  bool is_cycled_ = false;           // fewer samples than nodes: ids repeat row after row
  std::uint64_t row_length_ = 0;     // L
  std::uint64_t row_padding_ = 0;    // entries after it that repeat earlier ones
  std::int64_t padding_source_ = 0;  // column that the first of them repeats
  bool is_padding_single_ = false;   // they all repeat that one
  std::uint64_t node_samples_ = 0;   // n, before the ranks are filled up
  std::uint64_t fill_source_ = 0;    // element of the node that the first fill repeats
  bool is_fill_cycled_ = false;
  std::uint64_t rank_samples_ = 0;
  std::uint64_t batches_ = 0;
  std::uint64_t global_batch_ = 1;
};

}  // namespace headrace::mosaic
