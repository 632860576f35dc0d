// Draws of litdata's CombinedStreamingDataset: Python's random.choices, one at a time.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "headrace/litdata_order.h"
#include "order/numpy_random/mt19937.h"
#include "order/numpy_random/seed_sequence.h"

namespace headrace {
namespace {

constexpr std::uint32_t kNobody = 0xffff'ffffU;

class Combiner {
 public:
  Combiner(const LitDataCombinedSpec& spec, std::span<const std::uint64_t> lengths)
      : spec_(spec),
        left_(lengths.begin(), lengths.end()),
        weights_(spec.weights),
        alive_(lengths.size()),
        rng_(numpy_random::words_of(spec.seed)) {
    std::iota(alive_.begin(), alive_.end(), 0U);
  }

  /// random.choices(alive, weights)[0].
  std::uint32_t draw() {
    sums_.clear();
    double sum = 0;
    for (std::size_t i = 0; i < alive_.size(); ++i) {
      sum = i == 0 ? weights_[alive_[i]] : sum + weights_[alive_[i]];
      sums_.push_back(sum);
    }
    const double x = rng_.random() * (sums_.back() + 0.0);
    // bisect_right over all but the last, so that rounding cannot run past the end.
    return alive_[static_cast<std::size_t>(std::upper_bound(sums_.begin(), sums_.end() - 1, x) -
                                           sums_.begin())];
  }

  /// The data set of the next sample; kNobody at the end.
  std::uint32_t next() {
    if (!spec_.iterate_over_all) {
      const std::uint32_t set = next_set();
      if (left_[set] == 0) return kNobody;
      --left_[set];
      return set;
    }
    for (;;) {
      const bool is_last = alive_.size() == 1;
      const std::uint32_t set = is_last ? alive_[0] : next_set();
      if (left_[set] != 0) {
        --left_[set];
        return set;
      }
      if (is_last) return kNobody;
      retire(set);
    }
  }

 private:
  std::uint32_t next_set() {
    if (!spec_.is_per_stream) return draw();
    if (current_ == kNobody) {
      current_ = draw();
      in_batch_ = 0;
    }
    if (in_batch_ >= spec_.batch_size) {
      std::uint32_t candidate = current_;
      if (alive_.size() > 1) {
        while (candidate == current_) candidate = draw();
      }
      current_ = candidate;
      in_batch_ = 0;
    }
    ++in_batch_;
    return current_;
  }

  /// Takes an exhausted set out and normalises the weights of the others; again each time it is
  /// drawn, as per_stream keeps drawing it to the end of its batch.
  void retire(std::uint32_t set) {
    std::erase(alive_, set);
    double sum = 0;
    for (const std::uint32_t other : alive_) sum += weights_[other];
    for (const std::uint32_t other : alive_) weights_[other] /= sum;
  }

  const LitDataCombinedSpec& spec_;
  std::vector<std::uint64_t> left_;
  std::vector<double> weights_;
  std::vector<std::uint32_t> alive_;
  std::vector<double> sums_;
  numpy_random::Mt19937 rng_;
  std::uint32_t current_ = kNobody;
  std::uint64_t in_batch_ = 0;
};

Status check(const LitDataCombinedSpec& spec, std::span<const std::uint64_t> lengths) {
  const auto invalid = [](const std::string& why) { return Status(Code::kInvalidArgument, why); };
  if (lengths.empty() || spec.weights.size() != lengths.size()) {
    return invalid(std::to_string(spec.weights.size()) + " weights for " +
                   std::to_string(lengths.size()) + " data sets");
  }
  std::size_t positive = 0;
  for (const double weight : spec.weights) {
    if (!(weight >= 0) || std::isinf(weight)) return invalid("weights are finite and not negative");
    if (weight > 0) ++positive;
  }
  // With one that can be drawn, LitData's per_stream draws for ever to find another.
  if (positive == 0 || (positive == 1 && spec.is_per_stream && lengths.size() > 1)) {
    return invalid("too few data sets have a weight above 0");
  }
  if (spec.iterate_over_all && positive != lengths.size()) {
    return invalid("iterate_over_all needs a weight above 0 for each data set");
  }
  if (spec.batch_size == 0) return invalid("batch_size is at least 1");
  return Status();
}

}  // namespace

Result<std::vector<std::uint32_t>> combine_litdata(const LitDataCombinedSpec& spec,
                                                   std::span<const std::uint64_t> lengths,
                                                   std::uint64_t replayed) {
  HEADRACE_TRY(check(spec, lengths));
  Combiner combiner(spec, lengths);
  for (std::uint64_t i = 0; i < replayed; ++i) combiner.draw();
  std::vector<std::uint32_t> out;
  for (std::uint32_t set = combiner.next(); set != kNobody; set = combiner.next()) {
    out.push_back(set);
  }
  return out;
}

}  // namespace headrace
