#pragma once
/// \file
/// What names the content of a dataset. Format: docs/formats.md, "Fingerprint".
///
/// Threads: functions; a ContentDigest has one owner.
#include <xxhash.h>

#include <memory>
#include <string>
#include <string_view>

#include "shard/index/hri.h"

namespace headrace::detail {

/// 128 bits over numbers and texts, in the order in which they are added.
class ContentDigest {
 public:
  ContentDigest();
  void add(std::uint64_t number);
  void add(std::string_view text);
  /// The key and size of a file, without its version.
  void add_file(const IndexSource& file);
  /// 32 hex digits.
  std::string text() const;

 private:
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
};

/// 32 hex digits over what an index says of the content, without versions of objects. O(objects).
std::string content_fingerprint(const IndexView& view);

}  // namespace headrace::detail
