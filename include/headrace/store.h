#pragma once
/// \file
/// Store: many range reads and writes in flight against one place that holds objects (S3, a
/// directory, memory, a wrapper).
///
/// Contract of every store and tier: each request that submit() accepts yields exactly one
/// Completion (data, error, cancelled, stopped), before its deadline. The slab travels with it:
/// caller -> Request -> store -> Completion; in between the store owns the bytes and nobody else
/// may look at them. A store never calls the caller's code.
///
/// Place: feed/ and bindings above; nothing above this line knows what HTTP is, nothing below knows
/// what a sample is.
///
/// Threads: submit(), cancel(), wake(), stop() and the control-plane functions from any thread;
/// wait() from one thread at a time per handle. new_handle() gives another consumer its own
/// completion queue over the same connections.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/clock.h"
#include "headrace/environment.h"
#include "headrace/memory.h"
#include "headrace/metrics.h"
#include "headrace/object_settings.h"
#include "headrace/status.h"

namespace headrace {

enum class Op : std::uint8_t {
  kGet,      ///< Reads [offset, offset + length) of the object into the slab.
  kHead,     ///< Asks for Completion::object_checksum and the version; moves no bytes. Only where
             ///< StoreTraits::object_sums is kHead, elsewhere kUnsupported.
  kPut,      ///< Writes the whole object from the slab.
  kPutPart,  ///< Writes one part of the multipart upload `upload_id` from the slab.
};

/// One transfer. The text that the views point to must stay valid until the completion has been
/// taken.
struct Request {
  Op op = Op::kGet;
  /// Key relative to the store's root URL; UTF-8, not escaped. Not empty.
  std::string_view key;
  /// kGet, kHead, kPut: the version expected (If-Match), as reported by ObjectInfo::etag, quotes
  /// included. Another version is kChanged. Empty: any.
  std::string_view etag;
  /// kPut: fail with kChanged when the object exists (If-None-Match: *). When the answer to an
  /// earlier attempt was lost, the object may be this request's own: the message then says so, and
  /// head() tells.
  bool if_absent = false;
  /// kGet: the object may end before offset + length; Completion::length_bytes says how much came.
  /// Without it a shorter object is kCorrupt.
  bool allow_short = false;
  /// Over a connection of its own, never one that was used before: for reading bytes again that did
  /// not match what is known of them. Stores without connections ignore it.
  bool fresh_connection = false;
  bool wants_details = false;  ///< kGet, kHead: Completion::details. Not served by caches.
  /// kPut: over StoreOptions::settings, field by field; must stay valid as the views must. nullptr:
  /// those alone. A store that cannot keep one of them completes with kUnsupported.
  const ObjectSettings* settings = nullptr;
  /// kGet, kHead: this version instead of the newest, as ObjectDetails::version_id tells. Not
  /// served by caches; kUnsupported where there are no versions.
  std::string_view version_id;
  std::uint64_t offset_bytes = 0;  ///< kGet: first byte to read.
  std::uint64_t length_bytes = 0;  ///< Bytes to move, > 0 for kGet (0 is allowed for kPut), <= slab
                                   ///< size - slab_offset_bytes.
  std::size_t slab_offset_bytes = 0;  ///< Where in the slab the bytes start.
  Slab slab;  ///< Destination (kGet) or source (kPut, kPutPart). May be empty when length is 0.
  std::string_view upload_id;             ///< kPutPart: from create_upload().
  std::uint32_t part_number = 0;          ///< kPutPart: 1 .. 10000.
  TimePoint deadline = TimePoint::max();  ///< Absolute; covers all attempts and back-off. max():
                                          ///< the store's default_timeout.
  std::uint64_t tag = 0;                  ///< Handed back untouched; also the argument of cancel().
};

/// Checksums that stores keep with objects and answers carry. Values as in S3's
/// x-amz-checksum-* fields: base64 of the big-endian sum.
enum class ChecksumKind : std::uint8_t { kNone, kCrc32c, kCrc64Nvme };

/// A sum of some bytes; kNone: not known.
struct Checksum {
  ChecksumKind kind = ChecksumKind::kNone;
  std::uint64_t value = 0;  ///< kCrc32c: in the lower 32 bits.
};

/// The one outcome of a request.
struct Completion {
  std::uint64_t tag = 0;
  /// ok, or kCancelled kDeadline kInvalidArgument kNotFound kDenied kChanged kUnavailable
  /// kThrottled kExhausted kCorrupt kUnsupported kInternal. The message names operation, object,
  /// range, attempt and time.
  Status status;
  Slab slab;  ///< Always the request's slab; on error its contents are unspecified.
  std::uint64_t length_bytes = 0;  ///< Bytes moved (kGet: from slab_offset_bytes on).
  std::uint64_t object_size_bytes =
      0;             ///< kGet, kHead: size of the whole object when the store told it, else 0.
  std::string etag;  ///< Version read or written. Left empty for a kGet or kHead with Request::etag
                     ///< set (it is that one).
  /// Of the whole object in this version, where the store told it: StoreTraits::object_sums.
  Checksum object_checksum;
  /// Request::wants_details, where the store tells any.
  std::shared_ptr<const ObjectDetails> details;
  std::string checksum;  ///< kPut, kPutPart: what was sent with the bytes (value as in the vendor's
                         ///< field), for UploadedPart. Empty: none.
  std::uint32_t attempts = 0;  ///< Attempts that reached the wire.
  /// When things happened; zero-initialised parts did not happen. submitted <= sent <= first_byte
  /// <= finished, those of the last attempt. [submitted, sent) is waiting for its turn, or
  /// back-off.
  TimePoint submitted{}, sent{}, first_byte{}, finished{};
  /// It was tried again after a failure, or the store refused others for their rate meanwhile:
  /// then it is not the bytes before it that it waited for.
  bool was_held_off = false;
  /// kGet: from a cache below, not from the store; [submitted, finished) is waiting for that.
  bool was_cached = false;
};

struct ObjectInfo {
  std::string key;  ///< Relative to the store's root.
  std::uint64_t size_bytes = 0;
  std::string etag;  ///< Opaque version, quotes included for S3. Files: "<mtime ns>-<size>-<inode>"
                     ///< in quotes.
  std::int64_t modified_unix_s = 0;  ///< 0 when unknown.
  /// Of head() and what ends with one; nullptr in listings, and where the store tells none.
  std::shared_ptr<const ObjectDetails> details = {};
  /// Of listings, the vendor's word; empty: it was not told. head() has it in its details.
  std::string storage_class = {};
};

/// Where the sum of a whole object comes from when it is read in ranges. A store checks each answer
/// against the sum that came with it, but most have sums of whole objects only, which no range has:
/// whoever cuts such a read compares all of it himself.
enum class ObjectSums : std::uint8_t {
  kWholeReads,  ///< Nowhere, and one read of all of it may bring a sum, or be all that the server
                ///< can do: better not cut.
  kHead,        ///< kHead tells it.
  kEveryGet,    ///< The answer to each kGet tells it.
  kNotNeeded,   ///< Ranges are checked as well as whole objects are.
};

/// What a store can do. Constant while it is open.
struct StoreTraits {
  bool lists_in_order = true;  ///< S3 Express lists in no order.
  bool can_write = true;       ///< false: plain HTTP servers.
  bool can_list = true;
  bool can_start_after = false;      ///< ListRequest::start_after.
  std::uint64_t min_part_bytes = 1;  ///< Of all parts but the last.
  std::uint64_t max_part_bytes = std::uint64_t{5} << 30;
  std::uint32_t max_parts = 10'000;
  std::uint64_t max_put_bytes = std::uint64_t{5} << 30;   ///< In one kPut.
  std::uint64_t max_copy_bytes = std::uint64_t{5} << 30;  ///< In one copy().
  bool is_local = false;  ///< Files or memory of this machine: no first-byte time to hide.
  ObjectSums object_sums = ObjectSums::kWholeReads;
  /// Bodies are compared with the sums that answers carry (StoreOptions::verify_checksums).
  bool checks_bodies = true;
};

struct ListRequest {
  std::string prefix;     ///< Relative to the root; empty lists everything below it.
  std::string delimiter;  ///< "" lists recursively; "/" rolls deeper keys up into common_prefixes.
  std::string continuation;        ///< From the previous page; empty for the first.
  std::uint32_t page_size = 1000;  ///< 1 .. 1000.
  /// Keys up to this one, itself included, are left out; relative to the root. Only where
  /// StoreTraits::can_start_after; elsewhere it must be empty. Ignored with a continuation.
  std::string start_after = {};
};

struct ListPage {
  std::vector<ObjectInfo> objects;           ///< In byte order of the key.
  std::vector<std::string> common_prefixes;  ///< With trailing delimiter.
  std::string continuation;                  ///< Empty: this was the last page.
};

struct UploadedPart {
  std::uint32_t part_number = 0;
  std::string etag;              ///< Completion::etag of the kPutPart.
  std::uint64_t size_bytes = 0;  ///< 0: unknown.
  std::string checksum = {};     ///< Completion::checksum of the kPutPart; empty: none.
};

/// A multipart upload that was begun and neither completed nor aborted.
struct PendingUpload {
  std::string key;  ///< Relative to the root.
  std::string upload_id;
  std::int64_t started_unix_s = 0;
};

/// A URL that lets its bearer do one thing for some time.
struct PresignRequest {
  std::string key;
  Op op = Op::kGet;                     ///< kGet or kPut.
  std::chrono::seconds lifetime{3600};  ///< S3, GCS: at most 7 days.
  std::string version_id = {};          ///< kGet: as Request::version_id.
};

/// Limits of one control-plane call, and what some of them may be told besides.
struct CallOptions {
  TimePoint deadline = TimePoint::max();  ///< max(): the store's default_timeout from now.
  std::stop_token stop;
  /// copy(), create_upload(), complete_upload() and write_object(): as Request::settings. An
  /// upload's are given to both, since some stores take them at the beginning and some at the end.
  const ObjectSettings* settings = nullptr;
  /// head(), read_object(), remove(), and the source of copy(): as Request::version_id. remove() of
  /// a version is for good.
  std::string version_id = {};
};

/// A range that a reader is going to read (Store::foresee()), told again for more than two reads.
struct ForeseenRead {
  static constexpr std::uint32_t kNever = UINT32_MAX;
  std::string_view key, etag;  ///< As in Request.
  std::uint64_t offset_bytes = 0, length_bytes = 0;
  std::uint32_t first = kNever;   ///< Batches from now until it is needed first.
  std::uint32_t second = kNever;  ///< Until it is needed after that, as far as is known.
};

class Store {
 public:
  virtual ~Store() = default;  ///< stop(), drains, joins what it owns.

  // --- data plane: see the contract above ---

  /// Accepts a prefix of `requests` (moved from) and returns its length. Never blocks; a short
  /// count is back-pressure, not an error. A malformed request is accepted and completes with
  /// kInvalidArgument.
  virtual std::size_t submit(std::span<Request> requests) = 0;

  /// Fills `out` with finished requests in order of completion and returns how many. Blocks until
  /// at least one is ready, `until` passes, `stop` is requested or wake() is called (then 0).
  virtual std::size_t wait(std::span<Completion> out, TimePoint until,
                           std::stop_token stop = {}) = 0;

  /// Makes the wait() in progress, or else the next one, return at once. Any thread; never blocks.
  virtual void wake() noexcept = 0;

  /// Asks for the requests of this handle with this tag to end early. Idempotent; their completions
  /// still come.
  virtual void cancel(std::uint64_t tag) = 0;

  /// Refuses new requests on this handle (submit() returns 0) and cancels all others. wait() keeps
  /// returning completions until drained. Idempotent.
  virtual void stop() noexcept = 0;

  /// Another handle on the same store with its own completion queue. Cheap; shares connections and
  /// limits.
  virtual Result<std::unique_ptr<Store>> new_handle() = 0;

  // --- control plane: blocking; kCancelled on stop, kDeadline past the deadline ---

  /// Errors also: kNotFound, kDenied.
  virtual Result<ObjectInfo> head(const std::string& key, const CallOptions& call = {}) = 0;
  /// One page. A missing bucket or directory is kNotFound; no matching key is an empty page.
  virtual Result<ListPage> list(const ListRequest& request, const CallOptions& call = {}) = 0;
  /// Deletes one object; deleting a missing one succeeds (S3's rule).
  virtual Status remove(const std::string& key, const CallOptions& call = {}) = 0;
  /// Copies inside this store, with copied_settings() of the source; those that are given for the
  /// write replace them. Errors also: kNotFound, kUnsupported.
  virtual Result<ObjectInfo> copy(const std::string& from_key, const std::string& to_key,
                                  const CallOptions& call = {}) = 0;
  /// Moves an object to another storage class, in the vendor's word ("STANDARD_IA", "Cool"). Its
  /// bytes stay as they are, and can be read all the time where both classes can; its version may
  /// become another. One that is in that class already is left alone. Errors also: kNotFound,
  /// kUnsupported (a store without classes; an object that must be restored first). The default
  /// copies the object onto itself.
  virtual Result<ObjectInfo> set_storage_class(const std::string& key,
                                               const std::string& storage_class,
                                               const CallOptions& call = {});
  /// Multipart upload: create, then kPutPart requests, then complete (or abort). Nothing is visible
  /// before complete.
  virtual Result<std::string> create_upload(const std::string& key,
                                            const CallOptions& call = {}) = 0;
  virtual Result<ObjectInfo> complete_upload(const std::string& key, const std::string& upload_id,
                                             std::span<const UploadedPart> parts,
                                             const CallOptions& call = {}) = 0;
  virtual Status abort_upload(const std::string& key, const std::string& upload_id,
                              const CallOptions& call = {}) = 0;

  /// Deletes many objects in as few requests as the store allows (S3: 1,000 each). One Status a
  /// key, in order; deleting a missing one succeeds. The default removes one after the other.
  virtual std::vector<Status> remove_many(std::span<const std::string> keys,
                                          const CallOptions& call = {});
  /// Parts of an upload that have arrived, by part number: for going on with it. Errors also:
  /// kNotFound (no such upload), kUnsupported (default).
  virtual Result<std::vector<UploadedPart>> list_parts(const std::string& key,
                                                       const std::string& upload_id,
                                                       const CallOptions& call = {});
  /// Unfinished uploads below a prefix. Errors also: kUnsupported (default).
  virtual Result<std::vector<PendingUpload>> list_uploads(const std::string& prefix,
                                                          const CallOptions& call = {});
  /// Contacts nobody. Errors: kUnsupported (default; a kind of credentials that cannot sign URLs),
  /// kDenied, kInvalidArgument.
  virtual Result<std::string> presign(const PresignRequest& request);

  // --- what caches want to know; any thread ---

  /// Whether foresee() is of use.
  virtual bool wants_foresight() const noexcept { return false; }
  /// Gets accepted by this handle so far.
  virtual std::uint64_t read_count() const noexcept { return 0; }
  /// What is going to be read through this handle from the moment on when its read_count() was
  /// `since`; replaces what was said before. May write a file. Ranges of one object do not overlap.
  virtual void foresee(std::span<const ForeseenRead> reads, std::uint64_t since) {
    static_cast<void>(reads);
    static_cast<void>(since);
  }
  /// Whether a cache has all bytes of a range of the version `etag` (not empty), as far as the
  /// names of its files tell: no data is read.
  virtual bool holds(std::string_view key, std::string_view etag, std::uint64_t offset_bytes,
                     std::uint64_t length_bytes) {
    static_cast<void>(key);
    static_cast<void>(etag);
    static_cast<void>(offset_bytes);
    static_cast<void>(length_bytes);
    return false;
  }

  // --- observers ---

  virtual const StoreTraits& traits() const noexcept;

  /// StoreOptions::settings: what is written gets these unless its request says otherwise.
  virtual const ObjectSettings& settings() const noexcept;
  /// Whether it can keep them with an object; asks nobody. Errors: kInvalidArgument, kUnsupported
  /// (the message names the setting).
  virtual Status check_settings(const ObjectSettings& settings) const;

  /// The root as the user wrote it, without trailing slash: "s3://bucket/prefix", "file:///data",
  /// "memory://name".
  virtual const std::string& url() const noexcept = 0;
  /// Full name of an object for messages and ids: url() + "/" + key.
  std::string object_url(std::string_view key) const { return url() + "/" + std::string(key); }
  /// Which server it is: "host:port", with a hash of what else makes other objects of one URL (the
  /// query and user of a web server's); of files the file system and the absolute path; else empty.
  /// Two stores of one URL and different origins hold different objects.
  virtual std::string origin() const { return {}; }
  /// The directory whose files are the objects, keys being relative paths; empty when they are not
  /// files of this machine, or this store must be asked for every access (a wrapper).
  virtual std::string local_directory() const { return {}; }
  /// Counters of this store (shared by its handles), see docs/metrics.md.
  virtual void append_metrics(MetricList& out) const = 0;
};

enum class PollerKind : std::uint8_t {
  kAuto,
  kUring,
  kEpoll
};  ///< kAuto: io_uring when the kernel allows it.

/// Numeric addresses of a host name, in order of preference. Called on threads of its own, may
/// block. Errors: kNotFound, kUnavailable.
using NameResolver = std::function<Result<std::vector<std::string>>(const std::string& host)>;

/// How to reach a store. Everything is resolved before: nothing below reads the environment.
struct StoreOptions {
  /// s3://bucket[/prefix], gs://bucket[/prefix], az://account/container[/prefix],
  /// http(s)://host[:port][/path], hf://datasets/ORG/NAME[@REV], file:///path, path, memory://x.
  std::string url;
  std::string
      endpoint;  ///< http(s)://host[:port]; empty: from environment or config, else the vendor's.
  std::string region;      ///< Empty: from environment or config, else "us-east-1".
  bool anonymous = false;  ///< Send requests unsigned.
  /// Bucket in the path instead of the host name. Unset: path style for custom endpoints,
  /// virtual-host style for AWS.
  std::optional<bool> path_style;
  PollerKind poller = PollerKind::kAuto;
  /// Reactor threads. 0: one (25 Gbit/s each is more than one NIC queue of today's nodes needs).
  std::uint32_t reactor_count = 0;
  /// Requests on the wire at once, all reactors together: the ceiling of the control below, or the
  /// number itself without it. More hides first-byte time and costs sockets; 250 connections carry
  /// 100 Gbit/s at S3's 50-90 MB/s per connection (facts/stores.md A1, A3).
  std::uint32_t max_in_flight = 256;
  /// Closed-loop control of how many of max_in_flight are used: starts low, finds the knee, backs
  /// off. false: always max_in_flight.
  bool is_adaptive = true;
  /// Directory of the small file by which the processes of a node share what they know about an
  /// endpoint's limit. Empty: not shared.
  std::string control_directory;
  /// Second requests for late ones, as a fraction of all requests; eight more a reactor for those
  /// that are ten times as late as usual. 0: never.
  double hedge_fraction = 0.02;
  bool verify_checksums = true;  ///< Checks bodies against the checksums that answers carry.
  ChecksumKind upload_checksum = ChecksumKind::kCrc32c;  ///< Sent with what is written, where the
                                                         ///< store takes it.
  bool requester_pays = false;  ///< S3, GCS: this account pays for the requests.
  /// Of all that is written. kUnsupported where the store cannot keep one of them.
  ObjectSettings settings;

  /// Verify the server's certificate and name. false is for tests against throw-away servers.
  bool tls_verify = true;
  /// PEM file or directory of certificate authorities. Empty: AWS_CA_BUNDLE (S3), SSL_CERT_FILE,
  /// SSL_CERT_DIR, else the system's.
  std::string ca_bundle;
  /// http://[user:password@]host:port. Empty: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY (and lower case)
  /// unless NO_PROXY names the host. "none": connect directly.
  std::string proxy;
  /// Hosts besides the vendor's and the endpoint's own (itself and names below it) to which a
  /// redirect may take credentials, data and signatures: entries as in NO_PROXY (names, ".domain",
  /// addresses, networks, "*"), separated by commas. AIStore's gateways send requests to nodes.
  std::string trusted_hosts;

  /// Requests accepted but not yet on the wire, per handle. Beyond it submit() takes fewer.
  std::uint32_t queue_capacity = 4096;
  std::chrono::milliseconds default_timeout{
      60'000};  ///< Deadline of a request that names none, all attempts together.
  std::chrono::milliseconds connect_timeout{3'000};  ///< Per attempt.
  std::chrono::milliseconds first_byte_timeout{
      10'000};  ///< Per attempt: request sent until the head of the answer.
  std::chrono::milliseconds progress_timeout{
      10'000};                      ///< Per attempt: longest pause inside a body.
  std::uint32_t max_attempts = 10;  ///< 1: no retries.
  std::uint64_t retry_seed = 0;     ///< Seed of the back-off jitter; 0: from the clock.
  Clock* clock = nullptr;           ///< nullptr: system_clock().
  NameResolver resolver;            ///< Instead of the system's name look-up (service discovery,
                                    ///< tests). Empty: getaddrinfo().
};

/// Opens a store by URL scheme. Does not contact it. Errors: kInvalidArgument (URL, options),
/// kDenied (no credentials found and not anonymous; the message lists the places searched),
/// kUnsupported (scheme).
Result<std::unique_ptr<Store>> open_store(const StoreOptions& options,
                                          const Environment& environment);

/// All objects below `prefix`, page after page. Calls `progress(count so far)` after each page when
/// given. Errors: those of Store::list.
Result<std::vector<ObjectInfo>> list_all(Store& store, const std::string& prefix,
                                         const CallOptions& call = {},
                                         const std::function<void(std::uint64_t)>& progress = {});

/// A whole object as one string: for indexes and other small files. Errors: those of kGet;
/// kExhausted above `max_bytes`.
Result<std::string> read_object(Store& store, SlabPool& pool, const std::string& key,
                                std::uint64_t max_bytes, const CallOptions& call = {},
                                ObjectInfo* info = nullptr);

/// Writes a small object in one request (`bytes` at most the pool's limit). Returns its new
/// version.
Result<ObjectInfo> write_object(Store& store, SlabPool& pool, const std::string& key,
                                std::string_view bytes, const CallOptions& call = {});

}  // namespace headrace
