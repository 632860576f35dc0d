#pragma once
/// \file
/// The server's side of TLS: certificate, key, versions. Immutable once made; any thread.
#include <openssl/ssl.h>

#include <memory>
#include <optional>
#include <string>

#include "base/atomic_file.h"
#include "headrace/sim.h"
#include "headrace/status.h"

namespace headrace::sim {

class TlsContext {
 public:
  /// With the certificate named by the options, or one for localhost, *.localhost, and all
  /// addresses of the server by an authority made for it, whose PEM is written to a temporary file.
  /// What a killed process left of such files the next one removes.
  /// Errors: kInvalidArgument (files), kInternal (OpenSSL), of errno_status().
  static Result<std::unique_ptr<TlsContext>> create(const SimOptions& options);
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;
  SSL_CTX* get() const noexcept { return context_.get(); }
  /// PEM that a client must trust.
  const std::string& ca_path() const noexcept { return ca_path_; }

 private:
  struct Free {
    void operator()(SSL_CTX* context) const noexcept { SSL_CTX_free(context); }
  };
  TlsContext() = default;
  Status load(const SimOptions& options);
  Status make_certificate(const SimOptions& options);
  std::unique_ptr<SSL_CTX, Free> context_;
  std::string ca_path_;
  std::optional<headrace::TemporaryFile> ca_file_;  // not with a certificate of the options
};

}  // namespace headrace::sim
