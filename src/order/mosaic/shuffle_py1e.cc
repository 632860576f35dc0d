// py1e: samples are shuffled within their spans, then spread over a block around them.
//
// The generator ties it all together: the draws of the span shuffles of a node come first (how many
// is known only by making them), then for each span one block size and one double a sample. The
// calling thread draws; the swaps, and the sorts of nodes whose draws are all known, are tasks.
#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <numeric>

#include "order/mosaic/position_sorter.h"
#include "order/mosaic/shuffle.h"
#include "order/mosaic/spare_pool.h"
#include "order/mosaic/work_crew.h"
#include "order/numpy_random/target_stream.h"

namespace headrace::mosaic {
namespace {

using numpy_random::Generator;
using numpy_random::TargetStream;

// Spans whose targets travel together: a hand-over costs little beside it, and the targets stay in
// the second-level cache.
constexpr std::size_t kBatchTargets = 1 << 15;
// Larger spans are swapped by the drawing thread: their targets would take too much room.
constexpr std::uint64_t kLargeSpan = 1 << 20;
// Batches of targets that may wait for a thread.
constexpr std::size_t kWaitingBatches = 16;
// Smallest stretch of a node that is worth a task of its own.
constexpr std::uint64_t kLeastStretch = 1 << 18;

template <class T>
class TargetBatch {
 public:
  /// Draws the shuffle of `samples`, whose ids count from `first_id`.
  void add(TargetStream& stream, std::span<T> samples, std::uint64_t first_id) {
    items_.push_back({samples, first_id});
    const std::size_t most = count_ + samples.size() + TargetStream::kSlack;
    if (most > targets_.size()) targets_.resize(std::max(most, kBatchTargets + kBatchTargets / 2));
    for (std::uint64_t i = samples.size() - 1; i != 0;) {
      count_ += stream.draw(i, std::span(targets_).subspan(count_));
    }
  }
  std::size_t size() const noexcept { return count_; }
  bool empty() const noexcept { return items_.empty(); }
  /// Shuffles; empty afterwards.
  void apply() {
    const std::uint32_t* target = targets_.data();
    for (const Item& item : items_) {
      std::iota(item.samples.begin(), item.samples.end(), static_cast<T>(item.first_id));
      for (std::size_t i = item.samples.size() - 1; i != 0; --i) {
        std::swap(item.samples[i], item.samples[*target++]);
      }
    }
    items_.clear();
    count_ = 0;
  }

 private:
  struct Item {
    std::span<T> samples;
    std::uint64_t first_id = 0;
  };
  std::vector<Item> items_;
  std::vector<std::uint32_t> targets_;
  std::size_t count_ = 0;
};

template <class T>
struct NodeWork {
  ShiftedNode<T> node;
  std::atomic<std::size_t> pending{1};  // batches to apply, and one for the drawing thread
};

template <class T>
class Py1e {
 public:
  Py1e(std::span<const std::uint64_t> units, const ShuffleSpec& spec, std::span<T> out,
       std::uint32_t threads)
      : spec_(spec),
        rng_(spec.seed + spec.epoch),
        divided_(epoch_spans(units, spec, rng_)),
        out_(out),
        threads_(threads),
        crew_(threads) {}

  void run() {
    std::size_t at = 0;
    for (const Part& part : divided_.parts) {
      const auto spans = std::span(divided_.spans).subspan(part.first, part.second - part.first);
      std::size_t count = 0;
      for (const Span& span : spans) count += span.size();
      auto work = std::make_shared<NodeWork<T>>();
      work->node.samples = out_.subspan(at, count);
      draw_span_shuffles(work, spans);
      draw_shifts(work->node, spans);
      set_borders(work->node);
      done_one(work);
      at += count;
    }
    crew_.finish();
  }

 private:
  using Work = std::shared_ptr<NodeWork<T>>;

  void draw_span_shuffles(const Work& work, std::span<const Span> spans) {
    TargetStream stream(rng_);
    auto batch = batches_.take();
    std::size_t at = 0;
    for (const Span& span : spans) {
      const auto samples = work->node.samples.subspan(at, span.size());
      at += span.size();
      if (samples.empty()) continue;
      if (threads_ == 1 || span.size() > kLargeSpan) {
        std::iota(samples.begin(), samples.end(), static_cast<T>(span.begin));
        if (span.size() <= numpy_random::kMax32) {
          numpy_random::shuffle_in_bulk(stream, samples);
        } else {
          stream.finish();
          rng_.shuffle(samples);
        }
        continue;
      }
      batch->add(stream, samples, span.begin);
      if (batch->size() >= kBatchTargets) {
        post(work, std::move(batch));
        batch = batches_.take();
      }
    }
    if (!batch->empty()) post(work, std::move(batch));
  }

  void post(const Work& work, std::shared_ptr<TargetBatch<T>> batch) {
    work->pending.fetch_add(1, std::memory_order_relaxed);
    crew_.post([this, work, batch = std::move(batch)] {
      batch->apply();
      batches_.give(batch);
      done_one(work);
    });
    crew_.help(kWaitingBatches);
  }

  /// One block size a span, and the generator's place at its shifts.
  void draw_shifts(ShiftedNode<T>& node, std::span<const Span> spans) {
    const auto [low, high] = block_bounds(spec_.block_size);
    const auto length = static_cast<double>(node.samples.size());
    node.spans.reserve(spans.size());
    double reach = 0;
    std::uint64_t offset = 0;
    for (const Span& span : spans) {
      const auto size = static_cast<double>(span.size());
      const auto block = static_cast<double>(rng_.integers(low, high));
      const double cut = std::max((block - size) / 2, 0.0);
      const double from = std::max(-cut, -static_cast<double>(offset));
      const double to = std::min(cut, length - static_cast<double>(offset) - size);
      node.spans.push_back({offset, span.size(), from, to, rng_});
      rng_.skip64(span.size());
      reach = std::max({reach, -from, to});
      offset += span.size();
      node.largest_id = std::max(node.largest_id, span.end);
    }
    node.reach = static_cast<std::uint64_t>(reach) + 2;  // rounded up, and the rounding of sums
  }

  void set_borders(ShiftedNode<T>& node) const {
    const std::uint64_t count = node.samples.size();
    // For each sample in reach a stretch takes a word in its window and the border before it two
    // ids, and both sides of a border make the same draws: wide stretches, no more than threads.
    const std::uint64_t stretches =
        std::clamp<std::uint64_t>(count / std::max(kLeastStretch, 4 * node.reach), 1, threads_);
    node.borders.push_back(0);
    for (std::uint64_t i = 1; i < stretches; ++i) {
      node.borders.push_back(count * i / stretches / kBucketWidth * kBucketWidth);
    }
    node.borders.push_back(count);
  }

  void done_one(const Work& work) {
    if (work->pending.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    work->node.copy_halos();
    for (std::size_t i = 0; i + 1 < work->node.borders.size(); ++i) {
      crew_.post([this, work, i] {
        auto memory = memories_.take();
        PositionSorter<T>(work->node, i, *memory).run();
        memories_.give(std::move(memory));
      });
    }
  }

  const ShuffleSpec& spec_;
  Generator rng_;
  DividedSpans divided_;
  std::span<T> out_;
  std::uint32_t threads_;
  SparePool<TargetBatch<T>> batches_;
  SparePool<SorterMemory> memories_;
  WorkCrew crew_;  // last: its threads end before what they use
};

}  // namespace

template <class T>
void shuffle_py1e(std::span<const std::uint64_t> units, const ShuffleSpec& spec, std::span<T> out,
                  std::uint32_t threads) {
  Py1e<T>(units, spec, out, threads).run();
}

template void shuffle_py1e<std::uint32_t>(std::span<const std::uint64_t>, const ShuffleSpec&,
                                          std::span<std::uint32_t>, std::uint32_t);
template void shuffle_py1e<std::uint64_t>(std::span<const std::uint64_t>, const ShuffleSpec&,
                                          std::span<std::uint64_t>, std::uint32_t);

}  // namespace headrace::mosaic
