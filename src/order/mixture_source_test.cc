#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "headrace/mixture.h"
#include "order/order_test_util.h"

namespace headrace {
namespace {

std::vector<MixtureInput> make_inputs(std::uint32_t count) {
  std::vector<MixtureInput> inputs(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    inputs[i].name = "source-" + std::to_string(i);
    inputs[i].prints = {"content " + std::to_string(i), "versions " + std::to_string(i)};
    inputs[i].block_samples.assign(20 + 7 * i, 30);
  }
  return inputs;
}

std::shared_ptr<const MixtureSource> must_make(const MixtureRequest& request,
                                               const std::vector<MixtureInput>& inputs) {
  auto spec = plan_mixture(request, inputs);
  EXPECT_TRUE(spec) << spec.error().message();
  std::vector<std::string> names;
  std::vector<MixturePrints> prints;
  for (const MixtureInput& input : inputs) {
    names.push_back(input.name);
    prints.push_back(input.prints);
  }
  auto source = MixtureSource::create(*std::move(spec), names, prints);
  EXPECT_TRUE(source) << source.error().message();
  return *source;
}

MixtureRequest make_request(std::vector<double> proportions) {
  MixtureRequest request;
  request.seed = 3;
  request.global_batch = 16;
  request.memory_bytes = 1 << 20;
  request.schedule = {{0, std::move(proportions)}};
  return request;
}

/// A loader's state, as far as restored() looks at it.
std::string state_of(const MixtureSource& source, std::uint64_t epoch, std::uint64_t t) {
  std::string extra = source.state_extra(epoch, t);
  extra.pop_back();
  return extra + R"(,"order_version":)" + std::to_string(source.spec().version) +
         R"(,"window_blocks":)" + std::to_string(source.spec().window_blocks) + R"(,"epoch":)" +
         std::to_string(epoch) + R"(,"t":)" + std::to_string(t) + "}";
}

std::vector<std::uint64_t> positions(const OrderSource& source, std::uint64_t epoch,
                                     std::uint64_t start, std::uint64_t count) {
  auto plan = source.plan({.epoch = epoch, .t = start, .global_batch = 16, .world_size = 1}, {});
  EXPECT_TRUE(plan) << plan.error().message();
  std::vector<std::uint64_t> out;
  for (std::uint64_t t = start; t < start + count; ++t)
    out.push_back(plan->order->dataset_position(t, {.start = start, .global_batch = 16}));
  return out;
}

TEST(PlanMixture, ChoosesGroupsLanesAndTheEpoch) {
  const auto inputs = make_inputs(2);
  const auto source = must_make(make_request({3, 1}), inputs);
  EXPECT_EQ(source->mixture().groups, 16U);
  EXPECT_EQ(source->mixture().epoch_samples, (20 + 27) * 30 / 16 * 16U);
  EXPECT_EQ(source->mixture().parts[0].order.lane_count, 16U);
  EXPECT_EQ(source->spec().id, "mixture");
  MixtureRequest request = make_request({3, 1});
  request.memory_bytes = 6;
  EXPECT_EQ(must_make(request, inputs)->mixture().groups, 2U) << "memory for four lanes";
  request.is_shuffled = false;
  EXPECT_EQ(must_make(request, inputs)->mixture().parts[0].order.id, "sequential");
  EXPECT_EQ(must_make(request, inputs)->mixture().groups, 1U);
}

TEST(PlanMixture, NamesWhatIsWrong) {
  const auto inputs = make_inputs(2);
  const auto code = [&](auto change) {
    MixtureRequest request = make_request({1, 1});
    change(request);
    auto spec = plan_mixture(request, inputs);
    return spec ? Code::kOk : spec.error().code();
  };
  EXPECT_EQ(code([](MixtureRequest&) {}), Code::kOk);
  EXPECT_EQ(code([](MixtureRequest& r) { r.schedule.clear(); }), Code::kInvalidArgument);
  EXPECT_EQ(code([](MixtureRequest& r) { r.epoch_shares = {1, 1}; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](MixtureRequest& r) { r.schedule[0].proportions = {1}; }),
            Code::kInvalidArgument);
  EXPECT_EQ(code([](MixtureRequest& r) { r.global_batch = 0; }), Code::kInvalidArgument);
  EXPECT_EQ(plan_mixture(make_request({}), {}).error().code(), Code::kInvalidArgument);
  auto empty = inputs;
  empty[1].block_samples.clear();
  EXPECT_EQ(plan_mixture(make_request({1, 1}), empty).error().code(), Code::kInvalidArgument);
  auto small = inputs;
  small[1].block_samples = {5};
  EXPECT_TRUE(plan_mixture(make_request({1, 1}), small));
  MixtureRequest wide = make_request({1, 1});
  wide.groups = 8;
  const auto refused = plan_mixture(wide, small);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("'source-1' has 5 samples, fewer than groups=8"),
            std::string::npos);
}

TEST(MixtureSource, AStateReplaysChangesOfWeights) {
  const auto inputs = make_inputs(2);
  const auto first = must_make(make_request({3, 1}), inputs);
  const double even[] = {1, 1};
  auto second = first->changed(100, even);
  ASSERT_TRUE(second);
  EXPECT_EQ((*second)->mixture().changes[1].first_sample, 112U);
  const auto restored = first->restored(first->spec(), state_of(**second, 0, 160));
  ASSERT_TRUE(restored) << restored.error().message();
  EXPECT_EQ(positions(**restored, 0, 0, 600), positions(**second, 0, 0, 600));
  EXPECT_NE(positions(**restored, 0, 0, 600), positions(*first, 0, 0, 600));
  EXPECT_EQ(positions(**restored, 0, 0, 112), positions(*first, 0, 0, 112));
  // A change at the same place replaces the earlier one.
  const double other[] = {1, 9};
  auto third = (*second)->changed(112, other);
  ASSERT_TRUE(third);
  EXPECT_EQ((*third)->mixture().changes.size(), 2U);
}

TEST(MixtureSource, ASourceAddedBeginsWhereTheStateStands) {
  const auto two = must_make(make_request({3, 1}), make_inputs(2));
  const auto three = must_make(make_request({1, 1, 2}), make_inputs(3));
  const auto restored = three->restored(two->spec(), state_of(*two, 0, 320));
  ASSERT_TRUE(restored) << restored.error().message();
  EXPECT_EQ(positions(**restored, 0, 0, 320), positions(*two, 0, 0, 320));
  const auto* source = dynamic_cast<const MixtureSource*>((*restored).get());
  ASSERT_NE(source, nullptr);
  EXPECT_EQ(source->schedule().count(2, 320), 0U);
  EXPECT_EQ(source->schedule().count(2, 384), 32U);
  // And its own state goes on.
  const auto again = three->restored((*restored)->spec(), state_of(*source, 0, 352));
  ASSERT_TRUE(again);
  EXPECT_EQ(positions(**again, 0, 0, 640), positions(**restored, 0, 0, 640));
  EXPECT_EQ(two->restored(three->spec(), state_of(*three, 0, 0)).error().code(),
            Code::kInvalidArgument)
      << "sources left out";
}

TEST(MixtureSource, RefusesToAddASourceSmallerThanTheGroups) {
  const auto two = must_make(make_request({3, 1}), make_inputs(2));
  ASSERT_EQ(two->mixture().groups, 16U);
  auto inputs = make_inputs(3);
  inputs[2].block_samples = {5};
  const auto three = must_make(make_request({1, 1, 2}), inputs);
  const auto refused = three->restored(two->spec(), state_of(*two, 0, 320));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  for (const char* part : {"'source-2'", "5 samples", "16 groups", "groups=4"})
    EXPECT_NE(refused.error().message().find(part), std::string::npos) << part;
}

TEST(MixtureSource, RefusesStatesOfOthers) {
  const auto inputs = make_inputs(2);
  const auto source = must_make(make_request({3, 1}), inputs);
  auto other = inputs;
  other[1].prints = {"changed", "changed"};
  const auto refused =
      must_make(make_request({3, 1}), other)->restored(source->spec(), state_of(*source, 0, 0));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("source-1"), std::string::npos);
  const std::string good = state_of(*source, 0, 0);
  EXPECT_TRUE(source->restored(source->spec(), good));
  for (const char* state : {"", "{}", R"({"mixture":null})", R"({"mixture":{}})"})
    EXPECT_EQ(source->restored(source->spec(), state).error().code(), Code::kInvalidArgument);
  // Any damage of the text is refused or gives a usable source.
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const char c : {'9', 'z', ' '}) {
      std::string damaged = good;
      damaged[i] = c;
      const auto result = source->restored(source->spec(), damaged);
      if (result && *result != nullptr) static_cast<void>(positions(**result, 0, 0, 16));
    }
  }
}

TEST(MixtureSource, NamesTheFieldThatAStateLacks) {
  const auto source = must_make(make_request({3, 1}), make_inputs(2));
  const auto good = nlohmann::json::parse(state_of(*source, 0, 0));
  for (const auto& [name, value] : good["mixture"].items()) {
    for (const bool is_there : {true, false}) {
      auto bad = good;
      bad["mixture"].erase(name);
      if (is_there) bad["mixture"][name] = nullptr;
      const auto refused = source->restored(source->spec(), bad.dump());
      ASSERT_FALSE(refused) << bad;
      EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
      EXPECT_NE(refused.error().message().find("'" + name + "'"), std::string::npos)
          << refused.error().message();
    }
  }
}

TEST(MixtureSource, AStateKeepsTheExactSamplesOfAnEpoch) {
  MixtureRequest request = make_request({});
  request.schedule.clear();
  request.epoch_shares = {400, 77};
  const auto source = must_make(request, make_inputs(2));
  request.epoch_shares = {100, 700};
  const auto other = must_make(request, make_inputs(2));
  const auto restored = other->restored(source->spec(), state_of(*source, 1, 16));
  ASSERT_TRUE(restored) << restored.error().message();
  EXPECT_EQ(positions(**restored, 1, 16, 461), positions(*source, 1, 16, 461));
}

TEST(MixtureSource, RefusesStatesThatAreShuffledOtherwise) {
  const auto inputs = make_inputs(2);
  MixtureRequest request = make_request({3, 1});
  request.groups = 1;
  const auto shuffled = must_make(request, inputs);
  request.is_shuffled = false;
  const auto plain = must_make(request, inputs);
  for (const bool is_first : {true, false}) {
    const auto& from = is_first ? shuffled : plain;
    const auto& into = is_first ? plain : shuffled;
    EXPECT_TRUE(from->restored(from->spec(), state_of(*from, 0, 16)));
    const auto refused = into->restored(from->spec(), state_of(*from, 0, 16));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
    EXPECT_NE(refused.error().message().find("shuffle="), std::string::npos);
  }
}

TEST(MixtureSource, WeightsThatHoldAlreadyAreNoChange) {
  const auto two = must_make(make_request({3, 1}), make_inputs(2));
  MixtureRequest request = make_request({3, 1, 0});
  request.schedule.push_back({40, {1, 1, 2}});
  const auto three = must_make(request, make_inputs(3));
  const auto restored = three->restored(two->spec(), state_of(*two, 0, 320));
  ASSERT_TRUE(restored) << restored.error().message();
  const auto* source = dynamic_cast<const MixtureSource*>((*restored).get());
  ASSERT_NE(source, nullptr);
  ASSERT_EQ(source->mixture().changes.size(), 2U);
  EXPECT_EQ(source->mixture().changes[1].first_sample, 640U);
  EXPECT_EQ(positions(**restored, 0, 0, 640), positions(*two, 0, 0, 640));
}

TEST(MixtureSource, HoldsAsManyChangesAsTheStateHasRoomFor) {
  for (const std::uint32_t count : {2U, 8U, kMaxMixtureSources}) {
    auto source = must_make(make_request(std::vector<double>(count, 1)), make_inputs(count));
    std::uint64_t changes = 0;
    while (true) {
      std::vector<double> proportions(count, 1);
      proportions[changes % count] = 3;
      auto next = source->changed((1'000'000 + changes) * 16, proportions);
      if (!next) {
        EXPECT_EQ(next.error().code(), Code::kInvalidArgument);
        break;
      }
      source = *std::move(next);
      ++changes;
      EXPECT_LE(source->state_extra(0, 0).size(), kMixtureStateBytes + 20);
    }
    EXPECT_GE(changes, count == 2 ? 20U : count == 8 ? 7U : 0U) << count << " sources";
  }
}

}  // namespace
}  // namespace headrace
