#pragma once
/// \file
/// What the tests of the vendors' protocols ask of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "auth/renewing.h"
#include "headrace/memory.h"
#include "store/http_protocol.h"

namespace headrace::vendor {

/// The head of a request that must succeed.
template <class T>
std::string head_of(HttpProtocol& protocol, const T& request, std::chrono::sys_seconds now) {
  std::string text;
  const Status status = protocol.append_head(request, HeadContext{now, nullptr}, text);
  EXPECT_TRUE(status.ok()) << status.message();
  return text;
}

/// Of bytes 100 to 149.
inline Request get_of(std::string_view key, std::string_view etag = {}) {
  Request request;
  request.key = key;
  request.etag = etag;
  request.offset_bytes = 100;
  request.length_bytes = 50;
  return request;
}

inline Request put_of(SlabPool& pool, std::string_view bytes) {
  Request request;
  request.op = Op::kPut;
  request.key = "key";
  request.length_bytes = bytes.size();
  request.slab = *pool.try_acquire(bytes.size());
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(request.slab.bytes().data()));
  return request;
}

/// Hands out one token, unless it is taken away; keeps what was refused.
class FakeTokens final : public auth::TokenProvider {
 public:
  Result<std::shared_ptr<const auth::Token>> current(auth::WallTime) override {
    if (token == nullptr) return Status(Code::kUnavailable, "being fetched");
    return token;
  }
  bool invalidate(const auth::Token& given) override {
    refused.push_back(given.text);
    return can_renew;
  }

  std::shared_ptr<const auth::Token> token =
      std::make_shared<const auth::Token>(auth::Token{"ya29.tok", std::nullopt});
  std::vector<std::string> refused;
  bool can_renew = true;
};

}  // namespace headrace::vendor
