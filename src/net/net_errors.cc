#include "net/net_errors.h"

#include <netdb.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/errno_names.h"

namespace headrace {
namespace {

Code code_of(int error) {
  switch (error) {
    case ECONNRESET:
    case ECONNREFUSED:
    case ECONNABORTED:
    case EPIPE:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case ENETRESET:
    case EADDRNOTAVAIL:  // ephemeral ports used up, or no IPv6 here
    case EPROTO:
    case EIO:
      return Code::kUnavailable;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
      return Code::kExhausted;
    case ECANCELED:
      return Code::kCancelled;
    case EACCES:
    case EPERM:
      return Code::kDenied;
    case EAFNOSUPPORT:
      return Code::kUnsupported;
    default:
      return Code::kInternal;
  }
}

std::string text_of(int error) {
  // The texts of logs and searches: lower case, without the C library's locale.
  switch (error) {
    case ECONNRESET:
      return "connection reset by peer";
    case ECONNREFUSED:
      return "connection refused";
    case EPIPE:
      return "connection closed by peer";
    case ETIMEDOUT:
      return "connection timed out";
    default:
      break;
  }
  const char* const text = errno_text(error);
  return text != nullptr ? text : "errno " + std::to_string(error);
}

}  // namespace

Status status_from_errno(int error, std::string_view doing) {
  std::string message(doing);
  if (!message.empty()) message += ": ";
  message += text_of(error);
  return Status(code_of(error), std::move(message));
}

Status status_from_resolver(int error, std::string_view host) {
  const bool is_unknown = error == EAI_NONAME || error == EAI_NODATA || error == EAI_ADDRFAMILY;
  return Status(is_unknown ? Code::kNotFound : Code::kUnavailable,
                "cannot resolve host \"" + std::string(host) + "\": " + ::gai_strerror(error));
}

}  // namespace headrace
