#include "store/transfer/endpoint_control.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "insight/counter.h"

namespace headrace::transfer {
namespace {

// Looking at all slots of the node's file costs some microseconds.
constexpr std::chrono::milliseconds kExchangeEvery{10};

void add_to(ControlSample& sum, const ControlSample& sample) {
  sum.completions += sample.completions;
  sum.bytes += sample.bytes;
  sum.busy_s += sample.busy_s;
  sum.byte_seconds += sample.byte_seconds;
  sum.first_byte_s += sample.first_byte_s;
  sum.attempts += sample.attempts;
  sum.throttles += sample.throttles;
  sum.in_flight_s += sample.in_flight_s;
}

}  // namespace

EndpointControl::EndpointControl(const Options& options, TimePoint now)
    : options_(options),
      limit_(options.law.ceiling),
      control_(options.law, now),
      demands_(options.reactor_count),
      updated_at_(now) {
  if (!options.is_adaptive) return;
  limit_.store(control_.limit(), std::memory_order_relaxed);
  if (options.directory.empty()) return;
  auto node = NodeShare::open(options.directory, options.endpoint, options.id);
  if (node) {
    node_ = *std::move(node);
  } else {
    sharing_failures_.store(1, std::memory_order_relaxed);
  }
}

void EndpointControl::report(std::size_t reactor_index, const ControlSample& sample,
                             std::uint32_t in_flight, bool wants_more, TimePoint now) {
  MutexLock lock(mutex_);
  add_to(sum_, sample);
  // Reactors use their shares at the same time; what each adds is one reactor's part of it.
  sum_.used_s += sample.used_s / static_cast<double>(options_.reactor_count);
  // Room to grow for who has all that it wants just now.
  demands_[reactor_index] = wants_more ? options_.law.ceiling : in_flight + in_flight / 2 + 4;
  if (now - updated_at_ >= (node_ ? kExchangeEvery : kReportEvery)) update(now);
}

void EndpointControl::update(TimePoint now) {
  updated_at_ = now;
  ControlSample sample = std::exchange(sum_, ControlSample{});
  std::uint32_t limit = 0;
  NodeShare::View view;
  if (node_) {
    const std::uint64_t demand =
        std::accumulate(demands_.begin(), demands_.end(), std::uint64_t{0});
    view = node_->exchange(
        sample, static_cast<std::uint32_t>(std::min<std::uint64_t>(demand, options_.law.ceiling)),
        now);
    if (was_shared_ && !view.is_shared) sharing_failures_.fetch_add(1, std::memory_order_relaxed);
    was_shared_ = view.is_shared;
  }
  if (view.is_shared && view.is_leader) sample = view.sample;
  if (!view.is_shared || view.is_leader || view.node_limit == 0) {
    control_.add(sample, now);
    limit = control_.limit();
    if (view.is_leader) node_->publish_limit(limit);
  } else {
    control_.adopt(view.node_limit, now);
    limit = std::min(view.node_limit, options_.law.ceiling);
  }
  if (view.is_shared && view.process_count > 1) limit = std::max(1U, node_->share_of(limit));
  limit_.store(limit, std::memory_order_relaxed);
  goodput_.store(control_.goodput(), std::memory_order_relaxed);
  process_count_.store(view.process_count, std::memory_order_relaxed);
}

void EndpointControl::append_metrics(MetricList& out) const {
  append_gauge(out, "store.concurrency_limit", "requests",
               static_cast<double>(limit_.load(std::memory_order_relaxed)));
  append_gauge(out, "store.goodput_bytes_per_second", "bytes/s",
               goodput_.load(std::memory_order_relaxed));
  append_gauge(out, "store.sharing_processes", "processes",
               static_cast<double>(process_count_.load(std::memory_order_relaxed)));
  append_counter(out, "store.sharing_failures", "events",
                 sharing_failures_.load(std::memory_order_relaxed));
}

}  // namespace headrace::transfer
