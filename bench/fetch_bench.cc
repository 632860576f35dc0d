/// \file
/// Range GETs through the public Store interface: what `fetch_floor` does, as a user of the library
/// does it. Prints one JSON line; CPU is user + system time of this process.
///
/// Usage: fetch_bench --url s3://bkt --endpoint http://127.0.0.1:9100 --part BYTES --in-flight N
/// --total-mib M
///                    [--ahead N] [--pattern sequential|random] [--poller auto|uring|epoll]
///                    [--reactors N] [--key obj%d.bin]
///                    [--objects 4] [--object-mib 256] [--plain 1]
/// Credentials come from the environment (AWS_ACCESS_KEY_ID, ...); without any, requests are not
/// signed.
/// --ahead: requests submitted beyond --in-flight, so that a finished one is followed by the next
/// without a wake-up.
/// --plain 1: unsigned requests straight to the transfer engine, to tell its cost from that of the
/// S3 driver.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "bench_common.h"
#include "bench_plain_store.h"
#include "bench_result.h"
#include "headrace/store.h"

namespace {

using namespace headrace;
using bench::die;

struct Plan {
  std::size_t in_flight = 16;
  std::size_t ahead = 16;
  std::uint64_t total_bytes = 0;
  bench::FetchPattern pattern;
  std::vector<std::string> keys;
};

/// Submits `count` requests with the slabs at the end of `slabs`.
class Fetcher {
 public:
  Fetcher(FetchClient& client, Plan& plan)
      : client_(client), plan_(plan), completions_(plan.in_flight + plan.ahead) {}

  void add(Slab slab) {
    const auto [object, offset_bytes] = plan_.pattern.next();
    Request request;
    request.key = plan_.keys[object];
    request.offset_bytes = offset_bytes;
    request.length_bytes = plan_.pattern.part_bytes;
    request.slab = std::move(slab);
    requests_.push_back(std::move(request));
  }

  void run(std::uint64_t total_bytes) {
    std::uint64_t issued_bytes = requests_.size() * plan_.pattern.part_bytes;
    done_bytes_ = 0;
    submit();
    while (done_bytes_ < total_bytes) {
      const std::size_t count = client_.wait(completions_, TimePoint::max());
      for (std::size_t i = 0; i < count; ++i) {
        Completion& completion = completions_[i];
        if (!completion.status.ok()) die(completion.status);
        done_bytes_ += completion.length_bytes;
        if (issued_bytes < total_bytes) {
          add(std::move(completion.slab));
          issued_bytes += plan_.pattern.part_bytes;
        } else {
          spare.push_back(std::move(completion.slab));
        }
      }
      submit();
    }
  }

  std::uint64_t done_bytes() const { return done_bytes_; }
  std::vector<Slab> spare;

 private:
  void submit() {
    if (requests_.empty()) return;
    if (client_.submit(requests_) != requests_.size())
      die(Status(Code::kInternal, "submit() took fewer requests"));
    requests_.clear();
  }

  FetchClient& client_;
  Plan& plan_;
  std::vector<Request> requests_;
  std::vector<Completion> completions_;
  std::uint64_t done_bytes_ = 0;
};

void run(FetchClient& client, Plan& plan, const std::string& name) {
  const std::size_t slab_count = plan.in_flight + plan.ahead;
  SlabPool::Options pool_options;
  pool_options.limit_bytes =
      slab_count * SlabPool::charged_bytes(plan.pattern.part_bytes) + (1 << 20);
  auto pool = SlabPool::create(pool_options);
  if (!pool) die(pool.error());
  Fetcher fetcher(client, plan);
  for (std::size_t i = 0; i < slab_count; ++i) {
    auto slab = (*pool)->try_acquire(plan.pattern.part_bytes);
    if (!slab) die(slab.error());
    std::memset((*slab).bytes().data(), 0, (*slab).bytes().size());
    fetcher.spare.push_back(*std::move(slab));
  }
  const auto fill = [&] {
    for (Slab& slab : fetcher.spare) fetcher.add(std::move(slab));
    fetcher.spare.clear();
  };
  // First the connections, then the measurement.
  fill();
  fetcher.run(slab_count * plan.pattern.part_bytes);
  fill();
  bench::FetchReport report(name, plan.pattern.part_bytes, plan.in_flight);
  report.start();
  fetcher.run(plan.total_bytes);
  report.stop(fetcher.done_bytes());
  report.print();
}

}  // namespace

int main(int argc, char** argv) {
  bench::Arguments arguments(argc, argv);
  StoreOptions options;
  options.url = "s3://bkt";
  options.endpoint = "http://127.0.0.1:9100";
  Plan plan;
  std::string poller = "auto";
  std::string key = "obj%d.bin";
  std::uint64_t total_mib = 4096;
  int plain = 0;
  bool show_metrics = false;
  arguments.take("--url", options.url);
  arguments.take("--endpoint", options.endpoint);
  arguments.take("--in-flight", plan.in_flight);
  plan.ahead = plan.in_flight;
  arguments.take("--ahead", plan.ahead);
  arguments.take("--total-mib", total_mib);
  arguments.take("--poller", poller);
  arguments.take("--reactors", options.reactor_count);
  arguments.take("--key", key);
  arguments.take("--plain", plain);
  arguments.take("--metrics", show_metrics);
  plan.pattern.take(arguments);
  if (!arguments.all_taken()) return 2;
  plan.total_bytes = total_mib << 20;
  for (std::uint64_t i = 0; i < plan.pattern.object_count; ++i) {
    std::string name = key;
    if (const auto at = name.find("%d"); at != std::string::npos)
      name.replace(at, 2, std::to_string(i));
    plan.keys.push_back(name);
  }
  options.poller = poller == "uring"   ? PollerKind::kUring
                   : poller == "epoll" ? PollerKind::kEpoll
                                       : PollerKind::kAuto;
  options.max_in_flight = static_cast<std::uint32_t>(plan.in_flight);
  const Environment environment = bench::environment();
  options.anonymous = environment.get("AWS_ACCESS_KEY_ID").empty();
  auto client = plain != 0 ? open_plain(options) : open_public(options, environment);
  if (!client) die(client.error());
  run(**client, plan, std::string(plain != 0 ? "engine-" : "store-") + poller);
  if (show_metrics) {
    MetricList metrics;
    (*client)->append_metrics(metrics);
    for (const Metric& metric : metrics)
      std::printf("%s %.0f\n", metric.name.c_str(), metric.value);
  }
  return 0;
}
