#pragma once
/// \file
/// The S3 simulator: an S3 server over a directory with seeded, deterministic misbehaviour. A tool
/// for users ("how would my job behave under throttling?") and the default store of tests and of
/// the demo.
///
/// Threads: start() returns after the port is bound; the server runs on its own threads until
/// stop() or destruction.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "headrace/status.h"

namespace headrace {

/// Behaviour beyond a perfect server. Times in milliseconds of wall time, probabilities 0 .. 1 per
/// request.
struct SimBehaviour {
  double first_byte_p50_ms = 0;  ///< Median of a lognormal first-byte time; 0: none.
  double first_byte_p99_ms = 0;  ///< Its 99th percentile; >= p50.
  double slow_first_byte_rate =
      0;  ///< Share of GETs whose first byte comes after slow_first_byte_ms instead.
  double slow_first_byte_ms = 5000;
  double connection_bytes_per_s = 0;  ///< Rate limit of one connection; 0: none.
  double throttle_rate = 0;           ///< Share answered 503 SlowDown.
  double error_rate = 0;              ///< Share answered 500 InternalError.
  double reset_rate = 0;              ///< Share of bodies cut by a TCP reset at a random byte.
  double truncate_rate = 0;           ///< Share of bodies ended early by an orderly close.
};

struct SimOptions {
  std::string directory;  ///< First-level folders are buckets. Must exist.
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;        ///< 0: the system picks one; see SimServer::port().
  std::string profile = "none";  ///< "none", "s3-standard", "s3-express"; the source of their
                                 ///< numbers is in docs/simulator.md.
  std::optional<SimBehaviour> behaviour;  ///< Replaces the profile's.
  std::uint64_t seed = 0;
  std::uint32_t thread_count = 1;
  bool require_signature = true;  ///< Verify SigV4; unsigned requests are 403 AccessDenied.
  std::string access_key = "headrace";
  std::string secret_key = "headrace-secret";
  std::string session_token;  ///< When set, requests must carry it.
  std::string region = "us-east-1";
};

class SimServer {
 public:
  /// Errors: kInvalidArgument (profile, directory), kUnavailable (cannot bind: names address and
  /// reason).
  static Result<std::unique_ptr<SimServer>> start(const SimOptions& options);
  virtual ~SimServer() = default;  ///< stop()
  virtual std::uint16_t port() const noexcept = 0;
  /// "http://127.0.0.1:PORT"
  virtual std::string endpoint() const = 0;
  /// JSON of the statistics endpoint (GET /_headrace/stats): requests by kind and status, bytes,
  /// per object.
  virtual std::string stats_json() const = 0;
  virtual void stop() noexcept = 0;
};

}  // namespace headrace
