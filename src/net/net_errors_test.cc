#include "net/net_errors.h"

#include <gtest/gtest.h>
#include <netdb.h>

#include <cerrno>

namespace headrace {
namespace {

TEST(NetErrors, EachErrnoHasItsCode) {
  struct Row {
    int error;
    Code code;
  };
  constexpr Row kRows[] = {
      {ECONNRESET, Code::kUnavailable},
      {ECONNREFUSED, Code::kUnavailable},
      {ECONNABORTED, Code::kUnavailable},
      {EPIPE, Code::kUnavailable},
      {ETIMEDOUT, Code::kUnavailable},
      {EHOSTUNREACH, Code::kUnavailable},
      {EHOSTDOWN, Code::kUnavailable},
      {ENETUNREACH, Code::kUnavailable},
      {ENETDOWN, Code::kUnavailable},
      {ENETRESET, Code::kUnavailable},
      {EADDRNOTAVAIL, Code::kUnavailable},
      {EPROTO, Code::kUnavailable},
      {EIO, Code::kUnavailable},
      {EMFILE, Code::kExhausted},
      {ENFILE, Code::kExhausted},
      {ENOMEM, Code::kExhausted},
      {ENOBUFS, Code::kExhausted},
      {ECANCELED, Code::kCancelled},
      {EACCES, Code::kDenied},
      {EPERM, Code::kDenied},
      {EAFNOSUPPORT, Code::kUnsupported},
      {EBADF, Code::kInternal},
  };
  for (const Row& row : kRows)
    EXPECT_EQ(status_from_errno(row.error).code(), row.code) << row.error;
}

TEST(NetErrors, MessageNamesWhatWasDone) {
  EXPECT_EQ(status_from_errno(ECONNRESET).message(), "connection reset by peer");
  EXPECT_EQ(status_from_errno(ECONNREFUSED, "connect to 127.0.0.1:1").message(),
            "connect to 127.0.0.1:1: connection refused");
}

TEST(NetErrors, OnlyAnUnknownNameIsFinal) {
  EXPECT_EQ(status_from_resolver(EAI_NONAME, "h").code(), Code::kNotFound);
  EXPECT_EQ(status_from_resolver(EAI_AGAIN, "h").code(), Code::kUnavailable);
  EXPECT_EQ(status_from_resolver(EAI_FAIL, "h").code(), Code::kUnavailable);
  EXPECT_NE(status_from_resolver(EAI_NONAME, "no.such.host").message().find("no.such.host"),
            std::string_view::npos);
}

}  // namespace
}  // namespace headrace
