// OpenSSL does the handshake and all sending; no socket is known here, bytes come and go through
// two spans (the BIO above them never waits). What is received afterwards is opened by
// RecordOpener where suite and version allow, straight into the caller's buffer.
//
// - in step: until the first data OpenSSL is shown every record too, as tickets come then and are
//   its business. After that only we count records, and OpenSSL never sees another; so KeyUpdates
//   have to be done here (keys) and asked of OpenSSL (the answer).
// - The traffic secret is kept from the key log callback to the moment the opener has it, and is
//   wiped.
// - The end of the connection without close_notify is no end of the data: see ByteStream.
// - A server cannot make this grow: messages, unsent answers and the spilled record are bounded.
// - No environment is read: authorities come from the options, or from the system's places.
#include "net/tls.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "base/strings.h"

namespace headrace {
namespace {

// Longest post-handshake message kept while it is incomplete. A ticket may have 64 KiB.
constexpr std::size_t kMaxMessageBytes = 80 << 10;
// Answers to the server's KeyUpdates (22 to 27 bytes each) that nobody has sent yet. A server that
// asks on and on without reading would fill the memory.
constexpr std::size_t kMaxUnsentBytes = 4 << 10;
constexpr std::uint8_t kKeyUpdateMessage = 24;
constexpr std::uint8_t kTicketMessage = 4;

// AES-128 first: it costs a quarter less than AES-256 and both are out of reach.
constexpr const char* kSuites =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
constexpr const char* kOldCiphers = "ECDHE+AESGCM:ECDHE+CHACHA20:!aNULL:!PSK";

// Where systems keep their authorities; the first that exists. The list of Go's crypto/x509.
constexpr std::array kSystemBundles = {
    "/etc/ssl/certs/ca-certificates.crt",                 // Debian, Ubuntu, Alpine, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",                   // Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",                             // openSUSE
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // RHEL 7 and later
    "/etc/ssl/cert.pem",                                  // Alpine
};

std::string openssl_error() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  if (code == 0) return "unknown";
  const char* reason = ERR_reason_error_string(code);
  return reason != nullptr ? reason : "error " + std::to_string(code);
}

bool is_numeric(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> address{};
  return ::inet_pton(AF_INET, host.c_str(), address.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), address.data()) == 1;
}

Status load_authorities(SSL_CTX* context, const std::string& path) {
  struct stat about {};
  const bool exists = ::stat(path.c_str(), &about) == 0;
  const bool is_loaded =
      exists && (S_ISDIR(about.st_mode) ? SSL_CTX_load_verify_dir(context, path.c_str()) == 1
                                        : SSL_CTX_load_verify_file(context, path.c_str()) == 1);
  if (is_loaded) return {};
  const std::string why = exists ? openssl_error() : "no such file";
  ERR_clear_error();
  return Status(Code::kInvalidArgument,
                "cannot read certificate authorities from \"" + path + "\": " + why);
}

void load_system_authorities(SSL_CTX* context) {
  // Not SSL_CTX_set_default_verify_paths(): it reads the environment.
  for (const char* path : kSystemBundles) {
    if (SSL_CTX_load_verify_file(context, path) == 1) break;
  }
  static_cast<void>(SSL_CTX_load_verify_dir(context, X509_get_default_cert_dir()));
  ERR_clear_error();
}

}  // namespace

/// What OpenSSL calls back.
struct TlsCallbacks {
  static TlsSession& of(const SSL* ssl) { return *static_cast<TlsSession*>(SSL_get_app_data(ssl)); }

  static int read(BIO* bio, char* out, std::size_t size_bytes, std::size_t* got_bytes) {
    auto& input = static_cast<TlsSession*>(BIO_get_data(bio))->input_;
    BIO_clear_retry_flags(bio);
    *got_bytes = std::min(size_bytes, input.size());
    if (*got_bytes == 0) {
      BIO_set_retry_read(bio);
      return 0;
    }
    std::memcpy(out, input.data(), *got_bytes);
    input = input.subspan(*got_bytes);
    return 1;
  }
  static int write(BIO* bio, const char* bytes, std::size_t size_bytes, std::size_t* put_bytes) {
    auto& output = static_cast<TlsSession*>(BIO_get_data(bio))->output_;
    const auto* first = reinterpret_cast<const std::byte*>(bytes);
    output.insert(output.end(), first, first + size_bytes);
    *put_bytes = size_bytes;
    return 1;
  }
  static long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

  static int on_ticket(SSL* ssl, SSL_SESSION* session) {
    TlsResumption* resumption = of(ssl).resumption_;
    if (resumption == nullptr) return 0;
    resumption->clear();
    resumption->session_ = session;
    return 1;  // takes the reference
  }

  /// "SERVER_TRAFFIC_SECRET_0 <client random> <secret>": the only way to the secret that OpenSSL
  /// offers. It is kept until receiving has been taken over and goes nowhere else.
  static void on_secret(const SSL* ssl, const char* line) {
    constexpr std::string_view kLabel = "SERVER_TRAFFIC_SECRET_0 ";
    std::string_view text(line);
    if (text.substr(0, kLabel.size()) != kLabel) return;
    text.remove_prefix(text.rfind(' ') + 1);
    std::vector<std::byte>& secret = of(ssl).server_secret_;
    OPENSSL_cleanse(secret.data(), secret.size());
    secret.clear();
    secret.reserve(64);  // never grows: no copies are left behind
    for (std::size_t i = 0; i + 1 < text.size(); i += 2)
      secret.push_back(static_cast<std::byte>(hex_value(text[i]) * 16 + hex_value(text[i + 1])));
  }
};

// --- context ---

Result<std::shared_ptr<TlsContext>> TlsContext::create(const TlsOptions& options) {
  std::shared_ptr<TlsContext> made(new TlsContext());
  made->context_ = SSL_CTX_new(TLS_client_method());
  made->method_ = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "headrace");
  SSL_CTX* context = made->context_;
  if (context == nullptr || made->method_ == nullptr)
    return Status(Code::kInternal, "TLS: " + openssl_error());
  BIO_meth_set_read_ex(made->method_, TlsCallbacks::read);
  BIO_meth_set_write_ex(made->method_, TlsCallbacks::write);
  BIO_meth_set_ctrl(made->method_, TlsCallbacks::control);
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  constexpr unsigned char kProtocols[] = "\x08http/1.1";
  if (SSL_CTX_set_ciphersuites(context, kSuites) != 1 ||
      SSL_CTX_set_cipher_list(context, kOldCiphers) != 1 ||
      SSL_CTX_set_alpn_protos(context, kProtocols, sizeof(kProtocols) - 1) != 0)
    return Status(Code::kInternal, "TLS: " + openssl_error());
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
  SSL_CTX_sess_set_new_cb(context, TlsCallbacks::on_ticket);
  SSL_CTX_set_keylog_callback(context, TlsCallbacks::on_secret);
  SSL_CTX_set_verify(context, options.verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
  if (!options.verify) return made;
  for (const std::string& path : options.authorities) HEADRACE_TRY(load_authorities(context, path));
  if (options.authorities.empty()) load_system_authorities(context);
  return made;
}

TlsContext::~TlsContext() {
  SSL_CTX_free(context_);
  BIO_meth_free(method_);
}

void TlsResumption::clear() noexcept {
  SSL_SESSION_free(session_);
  session_ = nullptr;
}

// --- session ---

Result<std::unique_ptr<TlsSession>> TlsSession::create(std::shared_ptr<TlsContext> context,
                                                       const std::string& host,
                                                       TlsResumption* resumption) {
  std::unique_ptr<TlsSession> session(new TlsSession());
  session->context_ = std::move(context);
  session->host_ = host;
  session->resumption_ = resumption;
  SSL* ssl = session->ssl_ = SSL_new(session->context_->context_);
  BIO* bio = BIO_new(session->context_->method_);
  if (ssl == nullptr || bio == nullptr) {
    BIO_free(bio);
    return Status(Code::kInternal, "TLS: " + openssl_error());
  }
  BIO_set_data(bio, session.get());
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl, bio, bio);
  SSL_set_app_data(ssl, session.get());
  SSL_set_connect_state(ssl);
  // A certificate names addresses in another field than names, and no SNI is sent for them.
  const bool is_set = is_numeric(host)
                          ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str()) == 1
                          : SSL_set1_host(ssl, host.c_str()) == 1 &&
                                SSL_set_tlsext_host_name(ssl, host.c_str()) == 1;
  if (!is_set) {
    ERR_clear_error();
    return Status(Code::kInvalidArgument, "TLS: \"" + host + "\" cannot be a server's name");
  }
  SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  if (resumption != nullptr && resumption->session_ != nullptr)
    SSL_set_session(ssl, resumption->session_);
  return session;
}

TlsSession::~TlsSession() {
  OPENSSL_cleanse(server_secret_.data(), server_secret_.size());
  if (ssl_ == nullptr) return;
  // Without this OpenSSL takes the end for an accident and spoils the ticket.
  if (is_established_) SSL_set_shutdown(ssl_, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
  SSL_free(ssl_);
}

bool TlsSession::is_resumed() const noexcept { return SSL_session_reused(ssl_) == 1; }

std::string TlsSession::description() const {
  return std::string(SSL_get_version(ssl_)) + " " + SSL_get_cipher_name(ssl_);
}

Result<std::size_t> TlsSession::handshake(std::span<const std::byte> input) {
  ERR_clear_error();
  input_ = input;
  const int result = SSL_do_handshake(ssl_);
  const std::size_t taken_bytes = input.size() - std::exchange(input_, {}).size();
  if (result == 1) {
    is_established_ = true;
    take_over_receiving();
    return taken_bytes;
  }
  if (SSL_get_error(ssl_, result) == SSL_ERROR_WANT_READ) return taken_bytes;
  return handshake_error();
}

void TlsSession::take_over_receiving() {
  if (SSL_version(ssl_) == TLS1_3_VERSION && !server_secret_.empty()) {
    const std::uint16_t suite = SSL_CIPHER_get_protocol_id(SSL_get_current_cipher(ssl_));
    auto opener = RecordOpener::create(static_cast<TlsSuite>(suite), server_secret_);
    if (opener) opener_ = *std::move(opener);
  }
  OPENSSL_cleanse(server_secret_.data(), server_secret_.size());
  server_secret_.clear();
  if (opener_) spill_ = std::make_unique_for_overwrite<std::byte[]>(kMaxTlsRecordBytes);
}

// --- what went wrong ---

Status TlsSession::certificate_error(long verdict) const {
  std::string what;
  std::string help = "; name the authority with ca_bundle (tls_verify=false only for tests)";
  switch (verdict) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      what = "it has expired";
      help = "; the server needs a new one, or this machine's clock is wrong";
      break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
      what = "it is not valid yet";
      help = "; is this machine's clock right?";
      break;
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      what = "it is for another name";
      help = "; use the name that it was made for";
      break;
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
      what = "it is self-signed, by an authority that is not known here";
      break;
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      what = "it is signed by an authority that is not known here";
      break;
    default:
      what = X509_verify_cert_error_string(verdict);
  }
  return Status(Code::kDenied,
                "the TLS certificate of " + host_ + " is not accepted: " + what + help);
}

Status TlsSession::handshake_error() {
  const long verdict = SSL_get_verify_result(ssl_);
  const unsigned long code = ERR_peek_error();
  if (verdict != X509_V_OK && SSL_get_verify_mode(ssl_) != SSL_VERIFY_NONE) {
    ERR_clear_error();
    return certificate_error(verdict);
  }
  const int reason = ERR_GET_REASON(code);
  const std::string text = openssl_error();
  if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST)
    return Status(Code::kUnsupported,
                  host_ + " does not speak TLS on this port; is it an http:// endpoint?");
  const bool is_alert = reason > SSL_AD_REASON_OFFSET && reason < SSL_AD_REASON_OFFSET + 256;
  const int alert = is_alert ? reason - SSL_AD_REASON_OFFSET : -1;
  if (alert == SSL_AD_PROTOCOL_VERSION || alert == SSL_AD_HANDSHAKE_FAILURE ||
      alert == SSL_AD_NO_APPLICATION_PROTOCOL || alert == SSL_AD_INSUFFICIENT_SECURITY ||
      reason == SSL_R_UNSUPPORTED_PROTOCOL)
    return Status(Code::kUnsupported,
                  "no common TLS version or cipher with " + host_ + ": " + text);
  const bool is_about_certificate =
      (alert >= SSL_AD_BAD_CERTIFICATE && alert <= SSL_AD_CERTIFICATE_UNKNOWN) ||
      alert == SSL_AD_UNKNOWN_CA || alert == SSL_AD_ACCESS_DENIED || alert == 116;
  if (is_about_certificate)  // 116: certificate_required
    return Status(Code::kDenied, host_ + " wants a client certificate: " + text);
  return Status(Code::kUnavailable, "TLS handshake with " + host_ + ": " + text);
}

// --- receive ---

void TlsSession::take_spill(std::span<std::byte> out, Decrypted& result) {
  const std::size_t bytes = std::min(surplus_bytes(), out.size() - result.produced_bytes);
  if (bytes == 0) return;
  std::memcpy(out.data() + result.produced_bytes, spill_.get() + spill_begin_, bytes);
  spill_begin_ += bytes;
  result.produced_bytes += bytes;
}

Result<TlsSession::Decrypted> TlsSession::decrypt(std::span<const std::byte> input,
                                                  std::span<std::byte> out) {
  const std::size_t unsent_bytes = output_.size();
  auto result = opener_ ? decrypt_by_opener(input, out) : decrypt_by_openssl(input, out);
  if (output_.size() > unsent_bytes && output_.size() > kMaxUnsentBytes)
    return Status(Code::kUnavailable, "TLS: the server asks for new keys and takes no answer");
  return result;
}

Result<TlsSession::Decrypted> TlsSession::decrypt_by_opener(std::span<const std::byte> input,
                                                            std::span<std::byte> out) {
  Decrypted result;
  take_spill(out, result);
  while (result.produced_bytes < out.size() && !is_ended_) {
    const auto rest = input.subspan(result.consumed_bytes);
    const auto record_bytes = tls_record_bytes(rest);
    if (!record_bytes)
      return Status(Code::kUnavailable, std::string(record_bytes.error().message()));
    if (*record_bytes == 0 || *record_bytes > rest.size()) break;
    result.consumed_bytes += *record_bytes;
    HEADRACE_TRY(open_record(rest.first(*record_bytes), out, result));
  }
  result.is_end = is_ended_ && surplus_bytes() == 0;
  return result;
}

Status TlsSession::open_record(std::span<const std::byte> record, std::span<std::byte> out,
                               Decrypted& result) {
  const std::size_t content_bytes = record.size() - kTlsHeaderBytes - kTlsTagBytes - 1;
  const bool fits = content_bytes <= out.size() - result.produced_bytes;
  const std::span<std::byte> target = fits ? out.subspan(result.produced_bytes, content_bytes)
                                           : std::span(spill_.get(), content_bytes);
  auto opened = opener_->open(record, target);
  // Damaged on the way, or by a middlebox: another connection may do.
  if (!opened) return Status(Code::kUnavailable, std::string(opened.error().message()));
  const auto content = target.first(opened->content_bytes);
  switch (opened->type) {
    case TlsContent::kData:
      break;
    case TlsContent::kHandshake:
      return on_handshake_record(record, content);
    case TlsContent::kAlert:
      return on_alert(content, result);
  }
  is_in_step_ = false;
  if (!messages_.empty()) return Status(Code::kUnavailable, "TLS: data inside a handshake message");
  if (fits) {
    result.produced_bytes += content.size();
  } else {
    spill_begin_ = 0;
    spill_end_ = content.size();
    take_spill(out, result);
  }
  return {};
}

Status TlsSession::on_alert(std::span<const std::byte> content, Decrypted&) {
  constexpr std::byte kUserCanceled{90};
  if (content.size() != 2) return Status(Code::kUnavailable, "TLS: malformed alert");
  if (content[1] == std::byte{SSL_AD_CLOSE_NOTIFY}) {
    is_ended_ = true;
    return {};
  }
  if (content[1] == kUserCanceled) return {};  // close_notify follows
  return Status(Code::kUnavailable,
                std::string("TLS alert from ") + host_ + ": " +
                    SSL_alert_desc_string_long(std::to_integer<int>(content[1])));
}

Status TlsSession::on_handshake_record(std::span<const std::byte> record,
                                       std::span<const std::byte> content) {
  if (content.empty()) return Status(Code::kUnavailable, "TLS: empty handshake record");
  if (is_in_step_) {
    // Tickets are OpenSSL's business. They come before the first data, when it still can follow.
    ERR_clear_error();
    input_ = record;
    char nothing = 0;
    const int result = SSL_peek(ssl_, &nothing, 1);
    input_ = {};
    if (result > 0 || SSL_get_error(ssl_, result) != SSL_ERROR_WANT_READ)
      return Status(Code::kUnavailable, "TLS: " + openssl_error());
  }
  if (messages_.size() + content.size() > kMaxMessageBytes)
    return Status(Code::kUnavailable, "TLS: handshake message too long");
  messages_.insert(messages_.end(), content.begin(), content.end());
  std::size_t begin = 0;
  while (messages_.size() - begin >= 4) {
    const auto at = [&](std::size_t i) {
      return std::to_integer<std::size_t>(messages_[begin + i]);
    };
    const std::size_t message_bytes = 4 + (at(1) << 16 | at(2) << 8 | at(3));
    if (message_bytes > messages_.size() - begin) break;
    HEADRACE_TRY(on_message(std::span(messages_).subspan(begin, message_bytes)));
    begin += message_bytes;
  }
  messages_.erase(messages_.begin(), messages_.begin() + static_cast<std::ptrdiff_t>(begin));
  return {};
}

Status TlsSession::on_message(std::span<const std::byte> message) {
  const auto type = std::to_integer<std::uint8_t>(message[0]);
  if (type == kTicketMessage) return {};
  if (type != kKeyUpdateMessage || message.size() != 5 || message[4] > std::byte{1})
    return Status(Code::kUnavailable, "TLS: unexpected handshake message");
  HEADRACE_TRY(opener_->update_keys());
  // In step OpenSSL has seen it, too, and answers by itself.
  return message[4] == std::byte{1} && !is_in_step_ ? answer_key_update() : Status();
}

Status TlsSession::answer_key_update() {
  ERR_clear_error();
  if (SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) != 1 || SSL_do_handshake(ssl_) != 1)
    return Status(Code::kUnavailable, "TLS: cannot change keys: " + openssl_error());
  return {};
}

Result<TlsSession::Decrypted> TlsSession::decrypt_by_openssl(std::span<const std::byte> input,
                                                             std::span<std::byte> out) {
  ERR_clear_error();
  Decrypted result;
  input_ = input;
  while (result.produced_bytes < out.size() && !result.is_end) {
    std::size_t got_bytes = 0;
    const int done = SSL_read_ex(ssl_, out.data() + result.produced_bytes,
                                 out.size() - result.produced_bytes, &got_bytes);
    result.produced_bytes += got_bytes;
    if (done == 1) continue;
    const int error = SSL_get_error(ssl_, done);
    if (error == SSL_ERROR_WANT_READ) break;
    if (error != SSL_ERROR_ZERO_RETURN) {
      input_ = {};
      return Status(Code::kUnavailable, "TLS: " + openssl_error());
    }
    result.is_end = true;
  }
  result.consumed_bytes = input.size() - std::exchange(input_, {}).size();
  const auto pending_bytes = static_cast<std::size_t>(SSL_pending(ssl_));
  spill_begin_ = 0;
  spill_end_ = pending_bytes;  // kept by OpenSSL; only the count is ours
  return result;
}

// --- send ---

Status TlsSession::encrypt(std::span<const std::byte> plain) {
  ERR_clear_error();
  while (!plain.empty()) {
    std::size_t taken_bytes = 0;
    if (SSL_write_ex(ssl_, plain.data(), plain.size(), &taken_bytes) != 1)
      return Status(Code::kUnavailable, "TLS: cannot send: " + openssl_error());
    plain = plain.subspan(taken_bytes);
  }
  return {};
}

void TlsSession::close() {
  if (is_established_) SSL_shutdown(ssl_);
  ERR_clear_error();
}

}  // namespace headrace
