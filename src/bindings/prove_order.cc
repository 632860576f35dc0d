// Proof that a run delivers each sample once, however it is stopped and resumed: every rank's slots
// of every part, by the loader's own arithmetic (EpochOrder and BatchPlan).
#include <bit>

#include "dataset.h"
#include "errors.h"
#include "order.h"
#include "waiting.h"

namespace headrace {
namespace {

/// (global batches of this part, or none: to the end of the epoch; world size; batch size a rank)
using PartRow = std::tuple<std::optional<std::uint64_t>, std::uint32_t, std::uint32_t>;

/// Which samples came once or more, and which more than once: 2 bits a sample.
class Tally {
 public:
  explicit Tally(std::uint64_t samples)
      : samples_(samples), seen_(words(samples)), again_(words(samples)) {}
  void add(std::uint64_t sample) {
    const std::uint64_t bit = std::uint64_t{1} << (sample % 64);
    std::uint64_t& seen = seen_[sample / 64];
    if ((seen & bit) != 0) again_[sample / 64] |= bit;
    seen |= bit;
  }
  std::uint64_t missing() const { return samples_ - count(seen_); }
  std::uint64_t repeated() const { return count(again_); }

 private:
  static std::size_t words(std::uint64_t samples) { return (samples + 63) / 64; }
  static std::uint64_t count(const std::vector<std::uint64_t>& bits) {
    std::uint64_t sum = 0;
    for (const std::uint64_t word : bits) sum += static_cast<std::uint64_t>(std::popcount(word));
    return sum;
  }
  std::uint64_t samples_;
  std::vector<std::uint64_t> seen_;
  std::vector<std::uint64_t> again_;
};

/// One part of the run: all ranks' batches, counted. Returns where the next part begins. Ends
/// early, with counts that mean nothing, when `stop` asks for it.
std::uint64_t run_part(const EpochOrder& order, std::uint64_t start, const PartRow& row,
                       Tally& tally, std::uint64_t& batches, const std::stop_token& stop) {
  const auto [stop_after, world_size, batch_size] = row;
  BatchPlan plan;
  plan.segment = {start, std::uint64_t{world_size} * batch_size};
  plan.sample_count = order.sample_count();
  plan.world_size = world_size;
  plan.epoch_end = EpochEnd::kUneven;
  const std::uint64_t count = std::min(stop_after.value_or(plan.batch_count()), plan.batch_count());
  for (plan.rank = 0; plan.rank < world_size; ++plan.rank) {
    for (std::uint64_t k = 0; k < count && !stop.stop_requested(); ++k) {
      const BatchPlan::Slots slots = plan.slots(k);
      for (std::uint32_t i = 0; i < slots.count; ++i) {
        if (slots.is_real(i)) tally.add(order.dataset_position(slots.sample(i), plan.segment));
      }
    }
  }
  batches += count;
  return count == 0 ? start : plan.t_after(count - 1);
}

/// (missing, repeated, batches)
std::tuple<std::uint64_t, std::uint64_t, std::uint64_t> prove_order(
    PyDataset& dataset, const nb::dict& spec_fields, std::uint64_t epoch,
    const std::vector<PartRow>& parts) {
  for (const auto& [stop_after, world_size, batch_size] : parts) {
    if (world_size == 0 || batch_size == 0) {
      raise(Status(Code::kInvalidArgument, "world and batch sizes are at least 1"));
    }
  }
  const OrderSpec spec = spec_from_dict(spec_fields);
  const auto data = dataset.reader.get()->dataset();
  const auto counts = block_samples(*data);
  auto order = value_or_raise(EpochOrder::create(spec, counts, epoch));
  Tally tally(order->sample_count());
  std::uint64_t batches = 0;
  run_interruptible([&](const std::stop_token& stop) {
    std::uint64_t start = 0;
    for (const PartRow& part : parts) {
      if (!stop.stop_requested()) start = run_part(*order, start, part, tally, batches, stop);
    }
    return true;
  });
  return {tally.missing(), tally.repeated(), batches};
}

}  // namespace

void bind_prove_order(nb::module_& m) {
  m.def("prove_order", &prove_order, nb::arg("dataset"), nb::arg("spec"), nb::arg("epoch"),
        nb::arg("parts"));
}

}  // namespace headrace
