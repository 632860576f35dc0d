// Vectors made with the Python program of docs/order.md, which shares no code with the engine. They
// hold order `mixture` version 2 for ever: a run saved today must go on in the same order with any
// later build. Never change a number here.
#include <algorithm>
#include <numeric>

#include "headrace/mixture.h"
#include "order/order_math.h"
#include "order/order_test_util.h"

namespace headrace {
namespace {

using order_test::sequence;
using Positions = std::vector<std::uint64_t>;

struct Part {
  std::vector<std::uint32_t> blocks;
  std::uint32_t lanes = 1;
  std::uint32_t window_blocks = 1;
};

/// Sources of 36, 15 and 7 samples.
const std::vector<Part> kParts = {
    {{5, 3, 4, 7, 1, 6, 2, 8}, 4, 2}, {{3, 4, 2, 6}, 2, 3}, {{2, 1, 4}, 2, 2}};
const std::vector<std::uint32_t> kWeights = {39322, 13107, 13107};  // 3 : 1 : 1

MixtureSpec make_mixture(std::uint64_t seed, const std::vector<Part>& parts) {
  MixtureSpec spec;
  spec.version = 2;
  spec.seed = seed;
  spec.groups = 2;
  spec.batch = 8;
  for (std::uint32_t i = 0; i < parts.size(); ++i) {
    MixturePart& part = spec.parts.emplace_back();
    part.block_samples = parts[i].blocks;
    part.order = order_test::make_spec(parts[i].blocks, mixture_part_seed(seed, i), parts[i].lanes,
                                       parts[i].window_blocks, 1);
  }
  return spec;
}

MixtureSpec weighted(MixtureBatching batching) {
  MixtureSpec spec = make_mixture(5, kParts);
  spec.batching = batching;
  spec.epoch_samples = 48;
  spec.changes = {{0, kWeights}};
  return spec;
}

/// Exact samples of each source an epoch, as repeat= and choose= ask for.
MixtureSpec exact(std::uint64_t seed, const std::vector<Part>& parts,
                  std::vector<std::uint64_t> shares) {
  MixtureSpec spec = make_mixture(seed, parts);
  spec.epoch_samples = std::accumulate(shares.begin(), shares.end(), std::uint64_t{0});
  spec.epoch_shares = std::move(shares);
  return spec;
}

std::shared_ptr<const MixtureOrder> must_order(const MixtureSpec& spec, std::uint64_t epoch) {
  auto schedule = MixtureSchedule::create(spec);
  if (!schedule) {
    ADD_FAILURE() << schedule.error().message();
    std::abort();
  }
  auto order = MixtureOrder::create(*schedule, std::make_shared<MixtureSpec>(spec), epoch);
  if (!order) {
    ADD_FAILURE() << order.error().message();
    std::abort();
  }
  return *order;
}

struct View {
  std::uint64_t epoch = 0;
  Segment segment;
};

/// A rank's batches are its slots of the global ones, whatever the number of ranks.
void expect_ranks_share(const EpochOrder& order, const Segment& segment, const Positions& all) {
  const std::uint64_t global_batch = segment.global_batch;
  for (const std::uint32_t world_size : {1U, 2U, 4U}) {
    if (global_batch % world_size != 0) continue;
    const std::uint64_t width = global_batch / world_size;
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
      const BatchPlan plan{segment, order.sample_count(), rank, world_size, EpochEnd::kPad};
      for (std::uint64_t k = 0; k < plan.batch_count(); ++k) {
        const BatchPlan::Slots slots = plan.slots(k);
        ASSERT_EQ(slots.count, width);
        const std::uint64_t left =
            std::min<std::uint64_t>(all.size() - k * global_batch, global_batch);
        for (std::uint32_t i = 0; i < slots.count; ++i) {
          const std::uint64_t slot = rank * width + i;
          ASSERT_EQ(order.dataset_position(slots.sample(i), segment),
                    all[k * global_batch + slot % left]);
          ASSERT_EQ(slots.is_real(i), slot < left);
        }
      }
    }
  }
}

/// The first positions, and a fold of all.
void expect_golden(const MixtureSpec& spec, const View& view, const Positions& first,
                   std::uint64_t fold) {
  const auto order = must_order(spec, view.epoch);
  const Positions all = sequence(*order, view.segment);
  ASSERT_GE(all.size(), first.size());
  EXPECT_EQ(Positions(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(first.size())), first);
  std::uint64_t folded = 0;
  for (const std::uint64_t position : all) folded = order_math::mix(folded + position);
  EXPECT_EQ(folded, fold) << std::hex << folded;
  expect_ranks_share(*order, view.segment, all);
}

TEST(MixtureGolden, ProportionalBatchesOfFourEpochs) {
  const MixtureSpec spec = weighted(MixtureBatching::kProportional);
  expect_golden(spec, {0, {0, 8}}, {42, 56, 22, 33, 9,  27, 7,  49, 20, 41, 54, 32,
                                    52, 18, 11, 26, 21, 34, 40, 55, 50, 53, 10, 17},
                0x1d018fee9b78ecacU);
  expect_golden(spec, {1, {0, 8}}, {5,  47, 56, 16, 53, 2,  28, 0,  6, 14, 46, 54,
                                    43, 52, 18, 31, 2,  23, 1,  45, 8, 44, 57, 19},
                0x8ab9ece87302350bU);
  expect_golden(spec, {2, {5, 8}}, {9,  55, 34, 14, 21, 5,  44, 13, 53, 42, 28, 56,
                                    20, 27, 29, 12, 48, 26, 51, 41, 6,  54, 29, 19},
                0x4d8d59b73cb24fdfU);
  expect_golden(spec, {3, {16, 12}}, {36, 54, 0, 13, 3,  38, 25, 35, 21, 44, 53, 34,
                                      57, 15, 5, 17, 48, 55, 8,  31, 43, 52, 29, 6},
                0x5b222ed789c1537cU);
}

TEST(MixtureGolden, StratifiedBatchesOfFourEpochs) {
  const MixtureSpec spec = weighted(MixtureBatching::kStratified);
  expect_golden(spec, {0, {0, 8}}, {42, 22, 56, 33, 9,  27, 7,  49, 20, 32, 21, 41,
                                    50, 18, 52, 11, 40, 34, 54, 23, 26, 10, 17, 36},
                0xda385d1e53aea081U);
  expect_golden(spec, {1, {0, 8}}, {46, 16, 57, 6,  2,  28, 0,  44, 14, 2,  23, 36,
                                    45, 18, 51, 31, 38, 1,  55, 24, 8,  19, 11, 49},
                0xe4e01f153d7cc49bU);
  expect_golden(spec, {2, {5, 8}}, {21, 5,  48, 13, 45, 27, 28, 12, 57, 43, 20, 40,
                                    29, 26, 6,  53, 29, 19, 47, 11, 50, 2,  20, 10},
                0x4702d06d6984a10eU);
  expect_golden(spec, {3, {16, 12}}, {45, 3,  55, 15, 5,  17, 21, 34, 8, 39, 41, 31,
                                      26, 49, 46, 18, 56, 27, 53, 29, 6, 35, 7,  42},
                0x1995a48fd9a3d22cU);
}

TEST(MixtureGolden, PerSourceBatchesOfFourEpochs) {
  const MixtureSpec spec = weighted(MixtureBatching::kPerSource);
  expect_golden(spec, {0, {0, 8}}, {22, 33, 20, 32, 9,  27, 7,  18, 42, 41, 40, 39,
                                    49, 50, 36, 37, 21, 34, 23, 35, 11, 26, 10, 17},
                0xa88d6269ef6d6bU);
  expect_golden(spec, {1, {0, 8}}, {48, 47, 46, 45, 38, 43, 44, 49, 6,  14, 2,  23,
                                    28, 0,  18, 31, 55, 56, 54, 53, 53, 52, 57, 57},
                0x8eb12b41295b1be5U);
  expect_golden(spec, {2, {5, 8}}, {9,  5,  34, 56, 51, 54, 52, 55, 53, 56, 51, 13,
                                    21, 27, 28, 12, 20, 26, 29, 19, 6,  11, 29, 2},
                0xed93119db5762fe4U);
  expect_golden(spec, {3, {16, 12}}, {0,  13, 3, 15, 36, 38, 25, 35, 21, 34, 44, 43,
                                      48, 47, 5, 17, 26, 18, 40, 42, 8,  31, 29, 6},
                0x46911e78da3d0c0eU);
}

TEST(MixtureGolden, WeightsThatChangeInsideEpochs) {
  MixtureSpec spec = weighted(MixtureBatching::kProportional);
  spec.changes.push_back({56, {0, 32768, 32768}});
  spec.changes.push_back({104, {65536, 0, 0}});
  expect_golden(spec, {1, {0, 8}}, {5,  47, 56, 16, 53, 2,  28, 0,  46, 54, 45, 53,
                                    52, 43, 57, 44, 36, 56, 38, 54, 57, 49, 51, 46},
                0x64c80996edaddc0U);
  expect_golden(spec, {2, {0, 8}}, {37, 54, 36, 57, 51, 44, 53, 43, 6,  2,  23, 1,
                                    14, 18, 31, 8,  24, 0,  25, 3,  19, 11, 30, 17},
                0x624495219dd96421U);
  expect_golden(spec, {3, {0, 8}}, {11, 2, 10, 27, 29, 20, 18, 24, 9,  26, 16, 1,
                                    28, 7, 33, 22, 14, 4,  12, 0,  30, 23, 32, 25},
                0x4103e52339aaa1fcU);
}

TEST(MixtureGolden, FourGroups) {
  MixtureSpec spec =
      make_mixture(77, {{{5, 3, 4, 7, 1, 6, 2, 8}, 8, 2}, {{3, 4, 2, 6}, 4, 3}, {{2, 1, 4}, 4, 2}});
  spec.groups = 4;
  spec.epoch_samples = 48;
  spec.changes = {{0, kWeights}};
  expect_golden(spec, {0, {0, 8}}, {36, 16, 57, 40, 23, 0,  11, 27, 54, 28, 18, 32,
                                    42, 51, 25, 26, 55, 37, 6,  33, 20, 2,  50, 53},
                0x7c280734735741c5U);
  expect_golden(spec, {1, {8, 4}}, {54, 17, 24, 49, 43, 0, 30, 56, 6,  39, 11, 35,
                                    13, 51, 45, 24, 7,  8, 56, 19, 53, 3,  28, 42},
                0x5c70b398ac1b0170U);
  expect_golden(spec, {2, {0, 8}}, {51, 47, 9,  1,  21, 29, 40, 52, 27, 16, 43, 54,
                                    20, 38, 34, 25, 26, 53, 18, 4,  55, 32, 12, 41},
                0x61fa169e57dab510U);
}

TEST(MixtureGolden, ChooseAndRepeat) {
  const MixtureSpec spec = exact(9, kParts, {20, 40, 5});
  expect_golden(spec, {0, {0, 8}}, {8,  44, 43, 56, 45, 48, 23, 46, 6,  36, 41, 9,
                                    50, 35, 42, 49, 40, 39, 7,  38, 24, 53, 47, 37},
                0x7464f1de5d3330f6U);
  expect_golden(spec, {1, {0, 8}}, {14, 36, 37, 55, 48, 49, 21, 38, 27, 44, 43, 12,
                                    36, 30, 38, 41, 47, 46, 3,  45, 25, 52, 42, 40},
                0xce23f16593682964U);
  expect_golden(spec, {3, {8, 8}}, {6,  42, 41, 15, 48, 35, 44, 49, 38, 36, 26, 43,
                                    23, 56, 46, 37, 43, 13, 44, 39, 28, 49, 38, 22},
                0x5bf0a1dd8b35a500U);
}

TEST(MixtureGolden, ChooseBelowOneBatch) {
  const MixtureSpec spec = exact(9, kParts, {2, 1, 2});
  expect_golden(spec, {0, {0, 8}}, {8, 53, 44, 23, 56}, 0x5953a28af05f2368U);
  expect_golden(spec, {1, {0, 8}}, {6, 51, 43, 35, 57}, 0xc6f8e49fbb0bbfb7U);
  expect_golden(spec, {11, {0, 8}}, {27, 57, 50, 30, 51}, 0xa486a4b2d4c7673cU);
}

TEST(MixtureGolden, ExactSharesOfSeveralTables) {
  std::vector<std::uint32_t> large(30, 1000);
  large.push_back(7);
  const std::vector<Part> parts = {
      {large, 4, 2}, {std::vector<std::uint32_t>(21, 500), 4, 2}, {{3, 9, 1}, 2, 2}};
  const MixtureSpec spec = exact(11, parts, {40000, 30001, 5000});
  expect_golden(spec, {0, {0, 64}}, {32473, 13356, 30378, 40516, 29291, 32311, 13715, 29361,
                                     30293, 13657, 32408, 29550, 13978, 30416, 29100, 32265,
                                     13191, 30286, 40512, 29901, 32407, 13595, 29766, 30466},
                0x8ff3824a9a098c15U);
  expect_golden(spec, {1, {0, 64}},
                {33048, 16110, 31391, 40512, 13990, 33152, 8277,  13811, 31261, 8899, 33159, 13427,
                 16401, 39367, 13882, 33364, 8686,  31091, 40511, 13486, 33173, 8742, 2066,  31269},
                0xf39a0079d7c88971U);
}

}  // namespace
}  // namespace headrace
