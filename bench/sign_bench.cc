/// \file
/// Signing: CPU time to build and sign the head of one ranged GET, as the engine does it for each
/// request. Prints one JSON line.
///
/// Usage: sign_bench [COUNT]
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "auth/credentials.h"
#include "auth/sigv4.h"
#include "store/s3/s3_protocol.h"

namespace {

using namespace headrace;

double cpu_s() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

}  // namespace

int main(int argc, char** argv) {
  const long count = argc > 1 ? std::atol(argv[1]) : 1'000'000;
  s3::S3Config config;
  config.bucket = "bucket";
  config.root_url = "s3://bucket";
  config.host_field = "bucket.s3.eu-central-1.amazonaws.com";
  config.region = "eu-central-1";
  config.credentials = auth::static_credentials(
      {"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "a-session-token", {}});
  auto protocol = s3::S3Protocol::create(std::move(config));
  if (!protocol) return 1;
  std::string head;
  std::string key;
  Request request;
  request.length_bytes = 65'536;
  const std::chrono::sys_seconds now{std::chrono::seconds(1'790'000'000)};
  const double started = cpu_s();
  for (long i = 0; i < count; ++i) {
    key = "dataset/shard." + std::to_string(10'000 + i % 10'000) + ".mds";
    request.key = key;
    request.offset_bytes = static_cast<std::uint64_t>(i % 1000) * 65'536;
    head.clear();
    if (!(*protocol)->append_head(request, HeadContext{now, nullptr}, head).ok()) return 1;
  }
  std::printf("{\"requests\": %ld, \"us_per_request\": %.3f}\n", count,
              (cpu_s() - started) / static_cast<double>(count) * 1e6);
}
