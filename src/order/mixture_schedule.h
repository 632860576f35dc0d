#pragma once
/// \file
/// Schedule: what MixtureSchedule is made of; the parts that MixtureOrder needs. Pure.
///
/// Immutable; any thread.
#include <memory>
#include <vector>

#include "headrace/mixture.h"
#include "order/mixture_table.h"

namespace headrace::order_detail {

/// Steps: in each one every group gives one sample. Counted over the whole run.
class Schedule final : public MixtureSchedule {
 public:
  explicit Schedule(const MixtureSpec& spec);

  std::uint64_t count(std::uint32_t source, std::uint64_t tau) const override;
  std::vector<std::uint64_t> counts(std::uint64_t tau, std::uint64_t batch) const override;

  /// Samples of `source` among the first `steps` of `group`.
  std::uint64_t count_in_group(std::uint32_t source, std::uint32_t group,
                               std::uint64_t steps) const noexcept;
  MixtureTable::Entry at(std::uint32_t group, std::uint64_t step) const noexcept;
  /// Step at which `group` gives its sample number `number` of `source`; max(): never.
  std::uint64_t step_of(std::uint32_t source, std::uint32_t group,
                        std::uint64_t number) const noexcept;
  /// Steps of one epoch, the last perhaps not by all groups.
  std::uint64_t epoch_steps() const noexcept { return epoch_steps_; }
  std::uint32_t groups() const noexcept { return groups_; }
  std::uint32_t source_count() const noexcept { return source_count_; }

 private:
  /// From `first_step` on a table holds; `before` counts what each (source, group) had until then.
  struct Phase {
    std::uint64_t first_step = 0;
    std::shared_ptr<const MixtureTable> table;
    std::vector<std::uint64_t> before;  ///< By source * groups + group.
  };
  void add_phase(std::uint64_t first_step, std::shared_ptr<const MixtureTable> table);
  void plan_shares(std::vector<std::uint64_t> shares);
  void plan_changes(const MixtureSpec& spec);
  const Phase& phase_at(std::uint64_t step) const noexcept;
  std::size_t cell(std::uint32_t source, std::uint32_t group) const noexcept {
    return std::size_t{source} * groups_ + group;
  }
  std::uint64_t count_in_phases(std::uint32_t source, std::uint32_t group,
                                std::uint64_t steps) const noexcept;

  const std::uint32_t groups_;
  const std::uint32_t source_count_;
  const std::uint64_t epoch_samples_;
  const std::uint64_t epoch_steps_;
  const bool is_cyclic_;  ///< The phases are one epoch, and repeat.
  std::vector<Phase> phases_;
  std::vector<std::uint64_t> cycle_;  ///< is_cyclic_: what each (source, group) has in an epoch.
};

}  // namespace headrace::order_detail
