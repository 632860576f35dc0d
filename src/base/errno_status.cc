#include "base/errno_status.h"

#include <cerrno>

#include "base/errno_names.h"

namespace headrace {

Code code_of_errno(int error) noexcept {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:  // a directory is not an object
      return Code::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return Code::kDenied;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return Code::kExhausted;
    case EIO:  // from network file systems as often as from a dying disk; a second try tells them
               // apart
    case EAGAIN:
    case EINTR:
    case EBUSY:
    case ESTALE:
    case ETIMEDOUT:
    case EHOSTDOWN:
    case ENOTCONN:
    case ESHUTDOWN:
    case ECONNRESET:
      return Code::kUnavailable;
    case EINVAL:
    case ENAMETOOLONG:
    case ELOOP:
    case EILSEQ:
      return Code::kInvalidArgument;
    case EEXIST:
      return Code::kChanged;
    case EXDEV:
    case EOPNOTSUPP:
    case ENOSYS:
    case EMLINK:
      return Code::kUnsupported;
    default:
      return Code::kInternal;
  }
}

Status errno_status(int error, std::string what) {
  const char* const name = errno_name(error);
  const char* const text = errno_text(error);
  what.append(": ").append(text != nullptr ? text : "unknown error");
  what.append(" (").append(name != nullptr ? name : std::to_string(error)).append(")");
  return Status(code_of_errno(error), std::move(what));
}

}  // namespace headrace
