// Unless they are given, certificates are made at each start, by an authority that nobody has the
// key of any more, and are valid for 30 days: nothing that a client trusts for a test can be used
// against it later. Modes of SSL_write: a connection may go on with another buffer than it began
// with, and a part of it may be written.
#include "sim/tls_context.h"

#include <arpa/inet.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include "base/errno_status.h"

namespace headrace::sim {
namespace {

template <auto kFree>
struct Freeing {
  template <typename T>
  void operator()(T* object) const noexcept {
    kFree(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freeing<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freeing<X509_free>>;

Status failure(const std::string& what) {
  ERR_clear_error();
  return Status(Code::kInternal, "simulator: TLS: cannot " + what);
}

int choose_alpn(SSL*, const unsigned char** out, unsigned char* out_length,
                const unsigned char* offered, unsigned offered_length, void*) {
  static constexpr unsigned char kHttp11[] = "\x08http/1.1";
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_length, kHttp11, sizeof kHttp11 - 1, offered,
                            offered_length) != OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_NOACK;
  }
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

bool add_extension(X509* issuer, X509* certificate, int id, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str());
  const bool is_added = extension != nullptr && X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return is_added;
}

std::string names_of(const SimOptions& options) {
  std::string names = "DNS:localhost,DNS:*.localhost,IP:127.0.0.1,IP:::1";
  in_addr address{};
  if (::inet_pton(AF_INET, options.host.c_str(), &address) != 1) return names;
  for (std::uint32_t i = 0; i < options.address_count; ++i) {
    const in_addr next{htonl(ntohl(address.s_addr) + i)};
    char text[INET_ADDRSTRLEN] = {};
    ::inet_ntop(AF_INET, &next, text, sizeof text);
    names += std::string(",IP:") + text;
  }
  return names;
}

/// A certificate for `key` without extensions and signature; `issuer`: nullptr for its own.
Certificate make_plain(const char* common_name, std::uint64_t serial, EVP_PKEY* key, X509* issuer) {
  Certificate certificate(X509_new());
  X509* x = certificate.get();
  if (x == nullptr) return nullptr;
  constexpr long kDay = 24 * 3600;
  X509_set_version(x, X509_VERSION_3);
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(x), serial);
  // A day before: clients with a clock that is behind.
  X509_gmtime_adj(X509_getm_notBefore(x), -kDay);
  X509_gmtime_adj(X509_getm_notAfter(x), 30 * kDay);
  X509_NAME* name = X509_get_subject_name(x);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(common_name), -1, -1, 0);
  X509_set_issuer_name(x, issuer == nullptr ? name : X509_get_subject_name(issuer));
  X509_set_pubkey(x, key);
  return certificate;
}

/// The authority: clients may trust it, since its key is thrown away when the leaf is signed.
Certificate make_authority(EVP_PKEY* key, std::uint64_t serial) {
  Certificate certificate = make_plain("headrace-sim authority", serial, key, nullptr);
  X509* x = certificate.get();
  const bool is_complete = x != nullptr &&
                           add_extension(x, x, NID_basic_constraints, "critical,CA:TRUE") &&
                           add_extension(x, x, NID_key_usage, "critical,keyCertSign") &&
                           add_extension(x, x, NID_subject_key_identifier, "hash") &&
                           X509_sign(x, key, EVP_sha256()) > 0;
  return is_complete ? std::move(certificate) : nullptr;
}

Certificate make_leaf(EVP_PKEY* key, X509* authority, EVP_PKEY* authority_key, std::uint64_t serial,
                      const SimOptions& options) {
  Certificate certificate = make_plain("headrace-sim", serial, key, authority);
  X509* x = certificate.get();
  const bool is_complete =
      x != nullptr && add_extension(authority, x, NID_basic_constraints, "critical,CA:FALSE") &&
      add_extension(authority, x, NID_key_usage, "critical,digitalSignature") &&
      add_extension(authority, x, NID_subject_key_identifier, "hash") &&
      add_extension(authority, x, NID_authority_key_identifier, "keyid:always") &&
      add_extension(authority, x, NID_ext_key_usage, "serverAuth") &&
      add_extension(authority, x, NID_subject_alt_name, names_of(options)) &&
      X509_sign(x, authority_key, EVP_sha256()) > 0;
  return is_complete ? std::move(certificate) : nullptr;
}

Result<std::string> pem_of(X509* certificate) {
  const std::unique_ptr<BIO, Freeing<BIO_free_all>> memory(BIO_new(BIO_s_mem()));
  if (!memory || PEM_write_bio_X509(memory.get(), certificate) != 1) {
    return failure("write a certificate");
  }
  char* text = nullptr;
  const long length = BIO_get_mem_data(memory.get(), &text);
  return std::string(text, static_cast<std::size_t>(length));
}

}  // namespace

Status TlsContext::load(const SimOptions& options) {
  SSL_CTX* context = context_.get();
  const std::string& key = options.private_key_path;
  if (SSL_CTX_use_certificate_chain_file(context, options.certificate_path.c_str()) != 1 ||
      SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    ERR_clear_error();
    return Status(Code::kInvalidArgument, "simulator: \"" + options.certificate_path + "\" and \"" +
                                              key + "\" are not a PEM certificate and its key");
  }
  ca_path_ = options.certificate_path;
  return {};
}

Status TlsContext::make_certificate(const SimOptions& options) {
  const Key authority_key(EVP_EC_gen("P-256"));
  const Key key(EVP_EC_gen("P-256"));
  std::uint64_t serial = 0;
  // Clients keep certificates by issuer and serial number: each start needs another.
  const bool is_random = RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial) == 1;
  if (!authority_key || !key || !is_random) return failure("make a key");
  serial >>= 2;  // room for the next one, and for the sign
  const Certificate authority = make_authority(authority_key.get(), serial + 1);
  const Certificate leaf =
      authority ? make_leaf(key.get(), authority.get(), authority_key.get(), serial + 2, options)
                : nullptr;
  if (!leaf || SSL_CTX_use_certificate(context_.get(), leaf.get()) != 1 ||
      SSL_CTX_use_PrivateKey(context_.get(), key.get()) != 1) {
    return failure("make a certificate");
  }
  HEADRACE_TRY_ASSIGN(const std::string pem, pem_of(authority.get()));
  std::error_code error;
  const std::string directory = std::filesystem::temp_directory_path(error);
  if (error) return errno_status(error.value(), "find the directory of temporary files");
  remove_stale_temporaries(directory);
  HEADRACE_TRY_ASSIGN(headrace::TemporaryFile file, headrace::TemporaryFile::create(directory));
  ca_file_.emplace(std::move(file));
  ca_path_ = ca_file_->path();
  return ca_file_->write(std::as_bytes(std::span(pem)));
}

Result<std::unique_ptr<TlsContext>> TlsContext::create(const SimOptions& options) {
  std::unique_ptr<TlsContext> out(new TlsContext());
  out->context_.reset(SSL_CTX_new(TLS_server_method()));
  SSL_CTX* context = out->context_.get();
  if (context == nullptr) return failure("start");
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                SSL_MODE_RELEASE_BUFFERS);
  // A client that closes without close_notify has ended all the same.
  SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_alpn_select_cb(context, choose_alpn, nullptr);
  HEADRACE_TRY(options.certificate_path.empty() ? out->make_certificate(options)
                                                : out->load(options));
  return out;
}

}  // namespace headrace::sim
