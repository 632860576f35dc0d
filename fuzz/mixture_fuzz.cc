// A state of a mixture, and the orders that come of it.
#include <string_view>

#include "headrace/mixture.h"
#include "require.h"

namespace {

using namespace headrace;

std::shared_ptr<const MixtureSource> make_source() {
  MixtureRequest request;
  request.global_batch = 8;
  request.memory_bytes = 1 << 20;
  request.schedule = {{0, {2, 1}}};
  std::vector<MixtureInput> inputs(2);
  inputs[0].block_samples.assign(6, 9);
  inputs[1].block_samples.assign(3, 20);
  auto spec = plan_mixture(request, inputs);
  require(spec.has_value());
  auto source = MixtureSource::create(*std::move(spec), {"a", "b"}, {{"one", "1"}, {"two", "2"}});
  require(source.has_value());
  return *source;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto source = make_source();
  const std::string_view state(reinterpret_cast<const char*>(data), size);
  auto restored = source->restored(source->spec(), state);
  if (!restored) {
    require(restored.error().code() == Code::kInvalidArgument);
    return 0;
  }
  for (const std::uint64_t epoch : {0ULL, 3ULL}) {
    auto plan = (*restored)->plan({.epoch = epoch, .t = 0, .global_batch = 8, .world_size = 1}, {});
    require(plan.has_value() && plan->order != nullptr);
    const Segment segment{.start = 0, .global_batch = 8};
    const std::uint64_t count = std::min<std::uint64_t>(plan->order->sample_count(), 64);
    for (std::uint64_t t = 0; t < count; ++t)
      require(plan->order->dataset_position(t, segment) < 6 * 9 + 3 * 20);
  }
  return 0;
}
