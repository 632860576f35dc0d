#pragma once
/// \file
/// Helpers of the order tests: seeds, orders that must exist, whole sequences.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/test_seed.h"
#include "headrace/order.h"

namespace headrace::order_test {

inline OrderSpec make_spec(std::span<const std::uint32_t> blocks, std::uint64_t seed,
                           std::uint32_t lanes, std::uint32_t window_blocks, std::uint32_t bundle) {
  OrderSpec spec;
  spec.seed = seed;
  spec.lane_count = lanes;
  spec.window_blocks = window_blocks;
  spec.bundle_lanes = bundle;
  spec.block_table_digest = block_table_digest(blocks);
  return spec;
}

inline OrderSpec make_sequential_spec(std::span<const std::uint32_t> blocks) {
  OrderSpec spec = make_spec(blocks, 0, 1, 1, 1);
  spec.id = "sequential";
  return spec;
}

inline std::shared_ptr<const LaneOrder> must_create(const OrderSpec& spec,
                                                    std::span<const std::uint32_t> blocks,
                                                    std::uint64_t epoch = 0) {
  auto order = EpochOrder::create(spec, blocks, epoch);
  if (!order) {
    ADD_FAILURE() << order.error().message();
    std::abort();
  }
  return *order;
}

class VectorList final : public SampleList {
 public:
  explicit VectorList(std::vector<std::int64_t> ids) : ids_(std::move(ids)) {}
  std::uint64_t size() const noexcept override { return ids_.size(); }
  void read(std::uint64_t t, std::span<std::int64_t> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = ids_[t + i];
  }

 private:
  std::vector<std::int64_t> ids_;
};

/// An order of exactly these dataset positions; -1: an empty slot.
inline std::shared_ptr<const EpochOrder> must_list(const std::vector<std::uint32_t>& blocks,
                                                   std::vector<std::int64_t> ids) {
  OrderSpec spec;
  spec.id = "mosaic:test";
  auto order = create_listed_order(spec, blocks, 3, std::make_shared<VectorList>(std::move(ids)));
  EXPECT_TRUE(order) << order.error().message();
  return *std::move(order);
}

/// Dataset positions of the samples [segment.start, N).
inline std::vector<std::uint64_t> sequence(const EpochOrder& order, const Segment& segment) {
  std::vector<std::uint64_t> out;
  for (std::uint64_t t = segment.start; t < order.sample_count(); ++t) {
    out.push_back(order.dataset_position(t, segment));
  }
  return out;
}

}  // namespace headrace::order_test
