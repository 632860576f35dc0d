#include "store/transfer/endpoint_control.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>

#include "base/temporary_directory.h"

namespace headrace::transfer {
namespace {

using namespace std::chrono_literals;

const TimePoint kNow{1h};

EndpointControl::Options options_of(std::uint64_t id, const std::string& directory = {}) {
  EndpointControl::Options options;
  options.endpoint = "store:80";
  options.id = id;
  options.directory = directory;
  return options;
}

/// 5 ms at full use of `limit`, 10 ms a request.
ControlSample busy(std::uint32_t limit) {
  ControlSample sample;
  sample.completions = limit / 2 + 1;
  sample.bytes = sample.completions << 20;
  sample.busy_s = 0.01 * static_cast<double>(sample.completions);
  sample.byte_seconds = 0.01 * static_cast<double>(sample.bytes);
  sample.first_byte_s = sample.busy_s / 2;
  sample.attempts = sample.completions;
  sample.used_s = 0.005;
  sample.in_flight_s = 0.005 * limit;
  return sample;
}

double metric(const EndpointControl& control, const std::string& name) {
  MetricList metrics;
  control.append_metrics(metrics);
  for (const Metric& entry : metrics) {
    if (entry.name == name) return entry.value;
  }
  ADD_FAILURE() << name;
  return -1;
}

/// Reports of full use by the first reactor of each, 5 ms apart.
void keep_busy(std::initializer_list<EndpointControl*> controls, int times) {
  for (int i = 1; i <= times; ++i) {
    for (EndpointControl* control : controls)
      control->report(0, busy(control->share(0)), control->share(0), true, kNow + i * 5ms);
  }
}

TEST(EndpointControl, NotAdaptiveIsTheCeiling) {
  EndpointControl::Options options = options_of(1);
  options.is_adaptive = false;
  options.law.ceiling = 10;
  options.reactor_count = 4;
  const EndpointControl control(options, kNow);
  EXPECT_EQ(control.share(0), 3U);
  EXPECT_EQ(control.share(1), 3U);
  EXPECT_EQ(control.share(2), 2U);
  EXPECT_EQ(control.share(3), 2U);
}

TEST(EndpointControl, EachReactorMayAlwaysSendOne) {
  EndpointControl::Options options = options_of(1);
  options.law.initial = 2;
  options.reactor_count = 4;
  const EndpointControl control(options, kNow);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(control.share(i), 1U);
}

TEST(EndpointControl, GrowsWithWhatItsReactorsReport) {
  EndpointControl::Options options = options_of(1);
  options.reactor_count = 2;
  EndpointControl control(options, kNow);
  EXPECT_EQ(control.share(0), 4U);
  for (int i = 1; i <= 200; ++i) {
    for (std::size_t r = 0; r < 2; ++r)
      control.report(r, busy(control.share(r)), control.share(r), true, kNow + i * 5ms);
  }
  EXPECT_GE(control.share(0), 32U);
  EXPECT_GE(metric(control, "store.concurrency_limit"), 64);
  EXPECT_GT(metric(control, "store.goodput_bytes_per_second"), 0);
}

TEST(EndpointControl, ProcessesOfANodeShareOneLimit) {
  const TemporaryDirectory directory;
  EndpointControl a(options_of(1, directory.path()), kNow);
  EndpointControl b(options_of(2, directory.path()), kNow);
  keep_busy({&a, &b}, 400);
  EXPECT_EQ(metric(a, "store.sharing_processes"), 2);
  EXPECT_NEAR(a.share(0), b.share(0), a.share(0) / 3.0 + 1);
  EXPECT_LE(a.share(0) + b.share(0), 2 * 128U);
  // One ends: the other has all of it.
  const std::uint32_t before = a.share(0);
  for (int i = 1; i <= 10; ++i)
    a.report(0, busy(a.share(0)), a.share(0), true, kNow + 2s + kShareTimeout + i * 10ms);
  EXPECT_EQ(metric(a, "store.sharing_processes"), 1);
  EXPECT_GE(a.share(0), before * 3 / 2);
}

TEST(EndpointControl, ThrottlingOfOneProcessIsSeenByAll) {
  const TemporaryDirectory directory;
  EndpointControl a(options_of(1, directory.path()), kNow);
  EndpointControl b(options_of(2, directory.path()), kNow);
  keep_busy({&a, &b}, 400);
  const std::uint32_t before = a.share(0);
  std::uint32_t least = before;
  for (int i = 1; i <= 100; ++i) {
    ControlSample refused;
    refused.attempts = refused.throttles = 40;
    b.report(0, refused, b.share(0), true, kNow + 2s + i * 5ms);
    a.report(0, busy(a.share(0)), a.share(0), true, kNow + 2s + i * 5ms);
    least = std::min(least, a.share(0));
  }
  EXPECT_LT(least, before * 9 / 10);
}

TEST(EndpointControl, AFileThatIsCutOffIsCountedAndGoneAlone) {
  const TemporaryDirectory directory;
  EndpointControl control(options_of(1, directory.path()), kNow);
  const auto work = [&](TimePoint now) { control.report(0, busy(1), 1, true, now); };
  work(kNow + 10ms);
  EXPECT_EQ(metric(control, "store.sharing_failures"), 0);
  std::filesystem::resize_file(NodeShare::path_in(directory.path()), 0);
  for (int i = 2; i < 10; ++i) work(kNow + i * 10ms);
  EXPECT_EQ(metric(control, "store.sharing_failures"), 1);
  EXPECT_EQ(metric(control, "store.sharing_processes"), 1);
  EXPECT_GE(control.share(0), 1U);
}

TEST(EndpointControl, UnusableDirectoryIsCountedAndGoneAlone) {
  const TemporaryDirectory directory;
  std::ofstream(directory.path() + "/file") << "x";
  const EndpointControl control(options_of(1, directory.path() + "/file"), kNow);
  EXPECT_EQ(metric(control, "store.sharing_failures"), 1);
  EXPECT_EQ(control.share(0), 8U);
}

}  // namespace
}  // namespace headrace::transfer
