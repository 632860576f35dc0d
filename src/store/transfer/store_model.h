#pragma once
/// \file
/// For tests: an object store as a queueing model in virtual time, and a client that keeps it busy
/// under a ConcurrencyControl or a fixed limit. Deterministic by seed; a minute of load takes
/// milliseconds.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "base/random.h"
#include "store/transfer/concurrency_control.h"

namespace headrace::transfer {

struct StoreModel {
  double first_byte_median_s = 0.03;
  double first_byte_sigma = 0.4;         ///< Of the logarithm.
  double connection_bytes_per_s = 85e6;  ///< One connection's share of the network.
  double total_bytes_per_s = 12e9;       ///< All connections together.
  double requests_per_s = 1e9;           ///< Served one after the other: a queue beyond.
  double refused_above_per_s = 1e9;      ///< 503 beyond this rate.
  double refused_share = 0;              ///< 503 whatever the load.
  /// Beyond so many requests in flight the total falls: by `collapse` for each doubling.
  double collapse_above = 1e9;
  double collapse = 0.3;
  double late_share = 0;  ///< First bytes late by 5 s.
};

/// Sizes of the requests and times of demand.
struct Workload {
  std::vector<std::uint64_t> sizes_bytes{8 << 20};  ///< Taken at random.
  std::uint32_t demand = 100'000;                   ///< Requests that the application has at once.
  double on_s = 0, off_s = 0;                       ///< Demand comes and goes; 0: always there.
};

/// Runs the model. `control` null: `fixed_limit`.
class ModelRun {
 public:
  ModelRun(const StoreModel& model, const Workload& work, std::uint64_t seed)
      : model_(model), work_(work), random_(seed) {}

  /// Changes the store while it runs.
  StoreModel& model() { return model_; }
  /// Runs until `until_s` and returns the bytes that arrived meanwhile.
  double run(ConcurrencyControl* control, std::uint32_t fixed_limit, double until_s) {
    const double bytes_before = total_bytes_;
    double next_tick = time_ + kTick_s;
    while (time_ < until_s) {
      limit_ = control != nullptr ? control->limit() : fixed_limit;
      start_requests();
      const double next_answer = answers_.empty() ? 1e18 : answers_.top().time_s;
      const double rate = body_rate();
      const double next_body =
          bodies_.empty() ? 1e18 : time_ + std::max(0.0, bodies_.top().served_at - served_) / rate;
      move_to(std::min({next_answer, next_body, next_tick}), rate);
      if (next_tick <= time_) {
        if (control != nullptr) control->add(std::exchange(sample_, {}), at(time_));
        next_tick = time_ + kTick_s;
      } else if (next_answer <= next_body) {
        on_answer();
      } else {
        on_body();
      }
    }
    return total_bytes_ - bytes_before;
  }
  static TimePoint at(double time_s) {
    return TimePoint(std::chrono::nanoseconds(static_cast<std::int64_t>(time_s * 1e9) +
                                              std::int64_t{3'600'000'000'000}));
  }
  double time_s() const { return time_; }
  std::uint32_t in_flight() const { return in_flight_; }
  std::uint64_t refused() const { return refused_; }

 private:
  static constexpr double kTick_s = 0.005;
  struct Answer {
    double time_s, sent_s;
    double bytes;
    bool is_refusal;
    bool operator<(const Answer& other) const { return time_s > other.time_s; }
  };
  struct Body {
    double served_at;  // bytes per connection served since the start of all
    double sent_s, first_byte_s;
    double bytes;
    bool operator<(const Body& other) const { return served_at > other.served_at; }
  };

  bool has_demand() const {
    if (work_.on_s == 0) return in_flight_ < work_.demand;
    const double phase = std::fmod(time_, work_.on_s + work_.off_s);
    return phase < work_.on_s && in_flight_ < work_.demand;
  }
  double gauss() {
    const double u = std::max(random_.unit(), 1e-12);
    return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * random_.unit());
  }
  double body_rate() const {
    double total = model_.total_bytes_per_s;
    if (in_flight_ > model_.collapse_above)
      total *= std::pow(1 - model_.collapse, std::log2(in_flight_ / model_.collapse_above));
    return std::min(model_.connection_bytes_per_s,
                    total / std::max<double>(1, static_cast<double>(bodies_.size())));
  }
  bool is_used() const { return in_flight_ * 4 >= limit_ * 3; }
  void move_to(double when, double rate) {
    const double elapsed = when - time_;
    if (is_used()) {
      sample_.used_s += elapsed;
      sample_.in_flight_s += elapsed * in_flight_;
    }
    served_ += rate * elapsed;
    tokens_ =
        std::min(model_.refused_above_per_s * 0.1, tokens_ + elapsed * model_.refused_above_per_s);
    time_ = when;
  }
  void start_requests() {
    while (in_flight_ < limit_ && has_demand()) {
      ++in_flight_;
      bool is_refusal = random_.unit() < model_.refused_share;
      if (tokens_ < 1) {
        is_refusal = true;
      } else {
        tokens_ -= 1;
      }
      double wait = model_.first_byte_median_s * std::exp(model_.first_byte_sigma * gauss());
      if (random_.unit() < model_.late_share) wait += 5;
      free_at_ = std::max(free_at_, time_) + 1 / model_.requests_per_s;
      const auto bytes =
          static_cast<double>(work_.sizes_bytes[random_.below(work_.sizes_bytes.size())]);
      answers_.push({free_at_ + wait, time_, bytes, is_refusal});
    }
  }
  void on_answer() {
    const Answer answer = answers_.top();
    answers_.pop();
    ++sample_.attempts;
    if (answer.is_refusal) {
      ++sample_.throttles;
      ++refused_;
      --in_flight_;
      return;
    }
    bodies_.push({served_ + answer.bytes, answer.sent_s, time_, answer.bytes});
  }
  void on_body() {
    const Body body = bodies_.top();
    bodies_.pop();
    if (is_used()) {
      const double took = time_ - body.sent_s;
      ++sample_.completions;
      sample_.bytes += static_cast<std::uint64_t>(body.bytes);
      sample_.busy_s += took;
      sample_.byte_seconds += body.bytes * took;
      sample_.first_byte_s += body.first_byte_s - body.sent_s;
    }
    total_bytes_ += body.bytes;
    --in_flight_;
  }

  StoreModel model_;
  const Workload work_;
  Random random_;
  ControlSample sample_;
  double time_ = 0;
  double served_ = 0;
  double free_at_ = 0;
  double tokens_ = 100;
  double total_bytes_ = 0;
  std::uint32_t limit_ = 0;
  std::uint32_t in_flight_ = 0;
  std::uint64_t refused_ = 0;
  std::priority_queue<Answer> answers_;
  std::priority_queue<Body> bodies_;
};

}  // namespace headrace::transfer
