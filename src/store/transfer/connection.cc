// Why so many ways to end: the kernel may still hold a buffer of the slab (io_uring) when the
// attempt is over, and the slab may not go back before. finish() is therefore the only way out,
// and goes by kDraining whenever something is outstanding.
//
// Invariants:
// - op_ is set from begin() until Progress::kDone was returned, or disown() was called.
// - Of two attempts at one op (a hedge and its first), the one that has body bytes first becomes
//   op.winner, and only it writes into the slab; the other is disowned.
// - `keep_alive_` says whether the stream stands where the next request may begin. Every error,
//   every byte too many and every answer that was not read to its end clears it.
// - What an answer means is the protocol's to say (verdict.h); here is only what HTTP itself says.
#include "store/transfer/connection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/crc64nvme.h"
#include "net/net_errors.h"
#include "store/named_version.h"
#include "store/transfer/redirect.h"

namespace headrace::transfer {
namespace {

// A connection that was used less than this ago is taken without asking the kernel whether the
// server has closed it.
constexpr std::chrono::milliseconds kTrustIdle{200};
constexpr std::size_t kTextPieceBytes = 16 << 10;
// From here on a body is worth the look at the socket, before it moves, that counting early takes.
constexpr std::uint64_t kCountedEarlyBytes = 1 << 20;

std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string ms_text(std::chrono::milliseconds time) { return std::to_string(time.count()) + " ms"; }

bool is_hang_up(std::int64_t result) {
  return result == -ECONNRESET || result == -EPIPE || result == -ECONNABORTED;
}

}  // namespace

Connection::Connection(const ConnectionContext& context)
    : context_(context),
      stream_(context.poller, this),
      timer_(this, static_cast<std::uint8_t>(TimerKind::kConnection)),
      sent_(context.counters.sent_bytes),
      received_(context.counters.received_bytes),
      head_buffer_(http::kMaxHeadBytes + 1) {}

Connection::~Connection() {
  HEADRACE_DCHECK(op_ == nullptr);
  close();
}

std::span<std::byte> Connection::slab_part() const noexcept {
  return op_->request.slab.bytes().subspan(op_->request.slab_offset_bytes,
                                           op_->request.length_bytes);
}

// --- start ---

Progress Connection::begin(TransferOp& op, TimePoint now) {
  HEADRACE_DCHECK(op_ == nullptr && (state_ == State::kIdle || state_ == State::kClosed));
  op_ = &op;
  is_hedge_ = op.connection != nullptr;
  if (is_hedge_) {
    op.hedge = this;
  } else {
    op.connection = this;
    op.sent = op.first_byte = TimePoint{};
  }
  sent_at_ = first_byte_at_ = TimePoint{};
  outcome_ = Outcome{};
  is_over_ = false;
  keep_alive_ = true;
  is_reused_ = state_ == State::kIdle;
  request_head_.clear();
  const HeadContext head_context{context_.clock.wall_now(), op.redirect.get()};
  Status built = op.call != nullptr
                     ? context_.protocol.append_head(*op.call, head_context, request_head_)
                     : context_.protocol.append_head(op.request, head_context, request_head_);
  if (!built.ok()) {
    outcome_.is_not_ready = built.code() == Code::kUnavailable;
    if (op.redirect != nullptr && !outcome_.is_not_ready) {  // where to has been refused
      outcome_.is_doubtful = true;
      ++op.attempts;
    }
    fail(std::move(built));
    keep_alive_ = is_reused_;  // nothing was sent: an open connection is as good as before
    return finish();
  }
  if (!op.endpoint->forward_prefix.empty()) forward_by_proxy();
  ++op.attempts;
  context_.counters.attempts.add(1);
  if (is_reused_) return send_request(now);
  endpoint_ = op.endpoint;
  ++endpoint_->users;
  addresses_left_ = endpoint_->addresses.size();
  return connect_next(now);
}

Progress Connection::connect_next(TimePoint now) {
  HEADRACE_DCHECK(addresses_left_ > 0);
  --addresses_left_;
  AddressBook& addresses = endpoint_->addresses;
  address_ = addresses.at(is_hedge_ ? addresses.pick_other(op_->connection->address_, now)
                                    : addresses.pick(now));
  state_ = State::kConnecting;
  const int error = stream_.open(address_.family());
  if (error < 0) {
    fail(status_from_errno(-error, "socket"));
    return finish();
  }
  context_.counters.connections_opened.add(1);
  const std::chrono::milliseconds patience = context_.options.connect_timeout;
  has_given_up_ = false;
  set_limit(now + (addresses_left_ > 0 ? std::min(patience, next_address_after()) : patience));
  const auto result = stream_.connect(address_, endpoint_->plan);
  return result ? on_connected(*result, now) : Progress::kPending;
}

Progress Connection::on_connected(std::int64_t result, TimePoint now) {
  if (result == 0) {
    endpoint_->addresses.mark_good(address_);
    if (const TlsSession* tls = stream_.tls()) {
      context_.counters.tls_handshakes.add(1);
      if (tls->is_resumed()) context_.counters.tls_resumptions.add(1);
    }
    return send_request(now);
  }
  Status failure = has_given_up_ ? connect_timeout(next_address_after()) : connect_failure(result);
  context_.counters.connect_failures.add(1);
  endpoint_->addresses.mark_failed(address_, now);
  // What is wrong with the certificate of one address is wrong with all.
  if (addresses_left_ > 0 && is_retryable(failure.code())) {
    stream_.close();
    return connect_next(now);
  }
  fail(std::move(failure));
  return finish();
}

Status Connection::connect_failure(std::int64_t result) const {
  if (!stream_.failure().ok()) return stream_.failure().clone();
  return status_from_errno(static_cast<int>(-result),
                           std::string(stream_.phase_text()) + " " + to_text(address_));
}

Status Connection::connect_timeout(std::chrono::milliseconds limit) const {
  return Status(Code::kUnavailable, std::string(stream_.phase_text()) + " " + to_text(address_) +
                                        " timed out after " + ms_text(limit));
}

std::chrono::milliseconds Connection::next_address_after() const noexcept {
  return endpoint_->plan.tls ? 4 * kNextAddressAfter : kNextAddressAfter;  // more round trips
}

/// Turns the request line and fields of a direct request into those for a proxy that forwards it.
void Connection::forward_by_proxy() {
  const std::size_t target = request_head_.find(' ') + 1;
  request_head_.insert(target, op_->endpoint->forward_prefix);
  request_head_.insert(request_head_.find("\r\n") + 2, op_->endpoint->forward_field);
}

Progress Connection::send_request(TimePoint now) {
  state_ = State::kSending;
  sent_at_ = now;
  if (!is_hedge_) op_->sent = now;
  outcome_.was_sent = true;
  head_bytes_ = 0;
  sent_.start(0);
  received_.start(0);
  std::span<const std::byte> body;
  if (op_->call != nullptr) {
    body = as_bytes(op_->call->body);
  } else if (op_->is_upload()) {
    body = slab_part();
  }
  const auto sent = stream_.send(as_bytes(request_head_), body);
  if (sent) {
    if (on_sent(*sent, now) == Progress::kDone) return Progress::kDone;
    if (is_over_) return Progress::kPending;
  } else {
    watch_progress(now);
  }
  // Listening while the body is still being sent: a refusal comes before the end.
  return receive({std::as_writable_bytes(std::span(head_buffer_)).first(kFirstReadBytes),
                  ReceiveMode::kSomeLater},
                 now);
}

Progress Connection::on_sent(std::int64_t result, TimePoint now) {
  if (result < 0 && head_bytes_ == 0) {
    fail_io(result, "while sending");
    return finish();
  }
  if (result < 0) {  // refused in the middle of the body: the answer under way says why
    keep_alive_ = false;
    return Progress::kPending;
  }
  sent_.end(static_cast<std::uint64_t>(result));
  if (state_ == State::kSending) {
    state_ = State::kHead;
    wait_limit_ = context_.options.first_byte_timeout;
    if (takes_long()) wait_limit_ = op_->call->answer_timeout;
    if (op_->call == nullptr && !op_->is_upload()) {
      wait_limit_ = std::chrono::ceil<std::chrono::milliseconds>(
          context_.hedging.deadline(op_->request.length_bytes));
    }
    set_limit(now + wait_limit_);
  }
  return Progress::kPending;
}

// --- receive ---

Progress Connection::receive(Want want, TimePoint now) {
  for (;;) {
    const auto result = stream_.receive(want.buffer, want.mode);
    if (!result) return Progress::kPending;
    const auto next = on_received(*result, now);
    if (!next) return finish();
    want = *next;
  }
}

Progress Connection::on_event(const PollEvent& event, TimePoint now) {
  // The second event of a pair whose first one ended the attempt.
  if (state_ == State::kClosed || state_ == State::kIdle) return Progress::kPending;
  if (state_ == State::kDraining) return finish();
  const auto meaning = stream_.on_event(event);
  if (!meaning) return Progress::kPending;
  switch (meaning->op) {
    case PollOp::kConnect:
      return on_connected(meaning->result, now);
    case PollOp::kSend:
      return on_sent(meaning->result, now);
    case PollOp::kReceive:
      break;
  }
  const auto next = on_received(meaning->result, now);
  return next ? receive(*next, now) : finish();
}

std::optional<Connection::Want> Connection::on_received(std::int64_t result, TimePoint now) {
  if (result > 0) received_.end(static_cast<std::uint64_t>(result));
  switch (state_) {
    case State::kSending:
    case State::kHead:
      return on_head_bytes(result, now);
    case State::kBody:
      return on_body_bytes(result);
    case State::kText:
      return on_text_bytes(result);
    default:
      return fail(Status(Code::kInternal, "received in a state without a receive"));
  }
}

std::optional<Connection::Want> Connection::on_head_bytes(std::int64_t result, TimePoint now) {
  if (result <= 0) return fail_io(result, "before the answer");
  if (head_bytes_ == 0) {
    first_byte_at_ = now;
    if (!is_hedge_) op_->first_byte = now;
  }
  head_bytes_ += static_cast<std::size_t>(result);
  for (;;) {
    const std::string_view bytes(head_buffer_.data(), head_bytes_);
    head_ = http::ResponseHead{};
    auto parsed = http::parse_response_head(bytes, head_);
    if (!parsed) return fail_doubtful(std::move(parsed).error());
    if (*parsed == 0) {
      if (head_bytes_ == head_buffer_.size())
        return fail_doubtful(Status(Code::kCorrupt, "the head of the answer is too long"));
      return Want{std::as_writable_bytes(std::span(head_buffer_)).subspan(head_bytes_),
                  ReceiveMode::kSome};
    }
    if (head_.status >= 200) return on_head(now);
    // An interim answer (100, 103): the real one follows.
    std::memmove(head_buffer_.data(), head_buffer_.data() + *parsed, head_bytes_ - *parsed);
    head_bytes_ -= *parsed;
  }
}

std::optional<Connection::Want> Connection::on_head(TimePoint now) {
  if (state_ == State::kSending && head_.status < 300) {
    return fail_doubtful(
        Status(Code::kCorrupt, "the answer came before what it is about had been sent"));
  }
  if (op_->call == nullptr) read_version();
  verdict_ = op_->call != nullptr ? judge_call(head_, op_->is_head())
                                  : judge_transfer(op_->request, head_);
  if (op_->call == nullptr && op_->request.op == Op::kGet &&
      (head_.status == 200 || head_.status == 206)) {
    if (Status s = context_.protocol.judge_bytes(head_); !s.ok())
      verdict_ = {BodyUse::kNone, std::move(s), 0, 0};
  }
  keep_alive_ = keep_alive_ && head_.keep_alive;  // a failed send has cleared it
  checksum_ = Checksum{};
  if (context_.options.verify_checksums && op_->call == nullptr && op_->request.op == Op::kGet &&
      verdict_.use != BodyUse::kError)
    checksum_ = context_.protocol.checksum_of(op_->request, head_);
  const std::string_view surplus(head_buffer_.data() + head_.head_bytes,
                                 head_bytes_ - head_.head_bytes);
  if (op_->hedge != nullptr && verdict_.use != BodyUse::kError && verdict_.status.ok()) claim();
  switch (verdict_.use) {
    case BodyUse::kSlab:
      return begin_slab_body(surplus, now);
    case BodyUse::kError:
    case BodyUse::kText:
    case BodyUse::kAnswer:
      return begin_text(surplus, now);
    case BodyUse::kNone:
      break;
  }
  const auto body_bytes = http::body_length(head_, op_->is_head());
  if (!body_bytes || *body_bytes != 0 || !surplus.empty()) keep_alive_ = false;
  if (!verdict_.status.ok()) return fail_doubtful(std::move(verdict_.status));
  if (op_->call != nullptr) {
    text_.clear();
    return end_text();
  }
  op_->length_bytes = 0;
  return succeed();
}

void Connection::read_version() {
  head_.etag = context_.protocol.version_of(op_->request, head_);
  if (head_.etag.empty() || head_.etag.ends_with('"') || !context_.protocol.quotes_versions())
    return;
  version_.assign(1, '"').append(head_.etag).push_back('"');
  head_.etag = version_;
}

std::optional<Connection::Want> Connection::begin_slab_body(std::string_view surplus,
                                                            TimePoint now) {
  const std::span<std::byte> target = slab_part().first(verdict_.body_bytes);
  if (surplus.size() > target.size())
    keep_alive_ = false;  // more than announced: what follows cannot be trusted
  const std::size_t copied_bytes = std::min(surplus.size(), target.size());
  std::memcpy(target.data(), surplus.data(), copied_bytes);
  op_->length_bytes = target.size();
  if (copied_bytes == target.size()) return succeed();
  state_ = State::kBody;
  wanted_bytes_ = target.size() - copied_bytes;
  watch_progress(now);
  return Want{target.subspan(copied_bytes), ReceiveMode::kAll};
}

std::optional<Connection::Want> Connection::on_body_bytes(std::int64_t result) {
  if (result == static_cast<std::int64_t>(wanted_bytes_)) return succeed();
  if (result < 0) return fail_io(result, "inside the body");
  const std::uint64_t got_bytes =
      verdict_.body_bytes - wanted_bytes_ + static_cast<std::uint64_t>(result);
  return fail(Status(Code::kUnavailable, "connection closed after " + std::to_string(got_bytes) +
                                             " of " + std::to_string(verdict_.body_bytes) +
                                             " bytes"));
}

// --- text: error bodies, answers to calls, chunked objects ---

std::optional<Connection::Want> Connection::begin_text(std::string_view surplus, TimePoint now) {
  state_ = State::kText;
  watch_progress(now);
  text_.clear();
  if (verdict_.use == BodyUse::kText) op_->length_bytes = 0;
  chunked_ = http::ChunkedDecoder();
  text_left_bytes_ = http::body_length(head_, op_->is_head());
  // HEAD, 204, 304: no body whatever the fields say. S3 answers a HEAD of nothing with "chunked".
  if (text_left_bytes_) head_.is_chunked = false;
  if (!head_.is_chunked && !text_left_bytes_) keep_alive_ = false;  // the body ends with the stream
  text_piece_.resize(kTextPieceBytes);
  return feed_text(surplus);
}

std::optional<Connection::Want> Connection::on_text_bytes(std::int64_t result) {
  if (result > 0) {
    const auto size_bytes = static_cast<std::size_t>(result);
    return feed_text({reinterpret_cast<const char*>(text_piece_.data()), size_bytes});
  }
  const bool ends_with_stream = !head_.is_chunked && !text_left_bytes_;
  if (result == 0 && ends_with_stream) return end_text();
  return fail_io(result, "inside the body");
}

std::optional<Connection::Want> Connection::feed_text(std::string_view bytes) {
  std::size_t max_bytes = kMaxErrorBytes;
  if (verdict_.use == BodyUse::kAnswer) max_bytes = kMaxAnswerBytes;
  if (verdict_.use == BodyUse::kText) max_bytes = verdict_.body_bytes - op_->length_bytes;
  bool is_too_long = false;
  bool is_complete = false;
  if (head_.is_chunked) {
    const auto used = chunked_.feed(bytes, text_, max_bytes);
    if (!used && used.error().code() != Code::kExhausted)
      return fail_doubtful(used.error().clone());
    is_too_long = !used;
    is_complete = chunked_.done();
    if (used && *used != bytes.size()) keep_alive_ = false;
  } else {
    std::uint64_t take_bytes = bytes.size();
    if (text_left_bytes_ && take_bytes > *text_left_bytes_) {
      take_bytes = *text_left_bytes_;
      keep_alive_ = false;
    }
    is_too_long = text_.size() + take_bytes > max_bytes;
    text_.append(bytes.substr(0, std::min<std::uint64_t>(take_bytes, max_bytes - text_.size())));
    if (text_left_bytes_) is_complete = (*text_left_bytes_ -= take_bytes) == 0;
  }
  if (verdict_.use == BodyUse::kText) move_text();
  if (is_too_long) {
    keep_alive_ = false;
    if (verdict_.use == BodyUse::kError) return end_text();  // enough to see what is wrong
    if (verdict_.use == BodyUse::kText)
      return fail_doubtful(Status(Code::kCorrupt, "the answer is longer than the range"));
    return fail_doubtful(Status(
        Code::kExhausted, "the answer is longer than " + std::to_string(max_bytes) + " bytes"));
  }
  if (is_complete) return end_text();
  return Want{text_piece_, ReceiveMode::kSome};
}

/// Of an object no more than a piece lies beside the slab.
void Connection::move_text() {
  std::memcpy(slab_part().data() + op_->length_bytes, text_.data(), text_.size());
  op_->length_bytes += text_.size();
  text_.clear();
}

std::optional<Connection::Want> Connection::end_text() {
  const bool keep_alive =
      keep_alive_;  // a failure that was read to its end leaves the connection usable
  const bool is_moved = verdict_.use == BodyUse::kError && is_redirect(head_.status, method()) &&
                        context_.protocol.follows_redirects();
  const std::string_view location = is_moved ? head_.header("location") : std::string_view();
  if (!location.empty()) {
    redirect(location);
  } else if (verdict_.use == BodyUse::kError) {
    const std::string what =
        op_->call != nullptr ? op_->call->what : context_.protocol.describe(op_->request);
    fail(error_from(what));
    outcome_.is_named = true;
    outcome_.is_doubtful = is_doubtful_error(head_.status, outcome_.status.code());
    outcome_.retry_after = retry_after(head_);
  } else if (op_->call != nullptr) {
    end_call();
  } else {
    end_text_transfer();
  }
  keep_alive_ = keep_alive;
  return std::nullopt;
}

Status Connection::error_from(std::string_view what) const {
  if (op_->redirect == nullptr) return context_.protocol.error_from(what, head_, text_);
  const RedirectedRequest request{what, *op_->redirect,
                                  op_->call == nullptr ? &op_->request : nullptr};
  return context_.protocol.redirected_error(request, head_, text_);
}

void Connection::end_call() {
  HttpAnswer& answer = *op_->answer;
  answer.status = head_.status;
  answer.head.assign(head_buffer_.data(), head_.head_bytes);
  answer.body = std::move(text_);
  text_.clear();
  Status checked = context_.protocol.check_answer(*op_->call, answer);
  if (checked.ok()) {
    succeed();
  } else {
    fail(std::move(checked));
    outcome_.is_named = true;
    outcome_.is_doubtful = is_doubtful_error(head_.status, outcome_.status.code());
  }
}

void Connection::end_text_transfer() {
  const Request& request = op_->request;
  if (request.op != Op::kGet) {
    op_->length_bytes = request.length_bytes;
  } else {
    const bool is_short = op_->length_bytes < verdict_.body_bytes;
    // Only a whole object may turn out shorter at its end; a partial answer has announced its
    // length.
    if (is_short && (head_.status == 206 || !request.allow_short)) {
      fail_doubtful(Status(Code::kCorrupt, "the answer has " + std::to_string(op_->length_bytes) +
                                               " bytes where its range has " +
                                               std::to_string(verdict_.body_bytes)));
      return;
    }
    if (head_.status == 200) verdict_.object_size_bytes = op_->length_bytes;
  }
  succeed();
}

// --- end ---

std::string_view Connection::method() const noexcept {
  if (op_->call != nullptr) return op_->call->method;
  if (op_->is_head()) return "HEAD";
  return op_->is_upload() ? "PUT" : "GET";
}

std::optional<Connection::Want> Connection::redirect(std::string_view location) {
  std::string_view target(request_head_);
  target.remove_prefix(std::min(target.find(' ') + 1, target.size()));
  target = target.substr(0, target.find(' ')).substr(op_->endpoint->forward_prefix.size());
  auto parsed = parse_redirect(location, op_->endpoint->target, target);
  if (!parsed) return fail_doubtful(std::move(parsed).error());
  if (op_->call == nullptr) {
    Status refused = context_.protocol.judge_redirect(op_->request, head_, *parsed);
    if (!refused.ok()) return fail(std::move(refused));
  }
  outcome_.redirect = std::make_unique<HttpRedirect>(*std::move(parsed));
  return fail(Status(Code::kUnavailable, "redirected to " + outcome_.redirect->host_field));
}

bool Connection::matches_checksum() const {
  const auto body = slab_part().first(op_->length_bytes);
  switch (checksum_.kind) {
    case ChecksumKind::kNone:
      return true;
    case ChecksumKind::kCrc32c:
      return crc32c(body) == checksum_.value;
    case ChecksumKind::kCrc64Nvme:
      return crc64nvme(body) == checksum_.value;
  }
  return true;
}

bool Connection::confirms_checksum() const {
  const std::string_view field = context_.protocol.checksum_field();
  const std::string_view told = field.empty() ? std::string_view() : head_.header(field);
  if (told.empty()) return true;
  const std::string_view request(request_head_);
  for (std::size_t at = request.find(field); at != request.npos; at = request.find(field, at + 1)) {
    const std::string_view rest = request.substr(at + field.size());
    if (request[at - 1] != '\n' || !rest.starts_with(": ")) continue;
    return rest.substr(2, rest.find('\r') - 2) == told;
  }
  return true;
}

std::optional<Connection::Want> Connection::succeed() {
  if (checksum_.kind != ChecksumKind::kNone && !matches_checksum()) {
    context_.counters.checksum_failures.add(1);
    return fail_doubtful(
        Status(Code::kCorrupt, "the bytes do not match the checksum that came with them"));
  }
  if (op_->call == nullptr) {
    op_->object_size_bytes = verdict_.object_size_bytes;
    if (op_->is_upload()) {
      op_->etag.clear();
      context_.protocol.append_version(op_->request, head_, text_, op_->etag);
      if (op_->etag.empty() && context_.protocol.names_what_it_wrote(op_->request)) {
        return fail_doubtful(
            Status(Code::kCorrupt, "the answer does not name the version that was written"));
      }
      if (!confirms_checksum()) {
        context_.counters.checksum_failures.add(1);
        return fail_doubtful(Status(
            Code::kCorrupt, "the store's checksum of what it wrote is not that of what was sent"));
      }
      op_->checksum.clear();
      context_.protocol.append_checksum(op_->request, head_, op_->checksum);
    } else {
      if (op_->request.etag.empty()) op_->etag = head_.etag;
      if (context_.options.verify_checksums)
        op_->object_checksum = context_.protocol.object_checksum_of(op_->request, head_);
      // The head of a 416 is about the answer.
      const std::string_view version_id = op_->request.version_id;
      if (head_.status != 416 && (op_->request.wants_details || !version_id.empty())) {
        op_->details = context_.protocol.details_of(head_);
        if (Status s = check_named_version(op_->details.get(), version_id); !s.ok())
          return fail(std::move(s));
      }
    }
  }
  is_over_ = true;
  return std::nullopt;
}

std::optional<Connection::Want> Connection::fail(Status status) {
  keep_alive_ = false;
  outcome_.status = std::move(status);
  is_over_ = true;
  return std::nullopt;
}

std::optional<Connection::Want> Connection::fail_doubtful(Status status) {
  outcome_.is_doubtful = true;
  return fail(std::move(status));
}

std::optional<Connection::Want> Connection::fail_io(std::int64_t result, std::string_view where) {
  outcome_.is_stale = is_reused_ && head_bytes_ == 0 && (result == 0 || is_hang_up(result));
  if (result == 0)
    return fail(Status(Code::kUnavailable, "connection closed by peer " + std::string(where)));
  if (const Status& failure = stream_.failure(); !failure.ok()) {
    return fail(Status(failure.code(), std::string(failure.message()) + " " + std::string(where)));
  }
  Status status = status_from_errno(static_cast<int>(-result));
  return fail(Status(status.code(), std::string(status.message()) + " " + std::string(where)));
}

bool Connection::is_final() const noexcept {
  const Code code = outcome_.status.code();
  if (code == Code::kCancelled || code == Code::kDeadline) return true;
  if (first_byte_at_ == TimePoint{}) return false;  // nothing came: only this attempt went wrong
  return outcome_.redirect != nullptr || !(is_retryable(code) || outcome_.is_doubtful);
}

Progress Connection::finish() {
  if (stream_.socket().is_busy()) {  // the kernel still has a buffer of ours
    if (state_ != State::kDraining) stream_.cancel();
    state_ = State::kDraining;
    keep_alive_ = false;
    return Progress::kPending;
  }
  const bool is_clean = !stream_.has_surplus() && !stream_.has_unsent();
  if (!keep_alive_ || !stream_.is_open() || !is_clean || state_ == State::kDraining) {
    close();
  } else {
    state_ = State::kIdle;
  }
  return Progress::kDone;
}

Progress Connection::abort(Status reason) {
  outcome_.is_stale = outcome_.is_doubtful = false;
  outcome_.is_named = false;
  keep_alive_ = false;
  outcome_.status = std::move(reason);
  is_over_ = true;
  return finish();
}

Progress Connection::disown() {
  op_ = nullptr;
  outcome_ = Outcome{};
  is_over_ = true;
  keep_alive_ = false;
  return finish();
}

void Connection::promote() noexcept {
  is_hedge_ = false;
  op_->sent = sent_at_;
  op_->first_byte = first_byte_at_;
}

void Connection::claim() noexcept {
  op_->winner = this;
  op_->sent = sent_at_;
  op_->first_byte = first_byte_at_;
}

Outcome Connection::take_outcome() {
  (op_->hedge == this ? op_->hedge : op_->connection) = nullptr;
  op_ = nullptr;
  return std::exchange(outcome_, Outcome{});
}

void Connection::park(TimePoint now) {
  idle_since_ = now;
  set_limit(now + kIdleTimeout);
}

bool Connection::is_usable(const TransferOp& op, TimePoint now) const noexcept {
  const bool is_versioned =
      op.call == nullptr && op.request.op == Op::kGet && !op.request.etag.empty();
  return (is_versioned && now - idle_since_ < kTrustIdle) || is_quiet(stream_.socket());
}

bool Connection::is_welcome(TimePoint now) const noexcept {
  return endpoint_->addresses.size() < 2 || !endpoint_->addresses.is_avoided(address_, now);
}

void Connection::close() {
  stream_.close();
  context_.timers.clear(timer_);
  if (endpoint_ != nullptr) --endpoint_->users;
  endpoint_ = nullptr;
  state_ = State::kClosed;
}

// --- time ---

void Connection::set_limit(TimePoint when) {
  limit_ = when;
  // Limits mostly move later; the timer follows when it fires.
  if (!timer_.is_set() || when < timer_.when()) context_.timers.set(timer_, when);
}

void Connection::watch_progress(TimePoint now) {
  progress_at_ = looked_at_ = now;
  // Text is counted piece by piece as it comes.
  const bool is_early = state_ != State::kText && moving_bytes() >= kCountedEarlyBytes;
  if (is_early && state_ == State::kSending) sent_.start(moving_bytes());
  if (is_early && state_ == State::kBody) received_.start(wanted_bytes_);
  progress_bytes_ = is_early ? progress_bytes(stream_.socket()) : 0;
  pace_from_ = TimePoint{};
  set_limit(now + look_interval());
}

/// What is received now is what a get asked for.
bool Connection::is_payload() const noexcept {
  return state_ == State::kBody || (state_ == State::kText && verdict_.use == BodyUse::kText);
}

/// A call that says itself how long its answer may take.
bool Connection::takes_long() const noexcept {
  return op_->call != nullptr && op_->call->answer_timeout.count() > 0;
}

/// Bytes of the body under way, when a pace can be asked of it; else 0. Stores that work on a POST,
/// or on another call that may take long, send a blank now and then.
std::uint64_t Connection::moving_bytes() const noexcept {
  constexpr std::uint64_t kUnknownAnswerBytes = 64 << 10;
  if (state_ == State::kSending) return op_->is_upload() ? op_->request.length_bytes : 0;
  if (is_payload()) return verdict_.body_bytes;
  if (op_->call != nullptr && (op_->call->method == "POST" || takes_long())) return 0;
  return text_left_bytes_ ? text_.size() + *text_left_bytes_ : kUnknownAnswerBytes;
}

Microseconds Connection::longest_move() const noexcept {
  constexpr std::uint32_t kMostDoublings = 10;
  // How long the others take is not known: they are judged as drips only.
  const Microseconds longest = is_payload() ? context_.hedging.longest_body(moving_bytes())
                                            : HedgePolicy::longest_unknown(moving_bytes());
  return longest * (1 << std::min(op_->slow_count, kMostDoublings));
}

std::chrono::milliseconds Connection::longest_pause() const noexcept {
  return takes_long() ? op_->call->answer_timeout : context_.options.progress_timeout;
}

/// The pace is judged over twice this time, or more.
Microseconds Connection::look_interval() const noexcept {
  const Microseconds longest_pause(this->longest_pause());
  if (moving_bytes() == 0) return longest_pause / 4;
  return std::min(longest_pause / 4, longest_move() / 16);
}

/// Whether all of what is moved would, at the pace that was kept since the first look, take far
/// longer than is usual. With a hedge to spend a quarter of that is too long already.
bool Connection::is_slow(TimePoint now) {
  const std::uint64_t length_bytes = moving_bytes();
  if (length_bytes == 0) return false;
  const Microseconds longest = longest_move();
  const auto elapsed = std::chrono::duration_cast<Microseconds>(now - pace_from_);
  const auto takes_longer_than = [&](Microseconds limit) {
    if (elapsed < std::min<Microseconds>(context_.options.progress_timeout, limit / 2))
      return false;
    const auto moved_bytes = static_cast<double>(progress_bytes_ - pace_bytes_);
    return moved_bytes * static_cast<double>(limit.count()) <
           static_cast<double>(length_bytes) * static_cast<double>(elapsed.count());
  };
  if (takes_longer_than(longest)) return true;
  if (!is_payload() || !takes_longer_than(longest / 4)) return false;
  return outcome_.is_hedged = context_.hedging.take_spare();
}

/// A look at what has come, or gone, since the last one: on with it, or the attempt is lost.
Progress Connection::check_progress(TimePoint now) {
  const std::uint64_t bytes = progress_bytes(stream_.socket());
  if (bytes != progress_bytes_) {
    EarlyCount& moving = state_ == State::kSending ? sent_ : received_;
    if (moving.is_on() && bytes > progress_bytes_) moving.add_seen(bytes - progress_bytes_);
    progress_bytes_ = bytes;
    progress_at_ = now;
  }
  // The first look, or this process slept through the last ones: nothing to measure from.
  const bool has_slept = now - looked_at_ > 4 * look_interval() + std::chrono::seconds(1);
  if (pace_from_ == TimePoint{} || has_slept) {
    pace_bytes_ = bytes;
    pace_from_ = now;
  }
  looked_at_ = now;
  const bool is_stuck = now - progress_at_ >= longest_pause();
  if (!is_stuck && !is_slow(now)) {
    set_limit(now + look_interval());
    return Progress::kPending;
  }
  context_.counters.timeouts.add(1);
  outcome_.is_slow = !is_stuck;
  if (is_stuck) {
    return abort(Status(Code::kUnavailable, "no progress within " + ms_text(longest_pause())));
  }
  const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(now - pace_from_);
  return abort(Status(Code::kUnavailable, "only " + std::to_string(bytes - pace_bytes_) + " of " +
                                              std::to_string(moving_bytes()) + " bytes in " +
                                              ms_text(elapsed)));
}

Progress Connection::on_timer(TimePoint now) {
  if (now < limit_) {
    context_.timers.set(timer_, limit_);
    return Progress::kPending;
  }
  switch (state_) {
    case State::kConnecting:
      if (addresses_left_ > 0) {
        // -ECANCELED, unless it connects just now; on_connected() goes on with the next address.
        has_given_up_ = true;
        stream_.cancel();
        set_limit(now + next_address_after());  // when it goes on connecting after all
        return Progress::kPending;
      }
      context_.counters.connect_failures.add(1);
      context_.counters.timeouts.add(1);
      endpoint_->addresses.mark_failed(address_, now);
      return abort(connect_timeout(context_.options.connect_timeout));
    case State::kHead:
      context_.counters.timeouts.add(1);
      outcome_.is_timeout = true;
      return abort(Status(Code::kUnavailable, "no answer within " + ms_text(wait_limit_)));
    case State::kSending:
    case State::kBody:
    case State::kText:
      return check_progress(now);
    case State::kIdle:
      close();
      break;
    case State::kClosed:
    case State::kDraining:
      break;
  }
  return Progress::kPending;
}

}  // namespace headrace::transfer
