#pragma once
/// \file
/// Mosaic's batching methods: which entry of the table is in which slot of the epoch.
///
/// Place: src/order/mosaic; pure, immutable; any thread. Definition: docs/order.md, "Batching".
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "headrace/mosaic_order.h"
#include "order/mosaic/partition.h"

namespace headrace::mosaic {

/// Slot -> id of the epoch (place in the table), -1 for empty slots.
class Batching {
 public:
  virtual ~Batching() = default;
  virtual std::uint64_t slot_count() const noexcept = 0;
  virtual std::int64_t at(std::uint64_t t) const noexcept = 0;
};

struct BatchingSpec {
  MosaicWorld world;
  bool is_relaxed = true;
  std::uint64_t canonical_nodes = 1;
  std::uint64_t initial_nodes = 0;
  std::uint64_t sample_in_epoch = 0;
  std::uint64_t origin_seed = 0;       ///< Shuffles whose batch comes when.
  std::vector<std::uint64_t> samples;  ///< Samples of the epoch, one a stream.
  std::vector<double> proportion;      ///< One a stream.
};

/// `method`: random, stratified, per_stream, device_per_stream. Errors: kInvalidArgument for what
/// Mosaic refuses, and unknown methods.
Result<std::unique_ptr<const Batching>> make_batching(const std::string& method,
                                                      const BatchingSpec& spec);

}  // namespace headrace::mosaic
