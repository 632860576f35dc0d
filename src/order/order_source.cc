#include "headrace/order_source.h"

#include "base/mutex.h"
#include "order/order_driver.h"

namespace headrace {
namespace {

/// Orders made from a spec alone. A state may name other lanes, windows and bundles than ours.
class SpecSource final : public OrderSource {
 public:
  SpecSource(OrderSpec spec, std::shared_ptr<const std::vector<std::uint32_t>> block_samples)
      : spec_(std::move(spec)), block_samples_(std::move(block_samples)) {}

  OrderSpec spec() const override { return spec_; }

  Result<OrderPlan> plan(const OrderQuery& query, const std::stop_token&) const override {
    HEADRACE_TRY_ASSIGN(auto order, order_of(query.epoch));
    if (query.t > order->sample_count()) {
      return Status(Code::kInvalidArgument, "order: t is " + std::to_string(query.t) +
                                                ", more than the epoch's " +
                                                std::to_string(order->sample_count()) + " samples");
    }
    if (query.t == order->sample_count()) return OrderPlan();
    return OrderPlan{.order = std::move(order), .start = query.t};
  }

  Result<std::shared_ptr<const OrderSource>> restored(const OrderSpec& saved,
                                                      std::string_view) const override {
    const bool is_same = saved.lane_count == spec_.lane_count &&
                         saved.window_blocks == spec_.window_blocks &&
                         saved.bundle_lanes == spec_.bundle_lanes;
    if (is_same) return std::shared_ptr<const OrderSource>();
    return std::shared_ptr<const OrderSource>(
        std::make_shared<const SpecSource>(saved, block_samples_));
  }

  Result<std::shared_ptr<const LaneOrder>> order_of(std::uint64_t epoch) const {
    {
      MutexLock lock(mutex_);
      if (last_ && last_->epoch() == epoch) return last_;
    }
    HEADRACE_TRY_ASSIGN(auto order, EpochOrder::create(spec_, *block_samples_, epoch));
    MutexLock lock(mutex_);
    last_ = order;
    return order;
  }

 private:
  const OrderSpec spec_;
  const std::shared_ptr<const std::vector<std::uint32_t>> block_samples_;
  mutable Mutex mutex_;
  mutable std::shared_ptr<const LaneOrder> last_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace

Result<std::shared_ptr<const OrderSource>> order_detail::create_spec_source(
    const OrderSpec& spec, std::vector<std::uint32_t> block_samples) {
  auto source = std::make_shared<const SpecSource>(
      spec, std::make_shared<const std::vector<std::uint32_t>>(std::move(block_samples)));
  HEADRACE_TRY_ASSIGN(const auto proof, source->order_of(0));
  static_cast<void>(proof);
  return std::shared_ptr<const OrderSource>(std::move(source));
}

Result<std::shared_ptr<const OrderSource>> create_order_source(
    const OrderSpec& spec, std::vector<std::uint32_t> block_samples) {
  HEADRACE_TRY_ASSIGN(const auto* driver, order_detail::find_order(spec.id));
  return driver->make(spec, std::move(block_samples));
}

}  // namespace headrace
