#pragma once
/// \file
/// Answers requests: knows S3, knows nothing of sockets and time-outs. One per server thread.
///
/// The connection calls begin() when the head is there, feeds the body to Exchange::body when there
/// is one, waits Exchange::fate.first_byte_us, calls answer(), sends Exchange::response, and calls
/// finished().
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "http/request.h"
#include "sim/body_reader.h"
#include "sim/file_cache.h"
#include "sim/object_sums.h"
#include "sim/post_form.h"
#include "sim/shared_state.h"
#include "sim/target.h"

namespace pugi {
class xml_node;
}

namespace headrace::sim {

struct Response {
  int status = 200;
  std::string fields;                    ///< Further header lines, each with CRLF.
  std::string kept_fields;               ///< Instead of the file's; empty: those.
  std::string body;                      ///< The whole body when `file` is empty.
  std::shared_ptr<const OpenFile> file;  ///< The body is [offset, offset + length) of it.
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;
  bool is_xml = false;
  bool has_body = true;  ///< False for HEAD, 204 and 304: Content-Length (HEAD only) without bytes.
  bool close = false;    ///< The connection cannot or shall not go on.
};

/// Who asks, and where.
struct Peer {
  bool is_loopback = false;
  std::size_t address_index = 0;
};

/// One request and its answer. Reused by a connection for all its requests.
struct Exchange {
  Target target;
  S3Code refusal = S3Code::kNone;  ///< Decided before the body was read.
  std::string error_detail;        ///< Instead of the error's usual message; may be empty.
  Fate fate;
  std::string request_id;
  std::size_t address_index = 0;
  std::uint64_t identity = 0;  ///< Of what is asked for; 0: not computed.
  bool is_tracked = false;     ///< The ordinal table counts it as in flight.
  bool is_transfer = false;    ///< Counted among the transfers in progress.
  bool is_repeat = false;
  bool is_duplicate = false;
  bool is_requester_paying = false;
  bool is_google = false;  ///< Of Google's XML API.
  std::shared_ptr<SharedPacer> part_pacer;
  std::uint64_t part_index = 0;  ///< Of part_pacer.
  TemporaryFile file;
  std::unique_ptr<BodyReader> body;  ///< Empty: the request has none.
  Response response;
  void clear();
};

class Service {
 public:
  Service(SharedState& shared, ThreadStats& stats);

  /// Decides what the request is, whether it is allowed, and its fate; opens the body. The head's
  /// bytes must stay where they are until answer() has returned.
  void begin(const http::RequestHead& head, const Peer& peer, TimePoint now, Exchange& exchange);
  void answer(const http::RequestHead& head, Exchange& exchange);
  void finished(Exchange& exchange, std::uint64_t sent_bytes, bool was_cut);
  /// Takes the exchange out of what is counted as in progress. May be repeated.
  void release(Exchange& exchange);

  /// Takes over changes of behaviour; cheap when there are none.
  void refresh() {
    if (shared_.behaviour.version() != current_version_) take_behaviour();
  }
  const SimBehaviour& behaviour() const noexcept { return current_.behaviour; }
  const SimAddress& address(std::size_t index) const noexcept { return current_.addresses[index]; }
  bool shares_bandwidth() const noexcept { return current_.shares_bandwidth; }
  /// Books bandwidth that is shared with other connections for the bytes of the object at `offset`.
  struct Slot {
    std::uint64_t bytes = 0;
    TimePoint at{};
  };
  Slot book(Exchange& exchange, std::uint64_t offset_bytes, std::uint64_t wanted_bytes,
            TimePoint now);

  /// Appends status line and header of the response; `now` is the wall clock.
  void append_head(const Exchange& exchange, std::chrono::sys_seconds now, std::string& out);
  TimePoint now() const noexcept { return shared_.clock.now(); }
  /// The server's wall clock, skewed as the behaviour says.
  std::chrono::sys_seconds wall_now() const;
  /// Limit of the exchange's connection; 0: none.
  double connection_bytes_per_s(const Exchange& exchange) const noexcept;

 private:
  S3Code authenticate(const http::RequestHead& head, Exchange& exchange, std::string& payload_hash);
  /// Directory buckets want a session, except of those that make or manage one.
  auth::Verdict verify_session(const http::RequestHead& head, const Exchange& exchange,
                               S3Code& code);
  void take_behaviour();
  void draw(const http::RequestHead& head, Exchange& exchange);
  void apply_address(Exchange& exchange) const;
  bool is_within_limits(const Exchange& exchange, TimePoint now);
  void open_body(const http::RequestHead& head, const std::string& payload_hash,
                 Exchange& exchange);
  S3Code dispatch(const http::RequestHead& head, Exchange& exchange);
  S3Code require_bucket(const Exchange& exchange) const;

  /// 200 with an error document, as S3 answers when it fails after it began to answer.
  S3Code refuse_in_body(const http::RequestHead& head, Exchange& exchange);

  // Objects (service_object.cc)
  S3Code read_object(const http::RequestHead& head, Exchange& exchange);
  S3Code put_object(const http::RequestHead& head, Exchange& exchange);
  S3Code copy_object(const http::RequestHead& head, Exchange& exchange);
  S3Code delete_object(const http::RequestHead& head, Exchange& exchange);
  S3Code delete_one(const std::string& bucket, const pugi::xml_node& object);
  S3Code delete_objects(const http::RequestHead& head, Exchange& exchange);
  S3Code serve_range(const http::RequestHead& head, const OpenFile& file, Exchange& exchange);
  void add_sums(const http::RequestHead& head, const OpenFile& file, Exchange& exchange);
  WriteCondition write_condition(const http::RequestHead& head, const Exchange& exchange) const;
  void add_written_fields(const FileInfo& info, const ObjectSums& sums, Exchange& exchange) const;
  S3Code redirect(const http::RequestHead& head, Exchange& exchange);
  bool wants_redirect(const Exchange& exchange) const;
  S3Code open_copy_source(const http::RequestHead& head, std::shared_ptr<const OpenFile>& out);
  /// Errors: kInvalidRequest.
  static S3Code check_copied_size(std::uint64_t size_bytes, Exchange& exchange);
  S3Code copy_fields(const http::RequestHead& head, Exchange& exchange, const OpenFile& source,
                     int fd);
  /// The file of the object. Errors: kNoSuchBucket, kNoSuchKey.
  S3Code open_object(const Target& target, std::shared_ptr<const OpenFile>& out);
  /// Stores fields and sums of the object with its file. Errors: kNotImplemented,
  /// kMetadataTooLarge.
  S3Code keep_beside(int fd, std::string_view fields, const ObjectSums& sums, Exchange& exchange);

  // service_attributes.cc
  S3Code get_attributes(const http::RequestHead& head, Exchange& exchange);

  // service_form.cc
  S3Code post_form(const http::RequestHead& head, Exchange& exchange);
  S3Code check_form(const http::RequestHead& head, const PostForm& form, Exchange& exchange) const;

  // Buckets (service_bucket.cc)
  S3Code list_buckets(Exchange& exchange);
  S3Code list_bucket(Exchange& exchange);
  S3Code list_versions(Exchange& exchange);
  S3Code create_bucket(Exchange& exchange);
  S3Code check_bucket_document(std::string_view text) const;
  S3Code get_versioning(Exchange& exchange);
  S3Code get_location(Exchange& exchange);

  // Multipart uploads (service_upload.cc)
  S3Code create_upload(const http::RequestHead& head, Exchange& exchange);
  S3Code upload_part(const http::RequestHead& head, Exchange& exchange);
  S3Code copy_part(const http::RequestHead& head, Exchange& exchange, VersionTag& tag);
  S3Code sum_part(const std::string& folder, Exchange& exchange, ObjectSums& out) const;
  S3Code complete_upload(const http::RequestHead& head, Exchange& exchange);
  std::shared_ptr<const OpenFile> completed_before(const Exchange& exchange, std::string_view text);
  S3Code abort_upload(Exchange& exchange);
  S3Code list_parts(Exchange& exchange);
  S3Code list_uploads(Exchange& exchange);
  S3Code create_session(Exchange& exchange);
  /// Sums of the object that the parts make; compares with what the request says of it.
  S3Code finish_sums(const std::string& folder, const http::RequestHead& head, Exchange& exchange,
                     ObjectSums& sums) const;
  /// Folder of the upload named by the request; kNoSuchUpload when it is not there or is another
  /// key's.
  S3Code find_upload(const Exchange& exchange, std::string& folder) const;
  S3Code assemble(const std::string& folder, std::string_view document, Exchange& exchange,
                  ObjectSums& sums, VersionTag& tag);

  // service_admin.cc
  void answer_admin(const http::RequestHead& head, Exchange& exchange);
  bool answer_token_request(const http::RequestHead& head, Exchange& exchange);
  bool answer_command(std::string_view what, std::string_view text, Response& response);

  SharedState& shared_;
  ThreadStats& stats_;
  FileCache files_;
  BehaviourCell::Value current_;
  std::uint32_t current_version_ = 0;
  std::uint64_t request_count_ = 0;
  std::chrono::sys_seconds date_at_{};
  std::string date_line_;
};

/// Appends the element of a checksum ("ChecksumCRC32C" of "x-amz-checksum-crc32c"); nothing for
/// other fields.
void append_sum_element(std::string_view field, std::string_view value, std::string& out);

/// S3's limit of what one request uploads or copies; Google has none below that of an object.
constexpr std::uint64_t kMaxPutBytes = 5ULL << 30;

constexpr std::string_view kXmlHead = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
constexpr std::string_view kXmlNamespace = " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";

constexpr std::string_view kTicketParameter = "headrace-ticket";
std::string ticket_of(std::string_view bucket, std::string_view key);

/// True for requests that a page of another site makes a browser send, by what browsers say of them
/// and by a Host that is a name (which an attacker can make resolve to this machine).
bool is_cross_site(const http::RequestHead& head);

/// Sets an XML answer.
void set_xml(std::string document, Response& response);

}  // namespace headrace::sim
