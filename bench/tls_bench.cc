/// \file
/// What TLS costs the client: the same ranges over http and https through the transfer engine, and
/// AES-GCM of as many bytes by itself, in turns. Prints one JSON line a round; CPU is user + system
/// time of this process.
///
/// Usage: tls_bench --http PORT --https PORT --ca FILE --object PATH --object-mib N [--part BYTES]
///                  [--in-flight N] [--total-mib N] [--rounds N] [--poller auto|uring|epoll]
#include <openssl/evp.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "bench_plain_store.h"

namespace {

using namespace headrace;

double cpu_s() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Plan {
  std::string ca, object;
  std::uint64_t object_bytes = 0, part_bytes = 8 << 20, total_bytes = 2ULL << 30;
  std::size_t in_flight = 16;
  PollerKind poller = PollerKind::kAuto;
};

[[noreturn]] void die(std::string_view why) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(why.size()), why.data());
  std::exit(1);
}

double fetch_s_per_GB(const Plan& plan, std::uint16_t port, bool use_tls) {
  StoreOptions options;
  options.ca_bundle = plan.ca;
  options.max_in_flight = static_cast<std::uint32_t>(plan.in_flight);
  options.is_adaptive = false;
  options.hedge_fraction = 0;
  options.poller = plan.poller;
  const HttpEndpoint endpoint{"127.0.0.1", port, use_tls};
  auto engine = TransferEngine::create(std::make_shared<PlainProtocol>(endpoint, "bkt"), options);
  if (!engine) die(engine.error().message());
  EngineClient client(*engine);
  SlabPool::Options pool_options;
  pool_options.limit_bytes =
      2 * (plan.in_flight + 2) * std::max<std::uint64_t>(plan.part_bytes, 1 << 20);
  auto pool = SlabPool::create(pool_options);
  if (!pool) die(pool.error().message());
  std::vector<Slab> slabs;
  for (std::size_t i = 0; i < plan.in_flight; ++i)
    slabs.push_back(*(*pool)->try_acquire(plan.part_bytes));
  std::vector<Completion> done(plan.in_flight);
  std::uint64_t next = 0;
  const auto run = [&](std::uint64_t total_bytes) {
    std::uint64_t issued = 0;
    std::uint64_t finished = 0;
    while (finished < total_bytes) {
      while (!slabs.empty() && issued < total_bytes) {
        Request request;
        request.key = plan.object;
        request.offset_bytes = next % (plan.object_bytes / plan.part_bytes) * plan.part_bytes;
        request.length_bytes = plan.part_bytes;
        request.slab = std::move(slabs.back());
        slabs.pop_back();
        client.submit({&request, 1});
        ++next;
        issued += plan.part_bytes;
      }
      const std::size_t count = client.wait(done, TimePoint::max());
      for (std::size_t i = 0; i < count; ++i) {
        if (!done[i].status.ok()) die(done[i].status.message());
        finished += done[i].length_bytes;
        slabs.push_back(std::move(done[i].slab));
      }
    }
  };
  run(plan.total_bytes / 8);  // connections, page faults
  const double before = cpu_s();
  run(plan.total_bytes);
  return (cpu_s() - before) / (static_cast<double>(plan.total_bytes) * 1e-9);
}

/// Records of 16 KiB, opened from one buffer that stays in the cache into a slab-sized one.
double aes_s_per_GB(const Plan& plan) {
  constexpr int kRecordBytes = 16384;
  const unsigned char key[16] = {1};
  unsigned char iv[12] = {2};
  std::vector<unsigned char> sealed(kRecordBytes, 3);
  std::vector<unsigned char> out(plan.part_bytes + kRecordBytes);
  EVP_CIPHER_CTX* context = EVP_CIPHER_CTX_new();
  EVP_DecryptInit_ex(context, EVP_aes_128_gcm(), nullptr, key, iv);
  const double before = cpu_s();
  std::uint64_t at = 0;
  for (std::uint64_t done = 0; done < plan.total_bytes; done += kRecordBytes) {
    int bytes = 0;
    ++iv[11];
    EVP_DecryptInit_ex(context, nullptr, nullptr, nullptr, iv);
    EVP_DecryptUpdate(context, out.data() + at, &bytes, sealed.data(), kRecordBytes);
    at = (at + kRecordBytes) % plan.part_bytes;
  }
  EVP_CIPHER_CTX_free(context);
  return (cpu_s() - before) / (static_cast<double>(plan.total_bytes) * 1e-9);
}

}  // namespace

int main(int argc, char** argv) {
  Plan plan;
  std::uint16_t http = 0;
  std::uint16_t https = 0;
  int rounds = 3;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--http") http = static_cast<std::uint16_t>(std::stoul(value));
    if (name == "--https") https = static_cast<std::uint16_t>(std::stoul(value));
    if (name == "--ca") plan.ca = value;
    if (name == "--object") plan.object = value;
    if (name == "--object-mib") plan.object_bytes = std::stoull(value) << 20;
    if (name == "--part") plan.part_bytes = std::stoull(value);
    if (name == "--in-flight") plan.in_flight = std::stoul(value);
    if (name == "--total-mib") plan.total_bytes = std::stoull(value) << 20;
    if (name == "--rounds") rounds = std::stoi(value);
    if (name == "--poller" && value == "epoll") plan.poller = PollerKind::kEpoll;
    if (name == "--poller" && value == "uring") plan.poller = PollerKind::kUring;
  }
  if (http == 0 || https == 0 || plan.object.empty() || plan.object_bytes < plan.part_bytes)
    die("usage: tls_bench --http PORT --https PORT --ca FILE --object PATH --object-mib N ...");
  for (int round = 0; round < rounds; ++round) {
    const double plain = fetch_s_per_GB(plan, http, false);
    const double tls = fetch_s_per_GB(plan, https, true);
    const double aes = aes_s_per_GB(plan);
    std::printf(
        "{\"part_bytes\":%llu,\"plain_cpu_s_per_GB\":%.4f,\"tls_cpu_s_per_GB\":%.4f,"
        "\"aes_gcm_cpu_s_per_GB\":%.4f,\"ratio\":%.3f}\n",
        static_cast<unsigned long long>(plan.part_bytes), plain, tls, aes, tls / (plain + aes));
  }
}
