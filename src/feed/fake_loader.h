#pragma once
/// \file
/// A loader that does what a test says, for what stands on the interface alone.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headrace/loader.h"

namespace headrace::feed_test {

class FakeLoader final : public Loader {
 public:
  using Needs = Result<std::vector<std::uint64_t>>;
  std::function<Result<std::unique_ptr<Batch>>(TimePoint until)> on_next;
  std::function<Needs(std::uint64_t epochs, std::uint32_t first, std::uint32_t ranks)> on_needs;
  std::function<bool()> on_starved = [] { return false; };
  bool is_far_ahead = false;
  std::shared_ptr<const Dataset> data;  ///< Null: dataset() must not be called.

  Result<std::unique_ptr<Batch>> next(TimePoint until, std::stop_token) override {
    return on_next(until);
  }
  Needs block_needs(std::uint64_t epochs, std::uint32_t first_rank, std::uint32_t ranks,
                    const std::stop_token&) const override {
    return on_needs(epochs, first_rank, ranks);
  }
  bool is_starved() const noexcept override { return on_starved(); }
  bool is_ahead() const override { return is_far_ahead; }

  Status start_epoch(const std::stop_token&) override { return none(); }
  std::uint32_t share_batches(std::uint32_t) override { return 0; }
  bool is_ready() const override { return false; }
  Status unread() override { return none(); }
  std::string state() const override { return {}; }
  std::function<std::string()> state_later() const override { return {}; }
  Status load_state(std::string_view, const std::stop_token&) override { return none(); }
  Status seek(std::uint64_t, std::uint64_t, const std::stop_token&) override { return none(); }
  Status set_order_source(std::shared_ptr<const OrderSource>, const std::stop_token&) override {
    return none();
  }
  bool has_ended() const override { return false; }
  bool has_taken_all() const override { return false; }
  void end_epoch() override {}
  Result<std::uint64_t> batches_left(const std::stop_token&) const override { return none(); }
  Result<std::uint64_t> epoch_batches(const std::stop_token&) const override { return none(); }
  std::uint64_t epoch() const override { return 0; }
  Result<std::vector<std::int64_t>> sample_ids(std::uint64_t, std::uint64_t,
                                               const std::stop_token&) const override {
    return none();
  }
  std::vector<BadSample> bad_samples() const override { return {}; }
  MetricList stats() const override { return {}; }
  OrderSpec order_spec() const override { return {}; }
  Result<double> lane_readers(const std::stop_token&) const override { return none(); }
  const Dataset& dataset() const override { return *data; }
  const BatchSchema& schema() const override { return schema_; }
  void stop() noexcept override {}

 private:
  static Status none() { return Status(Code::kUnsupported, "a fake loader has none"); }
  const BatchSchema schema_ = {};
};

}  // namespace headrace::feed_test
