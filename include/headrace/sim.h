#pragma once
/// \file
/// The object store simulator: a server over a directory that speaks S3 (S3 Express, Google Cloud
/// Storage) with seeded, deterministic misbehaviour. A tool for users ("how would my job behave
/// under throttling?") and the default store of tests and of the demo.
///
/// Threads: start() returns after the port is bound; the server runs on its own threads until
/// stop() or destruction. Every member of SimServer may be called from any thread.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/status.h"

namespace headrace {

/// Behaviour beyond a perfect server. Times in milliseconds, rates ("_rate") are probabilities 0 ..
/// 1 per request, 0 switches a thing off. docs/simulator.md explains each and gives sources.
struct SimBehaviour {
  // First byte: lognormal by median and 99th percentile, and a rare slow mode.
  double first_byte_p50_ms = 0;  ///< Of GETs, and of the rest where that has no numbers of its own.
  double first_byte_p99_ms = 0;  ///< >= p50.
  double metadata_p50_ms = 0;    ///< Of HEAD, listings, deletes and the like.
  double metadata_p99_ms = 0;
  double put_p50_ms = 0;  ///< Of acknowledgements of uploads, from the last byte of the body.
  double put_p99_ms = 0;
  double slow_first_byte_rate = 0;  ///< Share of GETs that start after slow_first_byte_ms instead.
  double slow_first_byte_ms = 5000;
  double slow_put_rate = 0;  ///< Share of uploads acknowledged after slow_put_ms instead.
  double slow_put_ms = 5000;

  // Bandwidth, bytes per second; 0: none, else >= 1024.
  double connection_bytes_per_s = 0;
  double part_bytes_per_s = 0;   ///< Of all readers of one part of one object together.
  double part_bytes = 8 << 20;   ///< Length of such a part.
  double total_bytes_per_s = 0;  ///< Of the server.
  /// Over-concurrency. With n transfers in progress the server gives total_bytes_per_s, but at most
  /// total / knee_transfers to each: goodput grows up to the knee and then stays. Beyond
  /// collapse_transfers it falls as total * (collapse_transfers / n) ^ collapse_exponent, down to
  /// total * collapse_floor. No errors.
  double knee_transfers = 0;
  double collapse_transfers = 0;
  double collapse_exponent = 1;
  double collapse_floor = 0.1;

  // Request limits of a partitioned prefix, which is at first the bucket.
  double read_requests_per_s = 0;   ///< GET and HEAD.
  double write_requests_per_s = 0;  ///< The others.
  double partition_after_ms = 0;    ///< A prefix over its limit for that long is split; 0: never.
  double ramp_period_ms = 0;  ///< Limits used at more than half double, once in such a time at
                              ///< most; 0: they stay.
  double limit_status = 503;  ///< 503 SlowDown or 429 TooManyRequests.

  // Refusals.
  double throttle_rate = 0;         ///< Share answered 503 SlowDown.
  double too_many_rate = 0;         ///< Share answered 429 TooManyRequests.
  double error_rate = 0;            ///< Share answered 500 InternalError.
  double request_timeout_rate = 0;  ///< Share answered 400 RequestTimeout, connection closed.
  double drop_rate = 0;             ///< Share whose connection is reset instead of an answer.
  double error_in_body_rate = 0;    ///< Share of copies and completions answered 200 with <Error>.

  // Bodies of GETs. At most one of these happens to a body, in this order of precedence.
  double reset_rate = 0;     ///< Share of bodies cut by a TCP reset at a random byte.
  double truncate_rate = 0;  ///< Share of bodies ended early by an orderly close.
  double stall_rate = 0;     ///< Share that stops at a random byte for stall_ms.
  double stall_ms = 60'000;
  double corrupt_rate = 0;  ///< Share with one bit flipped at a random byte.
  double drip_rate = 0;     ///< Share sent at drip_bytes_per_s. Besides the above.
  double drip_bytes_per_s = 16'384;

  // Heads of GETs.
  double wrong_range_rate = 0;     ///< Content-Range of the next byte range.
  double missing_range_rate = 0;   ///< 206 without Content-Range.
  double missing_etag_rate = 0;    ///< No ETag.
  double changed_etag_rate = 0;    ///< As if the object had been replaced: another ETag, or 412.
  double wrong_checksum_rate = 0;  ///< The checksum in the head is not the body's.
  double shuffle_listings = 0;     ///< 1: listings are not in order, as directory buckets'.

  // Connections and time.
  double idle_close_ms = 0;         ///< Idle connections are closed after that.
  double close_after_requests = 0;  ///< "Connection: close" with the answer to that request.
  double session_ms = 300'000;      ///< Life of a session of CreateSession.
  double clock_skew_ms = 0;         ///< The server's wall clock is that much ahead; may be < 0.
};

/// What one listening address does.
struct SimAddress {
  enum class State : std::uint8_t {
    kUp,
    kRefuse,     ///< Connections are refused, present ones reset.
    kBlackhole,  ///< SYNs are dropped, present connections go mute.
    kMute,       ///< Connections are accepted and never answered.
  };
  State state = State::kUp;
  double delay_ms = 0;                ///< Added to each first byte.
  double slow_factor = 1;             ///< Times each first byte; divides connection_bytes_per_s.
  double connection_bytes_per_s = 0;  ///< Limit of this address's connections; 0: none.
};

struct SimOptions {
  std::string directory;  ///< First-level folders are buckets. Must exist.
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;                 ///< 0: the system picks one; see SimServer::port().
  std::string profile = "none";           ///< One of sim_profile_names().
  std::optional<SimBehaviour> behaviour;  ///< Replaces the profile's.
  std::uint64_t seed = 0;
  std::uint32_t thread_count = 1;
  bool require_signature = true;  ///< Verify SigV4; unsigned requests are 403 AccessDenied.
  std::string access_key = "headrace";
  std::string secret_key = "headrace-secret";
  std::string session_token;  ///< When set, requests must carry it.
  std::string region = "us-east-1";
  /// Accepted as "Authorization: Bearer ..." by Google's XML API; also what the token endpoints
  /// hand out. Empty: such requests are refused.
  std::string bearer_token;
  /// Addresses listened on: host, and the following ones (127.0.0.1, 127.0.0.2, ...), all with the
  /// same port. More than 1 needs a loopback IPv4 host. 1 .. 64.
  std::uint32_t address_count = 1;
  bool tls = false;              ///< Serve https; a certificate_path says so, too.
  std::string certificate_path;  ///< PEM of the chain; empty: one made at start, see ca_path().
  std::string private_key_path;  ///< PEM, of certificate_path.
  /// Reads are answered 307 with a Location at the next address (as AIStore's proxies do); an
  /// address > 0 serves. Needs address_count >= 2.
  bool redirect_reads = false;
  bool count_repeats = false;  ///< Count repeated ranges also while the behaviour is perfect.
};

class SimServer {
 public:
  /// Errors: kInvalidArgument (profile, directory, certificate, numbers), kUnavailable (cannot
  /// bind: names address and reason).
  static Result<std::unique_ptr<SimServer>> start(const SimOptions& options);
  virtual ~SimServer() = default;  ///< stop()
  virtual std::uint16_t port() const noexcept = 0;
  /// "http://127.0.0.1:PORT"
  virtual std::string endpoint() const = 0;
  /// "127.0.0.1:PORT", "127.0.0.2:PORT", ... One name may be made to resolve to all of them.
  virtual std::vector<std::string> addresses() const = 0;
  /// PEM of the certificate that a client must trust; empty without TLS.
  virtual std::string ca_path() const = 0;
  /// JSON of the statistics endpoint (GET /_headrace/stats): requests by kind and status, bytes,
  /// per object.
  virtual std::string stats_json() const = 0;

  /// From the next request on. Errors: kInvalidArgument.
  virtual Status set_behaviour(const SimBehaviour& behaviour) = 0;
  virtual SimBehaviour behaviour() const = 0;
  /// Errors: kInvalidArgument (index, numbers), kUnavailable (cannot bind again).
  virtual Status set_address(std::size_t index, const SimAddress& address) = 0;
  /// Moves the simulator's clock ahead: whatever waits, expires, refills or grows with time does so
  /// at once. The wall clock of signatures stays.
  virtual void advance(std::chrono::milliseconds by) = 0;
  /// Requests with the present session token, and present Express sessions, are answered
  /// ExpiredToken from now on.
  virtual void expire_credentials() = 0;
  /// Gives the object a new version (ETag, Last-Modified) with the same bytes. Errors: kNotFound.
  virtual Status touch(std::string_view bucket, std::string_view key) = 0;
  virtual void stop() noexcept = 0;
};

/// "none", "s3-standard", ... Their numbers: docs/simulator.md.
std::vector<std::string> sim_profile_names();

/// `base` changed by a JSON object: "profile" first, then fields by their names. Errors:
/// kInvalidArgument for malformed JSON, unknown or ill-typed fields and impossible numbers.
Result<SimBehaviour> sim_behaviour_from_json(std::string_view json, const SimBehaviour& base = {});

}  // namespace headrace
