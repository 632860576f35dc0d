#include "base/errno_status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <utility>

namespace headrace {
namespace {

TEST(ErrnoStatus, EveryRowOfTheTable) {
  const std::pair<int, Code> rows[] = {
      {ENOENT, Code::kNotFound},        {ENOTDIR, Code::kNotFound},
      {EISDIR, Code::kNotFound},        {EACCES, Code::kDenied},
      {EPERM, Code::kDenied},           {EROFS, Code::kDenied},
      {ENOSPC, Code::kExhausted},       {EDQUOT, Code::kExhausted},
      {EFBIG, Code::kExhausted},        {EMFILE, Code::kExhausted},
      {ENFILE, Code::kExhausted},       {ENOMEM, Code::kExhausted},
      {EIO, Code::kUnavailable},        {EAGAIN, Code::kUnavailable},
      {EINTR, Code::kUnavailable},      {EBUSY, Code::kUnavailable},
      {ESTALE, Code::kUnavailable},     {ETIMEDOUT, Code::kUnavailable},
      {EHOSTDOWN, Code::kUnavailable},  {ENOTCONN, Code::kUnavailable},
      {ESHUTDOWN, Code::kUnavailable},  {ECONNRESET, Code::kUnavailable},
      {EINVAL, Code::kInvalidArgument}, {ENAMETOOLONG, Code::kInvalidArgument},
      {ELOOP, Code::kInvalidArgument},  {EILSEQ, Code::kInvalidArgument},
      {EEXIST, Code::kChanged},         {EXDEV, Code::kUnsupported},
      {EOPNOTSUPP, Code::kUnsupported}, {ENOSYS, Code::kUnsupported},
      {EMLINK, Code::kUnsupported},     {ECHRNG, Code::kInternal},
      {12345, Code::kInternal},
  };
  for (const auto& [error, code] : rows) EXPECT_EQ(code_of_errno(error), code) << error;
}

TEST(ErrnoStatus, SaysWhatAndWhy) {
  const Status status = errno_status(ENOSPC, "write /data/x");
  EXPECT_EQ(status.code(), Code::kExhausted);
  EXPECT_EQ(status.message(), "write /data/x: No space left on device (ENOSPC)");
  EXPECT_EQ(errno_status(12345, "x").message(), "x: unknown error (12345)");
}

}  // namespace
}  // namespace headrace
