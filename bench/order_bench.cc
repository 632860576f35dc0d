// Planning speed of order `headrace`: time and memory to plan an epoch and to go to any position of
// it, and the cost of a sample. Prints one JSON object. Usage: order_bench [BLOCKS]
// [SAMPLES_PER_BLOCK]; default 500,000 blocks of 2,000.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "headrace/order.h"
#include "order/laned_needs.h"
#include "order/order_math.h"

namespace {

using headrace::order_math::mix;
using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

/// Nanoseconds of one call of `sample` over `count` calls.
template <class Function>
double nanoseconds_each(std::uint64_t count, Function&& sample) {
  const auto start = Clock::now();
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < count; ++i) sum += sample(i);
  const double elapsed = milliseconds_since(start) * 1e6 / static_cast<double>(count);
  if (sum == 1) std::puts("");  // Uses the sum, so that the loop stays.
  return elapsed;
}

}  // namespace

int main(int argc, char** argv) {
  const auto blocks = static_cast<std::uint32_t>(argc > 1 ? std::atol(argv[1]) : 500'000);
  const auto block_samples = static_cast<std::uint32_t>(argc > 2 ? std::atol(argv[2]) : 2'000);
  const double base_mib = peak_mib();
  const std::vector<std::uint32_t> table(blocks, block_samples);
  headrace::OrderSpec spec;
  spec.seed = 17;
  spec.lane_count = 256;
  spec.window_blocks = 2;
  spec.bundle_lanes = 4;

  const auto start = Clock::now();
  spec.block_table_digest = headrace::block_table_digest(table);
  auto created = headrace::EpochOrder::create(spec, table, 3);
  if (!created) {
    std::fprintf(stderr, "%s\n", std::string(created.error().message()).c_str());
    return 1;
  }
  const headrace::LaneOrder& order = **created;
  const double plan_ms = milliseconds_since(start);

  // Resume: every lane's window at a position in mid-epoch, which is what a loader does first.
  const std::uint64_t middle = order.sample_count() / 5 * 3;
  const auto resume_start = Clock::now();
  std::uint64_t pieces = 0;
  for (std::uint32_t lane = 0; lane < spec.lane_count; ++lane) {
    pieces += order.window_at(lane, order.lane_consumed(lane, middle)).pieces.size();
  }
  const double resume_ms = milliseconds_since(resume_start);

  constexpr std::uint64_t kCalls = 1'000'000;
  const headrace::Segment segment{0, 2048};
  const headrace::Window window = order.window_at(7, middle / spec.lane_count);
  const double locate_ns = nanoseconds_each(
      kCalls, [&](std::uint64_t i) { return order.locate(middle + i, segment).position; });
  std::uint64_t index = 0;
  const double sample_ns = nanoseconds_each(kCalls, [&](std::uint64_t) {
    if (++index == window.sample_count) index = 0;
    return order.sample_at(window, window.first_position + index).sample_in_block;
  });
  const double random_ns = nanoseconds_each(kCalls / 10, [&](std::uint64_t i) {
    return order.dataset_position(mix(i) % order.sample_count(), segment);
  });
  const double order_mib = peak_mib() - base_mib;
  // When every block is needed next, by the ranks of one node of eight.
  headrace::BatchPlan plan;
  plan.segment = segment;
  plan.sample_count = order.sample_count();
  plan.world_size = 64;
  const auto needs_start = Clock::now();
  const headrace::LanedNeeds needs(order, blocks, plan, {.first = 8, .count = 8});
  const double needs_ms = milliseconds_since(needs_start);
  const double need_ns = nanoseconds_each(kCalls, [&](std::uint64_t i) {
    return needs.next_need(static_cast<std::uint32_t>(mix(i) % blocks), 0);
  });
  std::printf(
      "{\"bench\": \"order\", \"blocks\": %u, \"samples\": %llu, \"plan_ms\": %.2f, \"resume_ms\": "
      "%.3f, "
      "\"window_pieces\": %llu, \"locate_ns\": %.1f, \"sample_at_ns\": %.1f, "
      "\"random_position_ns\": %.0f, "
      "\"peak_mib\": %.1f, \"peak_above_start_mib\": %.1f, \"needs_ms\": %.1f, "
      "\"needs_bytes_a_block\": %.1f, \"next_need_ns\": %.1f}\n",
      blocks, static_cast<unsigned long long>(order.sample_count()), plan_ms, resume_ms,
      static_cast<unsigned long long>(pieces), locate_ns, sample_ns, random_ns,
      order_mib + base_mib, order_mib, needs_ms, static_cast<double>(needs.memory_bytes()) / blocks,
      need_ns);
  return 0;
}
