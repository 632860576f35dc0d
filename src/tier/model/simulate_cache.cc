// The cache without its files: what is held is a sorted set of names, and time is the virtual clock
// of a loop that takes batches. Ranks are in step: batch k of all is taken at one moment, and reads
// are replayed in the order of the batches before which they were made.
//
// The model keeps to DiskCache where that decides which bytes are fetched: covers, what is left
// out, how much goes at once, and for how long nothing is tried after nothing could go.
#include "headrace/simulate_cache.h"

#include <algorithm>
#include <iterator>
#include <list>
#include <map>
#include <set>
#include <utility>

#include "tier/eviction_order.h"
#include "tier/extent_file.h"
#include "tier/plan_entries.h"

namespace headrace {
namespace {

using tier::Candidate;
using tier::ExtentName;
using tier::kEvictedShare;
using tier::kPauseShare;
using tier::PlanEntry;

// As in ExtentIndex.
constexpr int kMostOverlapping = 8;

ExtentName name_of(std::uint32_t object, std::uint64_t offset_bytes, std::uint64_t length_bytes) {
  return {{0, object}, offset_bytes, length_bytes};
}

/// A reader's plan, as it marks it.
class Plan {
 public:
  explicit Plan(const ReadTrace::Plan& plan) {
    for (const ReadTrace::Foreseen& read : plan.reads) {
      entries_.push_back({.range = name_of(read.object, read.offset_bytes, read.length_bytes),
                          .first = read.first,
                          .second = read.second});
    }
    std::sort(entries_.begin(), entries_.end(),
              [](const PlanEntry& a, const PlanEntry& b) { return a.range < b.range; });
  }
  void note_read(const ExtentName& range) {
    tier::visit_over(entries_, range, [](std::uint32_t& word) { word = PlanEntry::kNever; });
  }
  std::uint32_t next_need(const ExtentName& range) const {
    std::uint32_t need = PlanEntry::kNever;
    for (auto at = tier::find_first(entries_, range);
         at != entries_.end() && tier::is_inside(*at, range); ++at)
      need = std::min(need, tier::need_of(*at));
    return need;
  }

 private:
  std::vector<PlanEntry> entries_;
};

/// What a cache holds, and what it does with what comes.
class Model {
 public:
  Model(std::uint64_t limit_bytes, CachePolicy policy, std::size_t ranks)
      : limit_(limit_bytes), policy_(policy), plans_(ranks) {}

  void set_plan(std::size_t rank, const ReadTrace::Plan& plan) { plans_[rank].emplace_back(plan); }

  /// Whether it is held; where not, it is fetched and kept if there is room.
  bool read(std::size_t rank, const ExtentName& range, SimulatedCache& out) {
    ++lookups_;
    ++time_;
    if (!plans_[rank].empty()) plans_[rank].back().note_read(range);
    if (cover(range)) return true;
    keep(range, out);
    return false;
  }

 private:
  struct Held {
    bool was_hit = false;
    std::int64_t since = 0;
    std::list<ExtentName>::iterator place;  ///< In used_, where that is looked at.
  };
  using All = std::map<ExtentName, Held>;

  bool cover(const ExtentName& range) {
    std::vector<All::iterator> found;
    std::uint64_t at = range.offset_bytes;
    while (at < tier::range_end(range)) {
      auto next = held_.upper_bound({range.object, at, UINT64_MAX});
      auto best = held_.end();
      for (int i = 0; i < kMostOverlapping && next != held_.begin(); ++i) {
        --next;
        if (next->first.object != range.object) break;
        if (tier::range_end(next->first) > at &&
            (best == held_.end() || tier::range_end(next->first) > tier::range_end(best->first)))
          best = next;
      }
      if (best == held_.end()) return false;
      found.push_back(best);
      at = tier::range_end(best->first);
    }
    for (const All::iterator& extent : found) {
      if (policy_ == CachePolicy::kLru) used_.splice(used_.end(), used_, extent->second.place);
      if (!std::exchange(extent->second.was_hit, true)) extent->second.since = time_;
    }
    return true;
  }

  void keep(const ExtentName& range, SimulatedCache& out) {
    const std::uint64_t bytes = tier::file_bytes(range);
    if (held_.contains(range)) return;
    if (bytes > limit_ || (used_bytes_ + bytes > limit_ && !make_room(range, bytes, out))) {
      out.left_out_bytes += range.length_bytes;
      return;
    }
    Held held{.was_hit = ghosts_.erase(range) > 0, .since = time_, .place = {}};
    if (policy_ == CachePolicy::kLru) held.place = used_.insert(used_.end(), range);
    held_.emplace(range, held);
    used_bytes_ += bytes;
  }

  bool make_room(const ExtentName& wanted, std::uint64_t bytes, SimulatedCache& out) {
    if (policy_ == CachePolicy::kLru) {
      while (used_bytes_ + bytes > limit_) drop(held_.find(used_.front()), out);
      return true;
    }
    if (lookups_ < pause_) return false;
    const std::uint64_t spare = std::max(bytes, limit_ / kEvictedShare);
    const std::uint64_t target = limit_ - std::min(limit_, spare);
    const auto limit = next_need(wanted);
    std::vector<Candidate> all;
    all.reserve(held_.size());
    for (const auto& [name, held] : held_) {
      auto need = next_need(name);
      if (need == PlanEntry::kNever) need.reset();
      all.push_back({.name = name,
                     .file_bytes = tier::file_bytes(name),
                     .need = need,
                     .was_hit = held.was_hit,
                     .since_ns = held.since});
    }
    const std::uint64_t before = out.evicted_bytes;
    for (const Candidate& victim : tier::eviction_order(std::move(all))) {
      if (used_bytes_ <= target) break;
      if (victim.need && (!limit || *victim.need <= *limit)) break;
      if (!victim.need && !victim.was_hit) ghosts_.insert(victim.name);
      drop(held_.find(victim.name), out);
    }
    lookups_ = 0;
    pause_ = out.evicted_bytes == before ? held_.size() / kPauseShare : 0;
    return used_bytes_ + bytes <= limit_;
  }

  void drop(All::iterator extent, SimulatedCache& out) {
    used_bytes_ -= tier::file_bytes(extent->first);
    out.evicted_bytes += extent->first.length_bytes;
    if (policy_ == CachePolicy::kLru) used_.erase(extent->second.place);
    held_.erase(extent);
  }

  /// None: in nobody's plan.
  std::optional<std::uint32_t> next_need(const ExtentName& range) const {
    std::optional<std::uint32_t> need;
    for (const auto& plans : plans_) {
      if (plans.empty()) continue;
      need = std::min(need.value_or(PlanEntry::kNever), plans.back().next_need(range));
    }
    return need;
  }

  const std::uint64_t limit_;
  const CachePolicy policy_;
  std::vector<std::vector<Plan>> plans_;  ///< By rank: the last is the one that counts.
  All held_;
  std::list<ExtentName> used_;  ///< kLru: the one used longest ago first.
  std::set<ExtentName> ghosts_;
  std::uint64_t used_bytes_ = 0;
  std::uint64_t lookups_ = 0, pause_ = 0;
  std::int64_t time_ = 0;
};

/// When what was asked for is there: a line and a disk serve reads in the order in which they are
/// made.
class Machine {
 public:
  explicit Machine(const SimulatedMachine& options) : options_(options) {}

  double fetch(double asked_s, std::uint64_t bytes) {
    line_free_ =
        std::max(line_free_, asked_s) + static_cast<double>(bytes) / options_.line_bytes_per_s;
    return line_free_ + options_.first_byte_s;
  }
  double load(double asked_s, std::uint64_t bytes) {
    disk_free_ =
        std::max(disk_free_, asked_s) + static_cast<double>(bytes) / options_.disk_bytes_per_s;
    return disk_free_;
  }

 private:
  const SimulatedMachine options_;
  double line_free_ = 0, disk_free_ = 0;
};

class Replay {
 public:
  Replay(const ReadTrace& trace, std::uint64_t limit_bytes, CachePolicy policy,
         const SimulatedMachine& options)
      : trace_(trace),
        options_(options),
        model_(limit_bytes, policy, trace.ranks.size()),
        machine_(options),
        next_(trace.ranks.size()) {
    std::size_t batches = 0;
    for (const ReadTrace::Rank& rank : trace_.ranks)
      batches = std::max(batches, rank.reads_before.size());
    ready_.resize(batches + 1);
    for (const std::uint64_t count :
         trace_.ranks.empty() ? std::vector<std::uint64_t>{} : trace_.ranks.front().epoch_batches)
      epoch_ends_.push_back((epoch_ends_.empty() ? 0 : epoch_ends_.back()) + count);
    out_.epoch_fetched_bytes.resize(epoch_ends_.size());
  }

  SimulatedCache run() {
    double now = 0;
    std::size_t epoch = 0;
    for (std::size_t batch = 0; batch + 1 < ready_.size(); ++batch) {
      while (epoch + 1 < epoch_ends_.size() && batch >= epoch_ends_[epoch]) ++epoch;
      for (std::size_t rank = 0; rank < trace_.ranks.size(); ++rank)
        replay(rank, batch, epoch, now);
      const double stall = std::max(0.0, ready_[batch] - now);
      out_.stall_s += stall;
      now += stall + options_.step_s;
    }
    out_.run_s = now;
    return out_;
  }

 private:
  /// The reads that a rank makes before it takes `batch`, from the moment on when it took the one
  /// before.
  void replay(std::size_t number, std::size_t batch, std::size_t epoch, double now) {
    const ReadTrace::Rank& rank = trace_.ranks[number];
    if (batch >= rank.reads_before.size()) return;
    Next& next = next_[number];
    for (; next.read < rank.reads_before[batch]; ++next.read) {
      while (next.plan < rank.plans.size() && rank.plans[next.plan].since <= next.read)
        model_.set_plan(number, rank.plans[next.plan++]);
      const ReadTrace::Read& read = rank.reads[next.read];
      const ExtentName range = name_of(read.object, read.offset_bytes, read.length_bytes);
      double there = 0;
      if (read.is_cached && model_.read(number, range, out_)) {
        out_.hit_bytes += read.length_bytes;
        there = machine_.load(now, read.length_bytes);
      } else {
        out_.fetched_bytes += read.length_bytes;
        out_.epoch_fetched_bytes[epoch] += read.length_bytes;
        there = machine_.fetch(now, read.length_bytes);
      }
      const std::size_t need = std::clamp<std::uint64_t>(
          read.need, batch, static_cast<std::uint64_t>(ready_.size() - 1));
      ready_[need] = std::max(ready_[need], there);
    }
  }

  struct Next {
    std::size_t read = 0, plan = 0;
  };
  const ReadTrace& trace_;
  const SimulatedMachine options_;
  Model model_;
  Machine machine_;
  std::vector<Next> next_;
  std::vector<double> ready_;  ///< By batch: when its reads are there.
  std::vector<std::uint64_t> epoch_ends_;
  SimulatedCache out_;
};

}  // namespace

SimulatedCache simulate_cache(const ReadTrace& trace, std::uint64_t limit_bytes, CachePolicy policy,
                              const SimulatedMachine& machine) {
  return Replay(trace, limit_bytes, policy, machine).run();
}

}  // namespace headrace
