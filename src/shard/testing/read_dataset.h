#pragma once
/// \file
/// Reading samples the way feed/ does (extents, inflate, cut), one block at a time, for the tests
/// of src/shard.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "headrace/dataset.h"

namespace headrace::testing {

inline std::unique_ptr<SlabPool> make_pool(std::uint64_t limit_bytes = std::uint64_t{64} << 20) {
  auto pool = SlabPool::create({.limit_bytes = limit_bytes});
  EXPECT_TRUE(pool.has_value());
  return *std::move(pool);
}

/// One GET through submit() and wait().
inline Result<std::string> get_range(Store& store, SlabPool& pool, const Extent& extent) {
  Request request;
  request.key = extent.key;
  request.etag = extent.etag;
  request.offset_bytes = extent.offset_bytes;
  request.length_bytes = extent.length_bytes;
  auto slab = pool.try_acquire(extent.length_bytes);
  if (!slab) return std::move(slab).error();
  request.slab = *std::move(slab);
  EXPECT_EQ(store.submit(std::span(&request, 1)), 1U);
  Completion done;
  while (store.wait(std::span(&done, 1), TimePoint::max()) == 0) {
  }
  if (!done.status.ok()) return std::move(done.status);
  return std::string(reinterpret_cast<const char*>(done.slab.bytes().data()), done.length_bytes);
}

/// Bytes of samples [begin, end) of a block, ready to cut.
inline Result<std::string> read_block(Store& store, SlabPool& pool, const Dataset& dataset,
                                      std::uint32_t block, std::uint32_t begin, std::uint32_t end) {
  std::vector<Extent> extents;
  std::string stored(dataset.append_extents(block, begin, end, extents), '\0');
  for (const Extent& extent : extents) {
    auto bytes = get_range(store, pool, extent);
    if (!bytes) return std::move(bytes).error();
    stored.replace(extent.target_offset_bytes, extent.length_bytes, *bytes);
  }
  if (!dataset.is_compressed(block)) return stored;
  HEADRACE_TRY(dataset.verify(block, std::as_bytes(std::span(stored))));
  std::string raw(dataset.block(block).raw_bytes, '\0');
  HEADRACE_TRY(dataset.decompress(block, std::as_bytes(std::span(stored)),
                                  std::as_writable_bytes(std::span(raw))));
  return raw;
}

/// One value; `present` false when the sample has no such column.
struct Value {
  std::string bytes;
  bool present = false;
};
using Sample = std::vector<Value>;

inline Sample copy_sample(std::span<const ColumnBytes> columns) {
  Sample sample;
  for (const ColumnBytes& column : columns) {
    Value& value = sample.emplace_back();
    value.present = column.present;
    if (!column.present) continue;
    value.bytes.resize(column.size());
    column.write_to(std::as_writable_bytes(std::span(value.bytes)));
  }
  return sample;
}

/// All samples of a dataset, block by block.
inline Result<std::vector<Sample>> read_all(Store& store, SlabPool& pool, const Dataset& dataset) {
  std::vector<Sample> samples;
  std::vector<ColumnBytes> columns(dataset.columns().size());
  for (std::uint32_t b = 0; b < dataset.block_count(); ++b) {
    const std::uint32_t count = dataset.block(b).sample_count;
    auto bytes = read_block(store, pool, dataset, b, 0, count);
    if (!bytes) return std::move(bytes).error();
    const BlockBytes block{b, 0, count, std::as_bytes(std::span(*bytes))};
    for (std::uint32_t i = 0; i < count; ++i) {
      HEADRACE_TRY(dataset.cut(block, i, columns));
      samples.push_back(copy_sample(columns));
    }
  }
  return samples;
}

/// One sample alone, by the smallest read.
inline Result<Sample> read_one(Store& store, SlabPool& pool, const Dataset& dataset,
                               std::uint64_t position) {
  const std::uint32_t b = dataset.block_of(position);
  const auto i = static_cast<std::uint32_t>(position - dataset.block(b).first_sample);
  auto bytes = read_block(store, pool, dataset, b, i, i + 1);
  if (!bytes) return std::move(bytes).error();
  BlockBytes block{b, i, i + 1, std::as_bytes(std::span(*bytes))};
  if (dataset.is_compressed(b)) block = {b, 0, dataset.block(b).sample_count, block.bytes};
  std::vector<ColumnBytes> columns(dataset.columns().size());
  HEADRACE_TRY(dataset.cut(block, i, columns));
  return copy_sample(columns);
}

}  // namespace headrace::testing
