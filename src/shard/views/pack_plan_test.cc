#include "shard/views/pack_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/random.h"

namespace headrace::detail {
namespace {

using Pieces = std::vector<std::vector<std::uint32_t>>;  // document, begin, length

std::vector<Pieces> pieces_of(const PackPlan& plan) {
  std::vector<Pieces> out;
  for (std::uint32_t s = 0; s < plan.sequence_count(); ++s) {
    Pieces& sequence = out.emplace_back();
    for (const PackPiece& piece : plan.pieces(s))
      sequence.push_back({piece.document, piece.begin, piece.length});
  }
  return out;
}

PackTokensOptions make_options(PackMethod method, std::uint32_t length,
                               std::uint32_t min_piece = 1) {
  PackTokensOptions options;
  options.method = method;
  options.length = length;
  options.min_piece = min_piece;
  return options;
}

std::vector<Pieces> plan_of(std::vector<std::uint32_t> lengths, const PackTokensOptions& options,
                            PackReport* report = nullptr) {
  return pieces_of(PackPlan::make(lengths, options, report));
}

TEST(PackPlan, ConcatenatesAndCuts) {
  const auto options = make_options(PackMethod::kConcatenate, 10);
  PackReport report;
  EXPECT_EQ(plan_of({4, 0, 13, 5}, options, &report),
            (std::vector<Pieces>{{{0, 0, 4}, {2, 0, 6}}, {{2, 6, 7}, {3, 0, 3}}, {{3, 3, 2}}}));
  EXPECT_EQ(report.documents, 4U);
  EXPECT_EQ(report.document_tokens, 22U);
  EXPECT_EQ(report.sequences, 3U);
  EXPECT_EQ(report.cut_documents, 2U);
  EXPECT_EQ(report.padding_tokens, 8U);
  EXPECT_EQ(report.dropped_tokens, 0U);
}

TEST(PackPlan, LeavesOutShortPiecesAndPartialSequences) {
  auto options = make_options(PackMethod::kConcatenate, 10, 3);
  PackReport report;
  // 8 + 2 of document 1: the beginning is too short, its room stays empty; 12 = 10 + 2: the end is.
  EXPECT_EQ(plan_of({8, 14, 12, 1}, options, &report),
            (std::vector<Pieces>{{{0, 0, 8}}, {{1, 2, 10}}, {{2, 0, 10}}, {{3, 0, 1}}}));
  EXPECT_EQ(report.dropped_tokens, 2U + 2U + 2U);
  options.min_piece = 1;
  options.drop_partial = true;
  EXPECT_EQ(plan_of({8, 4}, options), (std::vector<Pieces>{{{0, 0, 8}, {1, 0, 2}}}));
  EXPECT_TRUE(plan_of({8}, options).empty());
  EXPECT_TRUE(plan_of({}, options).empty());
  EXPECT_TRUE(plan_of({0, 0}, options).empty());
}

TEST(PackPlan, FitsTheLongestFirstWhereLeastRoomIsLeft) {
  PackReport report;
  EXPECT_EQ(plan_of({3, 7, 6, 4, 25}, make_options(PackMethod::kBestFit, 10), &report),
            (std::vector<Pieces>{{{4, 0, 10}},
                                 {{4, 10, 10}},
                                 {{1, 0, 7}, {0, 0, 3}},
                                 {{2, 0, 6}, {3, 0, 4}},
                                 {{4, 20, 5}}}));
  EXPECT_EQ(report.cut_documents, 1U);
  EXPECT_EQ(report.padding_tokens, 5U);
}

// Every token is in one place, pieces fit, and the report counts what is there.
TEST(PackPlan, KeepsEveryTokenOnce) {
  Random random(11);
  for (int round = 0; round < 400; ++round) {
    const auto method = random.below(2) == 0 ? PackMethod::kConcatenate : PackMethod::kBestFit;
    const auto length = static_cast<std::uint32_t>(2 + random.below(60));
    auto options = make_options(
        method, length,
        static_cast<std::uint32_t>(1 + random.below(random.below(2) == 0 ? 1 : length)));
    options.drop_partial = method == PackMethod::kConcatenate && random.below(3) == 0;
    std::vector<std::uint32_t> lengths(random.below(40));
    for (auto& l : lengths) l = static_cast<std::uint32_t>(random.below(3 * length));
    PackReport report;
    const PackPlan plan = PackPlan::make(lengths, options, &report);
    std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
    std::uint64_t padding = 0;
    for (std::uint32_t s = 0; s < plan.sequence_count(); ++s) {
      std::uint32_t sum = 0;
      const auto range = plan.documents(s, s + 1);
      ASSERT_FALSE(plan.pieces(s).empty());
      for (const PackPiece& piece : plan.pieces(s)) {
        ASSERT_GT(piece.length, 0U);
        ASSERT_LE(piece.begin + piece.length, lengths[piece.document]);
        ASSERT_TRUE(piece.length >= options.min_piece || piece.length == lengths[piece.document]);
        ASSERT_TRUE(range.begin <= piece.document && piece.document < range.end);
        for (std::uint32_t i = 0; i < piece.length; ++i)
          ASSERT_TRUE(seen.emplace(piece.document, piece.begin + i).second);
        sum += piece.length;
      }
      ASSERT_LE(sum, length);
      if (options.drop_partial && options.min_piece == 1) {
        ASSERT_EQ(sum, length);
      }
      padding += length - sum;
    }
    std::uint64_t all = 0;
    for (const auto l : lengths) all += l;
    ASSERT_EQ(report.sequences, plan.sequence_count());
    ASSERT_EQ(report.padding_tokens, padding);
    ASSERT_EQ(report.dropped_tokens, all - seen.size());
    if (options.min_piece == 1 && !options.drop_partial) {
      ASSERT_EQ(report.dropped_tokens, 0U);
    }
  }
}

TEST(PackPlan, BestFitCutsFewerDocumentsForLittlePadding) {
  Random random(5);
  std::vector<std::uint32_t> lengths(5000);
  for (auto& l : lengths)
    l = static_cast<std::uint32_t>(20 + random.below(random.below(10) == 0 ? 3000 : 600));
  PackReport cut;
  PackReport fit;
  static_cast<void>(PackPlan::make(lengths, make_options(PackMethod::kConcatenate, 1024), &cut));
  static_cast<void>(PackPlan::make(lengths, make_options(PackMethod::kBestFit, 1024), &fit));
  EXPECT_GT(cut.cut_documents, 4 * fit.cut_documents);
  EXPECT_LT(fit.padding_tokens, fit.document_tokens / 100);
}

}  // namespace
}  // namespace headrace::detail
