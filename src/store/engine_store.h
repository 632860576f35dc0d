#pragma once
/// \file
/// EngineStore: the data plane of every Store that is a TransferHandle over a shared engine.
/// Drivers derive from it and add their calls.
///
/// Threads: as class Store says. All handles of one store share protocol and engine.
#include <memory>
#include <string>
#include <utility>

#include "headrace/store.h"
#include "store/transfer/transfer_engine.h"

namespace headrace {

class EngineStore : public Store {
 public:
  explicit EngineStore(std::shared_ptr<TransferEngine> engine)
      : engine_(std::move(engine)), handle_(engine_->new_handle()) {}

  std::size_t submit(std::span<Request> requests) override { return handle_->submit(requests); }
  std::size_t wait(std::span<Completion> out, TimePoint until, std::stop_token stop) override {
    return handle_->wait(out, until, std::move(stop));
  }
  void wake() noexcept override { handle_->wake(); }
  void cancel(std::uint64_t tag) override { handle_->cancel(tag); }
  void stop() noexcept override { handle_->stop(); }
  std::string origin() const override { return engine_->origin(); }
  void append_metrics(MetricList& out) const override { engine_->append_metrics(out); }

 protected:
  const std::shared_ptr<TransferEngine>& engine() const noexcept { return engine_; }

 private:
  const std::shared_ptr<TransferEngine> engine_;
  const std::unique_ptr<TransferHandle> handle_;
};

}  // namespace headrace
