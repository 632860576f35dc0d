#pragma once
/// \file
/// For tests: an authority, certificates by it, and the server's side of a TLS connection in
/// memory, all by OpenSSL.
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace headrace {

/// Signs certificates that clients trust who know its pem().
class TestAuthority {
 public:
  struct Leaf {
    std::string name = "DNS:localhost,IP:127.0.0.1";  ///< subjectAltName
    long valid_from_s = -3600;                        ///< From now.
    long valid_until_s = 3600;
  };
  TestAuthority() : key_(EVP_EC_gen("P-256")), certificate_(make(key_, nullptr, {})) {}
  ~TestAuthority() {
    X509_free(certificate_);
    EVP_PKEY_free(key_);
  }
  TestAuthority(const TestAuthority&) = delete;
  TestAuthority& operator=(const TestAuthority&) = delete;

  std::string pem() const {
    BIO* bio = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(bio, certificate_);
    char* text = nullptr;
    const long size_bytes = BIO_get_mem_data(bio, &text);
    std::string out(text, static_cast<std::size_t>(size_bytes));
    BIO_free(bio);
    return out;
  }
  /// A server's context with a certificate of this authority; the caller frees it.
  SSL_CTX* server_context(const Leaf& leaf) const {
    SSL_CTX* context = SSL_CTX_new(TLS_server_method());
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* certificate = make(key, this, leaf);
    HEADRACE_CHECK(SSL_CTX_use_certificate(context, certificate) == 1);
    HEADRACE_CHECK(SSL_CTX_use_PrivateKey(context, key) == 1);
    X509_free(certificate);
    EVP_PKEY_free(key);
    const unsigned char id[] = "test";
    SSL_CTX_set_session_id_context(context, id, 4);
    return context;
  }

 private:
  static X509* make(EVP_PKEY* key, const TestAuthority* issuer, const Leaf& leaf) {
    static long serial = 0;
    X509* certificate = X509_new();
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(certificate), issuer ? leaf.valid_from_s : -7200);
    X509_gmtime_adj(X509_getm_notAfter(certificate), issuer ? leaf.valid_until_s : 7200);
    X509_NAME* name = X509_get_subject_name(certificate);
    const auto* text = reinterpret_cast<const unsigned char*>(issuer ? "leaf" : "authority");
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, text, -1, -1, 0);
    X509* signer = issuer ? issuer->certificate_ : certificate;
    X509_set_issuer_name(certificate, X509_get_subject_name(signer));
    X509_set_pubkey(certificate, key);
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, signer, certificate, nullptr, nullptr, 0);
    const int kind = issuer ? NID_subject_alt_name : NID_basic_constraints;
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(
        nullptr, &context, kind, issuer ? leaf.name.c_str() : "critical,CA:TRUE");
    HEADRACE_CHECK(extension != nullptr);
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
    HEADRACE_CHECK(X509_sign(certificate, issuer ? issuer->key_ : key, EVP_sha256()) > 0);
    return certificate;
  }

  EVP_PKEY* key_;
  X509* certificate_;
};

/// The server's side in memory.
class TlsTestPeer {
 public:
  explicit TlsTestPeer(SSL_CTX* context) : ssl_(SSL_new(context)) {
    in_ = BIO_new(BIO_s_mem());
    out_ = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl_, in_, out_);
    SSL_set_accept_state(ssl_);
  }
  ~TlsTestPeer() {
    SSL_set_shutdown(ssl_, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    SSL_free(ssl_);
  }
  TlsTestPeer(const TlsTestPeer&) = delete;
  TlsTestPeer& operator=(const TlsTestPeer&) = delete;

  SSL* ssl() { return ssl_; }
  void feed(std::span<const std::byte> bytes) {
    if (!bytes.empty()) BIO_write(in_, bytes.data(), static_cast<int>(bytes.size()));
  }
  void handshake() { SSL_do_handshake(ssl_); }
  void write(std::string_view text) {
    HEADRACE_CHECK(SSL_write(ssl_, text.data(), static_cast<int>(text.size())) ==
                   static_cast<int>(text.size()));
  }
  std::string read() {
    std::array<char, 65536> bytes;
    std::string out;
    for (int n = 0; (n = SSL_read(ssl_, bytes.data(), bytes.size())) > 0;)
      out.append(bytes.data(), static_cast<std::size_t>(n));
    return out;
  }
  std::vector<std::byte> take() {
    std::vector<std::byte> out(BIO_ctrl_pending(out_));
    if (!out.empty()) BIO_read(out_, out.data(), static_cast<int>(out.size()));
    return out;
  }

 private:
  SSL* ssl_;
  BIO* in_;
  BIO* out_;
};

}  // namespace headrace
