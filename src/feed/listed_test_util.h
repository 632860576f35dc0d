#pragma once
/// \file
/// A source of listed orders for the tests of src/feed: the list of each epoch is given.
#include <memory>
#include <string>
#include <vector>

#include "headrace/order_source.h"

namespace headrace::feed_test {

/// Part of a list, from a slot on.
class PartList final : public SampleList {
 public:
  PartList(std::shared_ptr<const std::vector<std::int64_t>> ids, std::uint64_t begin)
      : ids_(std::move(ids)), begin_(begin) {}
  std::uint64_t size() const noexcept override { return ids_->size() - begin_; }
  void read(std::uint64_t t, std::span<std::int64_t> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = (*ids_)[begin_ + t + i];
  }

 private:
  std::shared_ptr<const std::vector<std::int64_t>> ids_;
  std::uint64_t begin_;
};

/// Every epoch has the same list. States carry a field "list"; a state `{"elsewhere": t}` is one of
/// another loader.
class ListSource final : public OrderSource {
 public:
  ListSource(std::vector<std::uint32_t> block_samples, std::vector<std::int64_t> ids)
      : block_samples_(std::move(block_samples)),
        ids_(std::make_shared<const std::vector<std::int64_t>>(std::move(ids))) {}

  OrderSpec spec() const override {
    OrderSpec spec;
    spec.id = "test:list";
    return spec;
  }
  Result<OrderPlan> plan(const OrderQuery& query, const std::stop_token&) const override {
    if (query.t > ids_->size()) return Status(Code::kInvalidArgument, "t lies beyond the list");
    if (query.t == ids_->size()) return OrderPlan();
    HEADRACE_TRY_ASSIGN(auto order, create_listed_order(spec(), block_samples_, query.epoch,
                                                        std::make_shared<PartList>(ids_, query.t)));
    return OrderPlan{.order = std::move(order), .start = 0};
  }
  std::string state_extra(std::uint64_t, std::uint64_t t) const override {
    return R"({"list":)" + std::to_string(t) + "}";
  }
  Result<std::optional<Foreign>> read_foreign(std::string_view state) const override {
    constexpr std::string_view kHead = R"({"elsewhere":)";
    if (!state.starts_with(kHead)) return std::optional<Foreign>();
    const std::uint64_t t = std::stoull(std::string(state.substr(kHead.size())));
    return std::optional<Foreign>(Foreign{.position = {.epoch = 0, .t = t}, .source = nullptr});
  }

 private:
  const std::vector<std::uint32_t> block_samples_;
  const std::shared_ptr<const std::vector<std::int64_t>> ids_;
};

}  // namespace headrace::feed_test
