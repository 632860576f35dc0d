// Every rank, and every run that goes on later, must choose the same stand-in. So the choice is a
// walk that depends on the planned sample and on what is bad alone: neighbours in its own block
// first, then other blocks of the same source, in steps of about 0.618 of the count. The step
// shares no divisor with the count, so the walk meets each candidate once.
//
// What is known to be bad only grows. It is bounded, and a dataset with more is refused: it should
// be verified, not papered over.
#include "feed/plan/stand_ins.h"

#include <xxhash.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "feed/state/position.h"

namespace headrace::feed {
namespace {

/// Candidates in one block. Where half of a block is bad, one sample in 65,536 finds none there.
constexpr std::uint64_t kTriesInBlock = 16;
/// What is remembered: 4 MiB outside of the pool. A dataset with more is to be verified.
constexpr std::size_t kMostFound = std::size_t{1} << 16;
constexpr std::size_t kMostReported = 1000;

}  // namespace

std::uint64_t stand_in_step(std::uint64_t count) noexcept {
  // count - 1 shares no divisor with count, so this ends below it.
  std::uint64_t step = std::max<std::uint64_t>(count * 618 / 1000, 1);
  while (std::gcd(step, count) != 1) ++step;
  return step;
}

StandIns::StandIns(const Dataset& dataset, Options options)
    : dataset_(dataset), options_(std::move(options)) {}

std::uint64_t StandIns::position_of(const SamplePlace& place) const {
  return dataset_.block(place.block).first_sample + place.index;
}

const SampleRange* StandIns::quarantined(std::uint64_t position) const {
  const auto& ranges = options_.quarantine;
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), position,
                       [](std::uint64_t p, const SampleRange& range) { return p < range.begin; });
  if (after == ranges.begin()) return nullptr;
  const SampleRange& range = *std::prev(after);
  return position < range.end ? &range : nullptr;
}

bool StandIns::is_bad(const SamplePlace& place) const {
  const std::uint64_t position = position_of(place);
  return bad_blocks_.contains(place.block) || bad_samples_.contains(position) ||
         quarantined(position) != nullptr;
}

bool StandIns::is_block_bad(std::uint32_t index) const {
  if (bad_blocks_.contains(index)) return true;
  if (options_.quarantine.empty()) return false;
  const Block block = dataset_.block(index);
  const SampleRange* range = quarantined(block.first_sample);
  return range != nullptr && range->end >= block.first_sample + block.sample_count;
}

Result<SamplePlace> StandIns::find(const SamplePlace& planned) const {
  if (!is_bad(planned)) return planned;
  const auto& firsts = options_.source_blocks;
  const auto after = std::upper_bound(firsts.begin(), firsts.end(), planned.block);
  const std::uint64_t first = after == firsts.begin() ? 0 : *std::prev(after);
  const std::uint64_t count = (after == firsts.end() ? dataset_.block_count() : *after) - first;
  const std::uint64_t block_step = stand_in_step(count);
  for (std::uint64_t m = 0; m < count; ++m) {
    const std::uint64_t offset = (planned.block - first + m * block_step) % count;
    const auto block = static_cast<std::uint32_t>(first + offset);
    if (is_block_bad(block)) continue;
    const std::uint64_t samples = dataset_.block(block).sample_count;
    const std::uint64_t step = stand_in_step(samples);
    for (std::uint64_t k = 0; k < std::min(samples, kTriesInBlock); ++k) {
      const SamplePlace place{block,
                              static_cast<std::uint32_t>((planned.index + k * step) % samples)};
      if (!is_bad(place)) return place;
    }
  }
  return Status(Code::kCorrupt,
                "sample " + std::to_string(position_of(planned)) + " of " + dataset_.url() +
                    " is bad, and so are all that could stand in for it: repair the dataset");
}

SamplePlace StandIns::find_or_same(const SamplePlace& planned) const {
  auto found = find(planned);
  return found ? *found : planned;
}

Status StandIns::admit(const Status& status) const {
  // Only bytes that make no sense are replaced. A read that failed is another matter: it may
  // succeed later, and replacing it would lose a good sample.
  if (!options_.replaces_found || status.code() != Code::kCorrupt) return status.clone();
  if (bad_samples_.size() + bad_blocks_.size() < kMostFound) return {};
  return status.clone().annotate(
      "more than " + std::to_string(kMostFound) + " samples of " + dataset_.url() +
      " turned out bad: run `headrace verify --quarantine` and pass the list as quarantine=");
}

Status StandIns::take_bad_sample(const SamplePlace& place, Status status) {
  HEADRACE_TRY(admit(status));
  const std::uint64_t position = position_of(place);
  if (bad_samples_.insert(position).second) note(position, 1, status);
  return {};
}

Status StandIns::take_bad_block(std::uint32_t index, Status status) {
  HEADRACE_TRY(admit(status));
  const Block block = dataset_.block(index);
  if (bad_blocks_.insert(index).second) note(block.first_sample, block.sample_count, status);
  return {};
}

void StandIns::note(std::uint64_t position, std::uint64_t sample_count, const Status& status) {
  MutexLock lock(mutex_);
  ++found_count_;
  if (report_.size() < kMostReported)
    report_.push_back({position, sample_count, std::string(status.message())});
}

std::vector<BadSample> StandIns::report() const {
  MutexLock lock(mutex_);
  return report_;
}

std::uint64_t StandIns::found_count() const {
  MutexLock lock(mutex_);
  return found_count_;
}

std::string quarantine_digest(std::span<const SampleRange> ranges) {
  static_assert(sizeof(SampleRange) == 16, "hashed as it lies");
  if (ranges.empty()) return {};
  return hex16(XXH3_64bits(ranges.data(), ranges.size_bytes()));
}

}  // namespace headrace::feed
