#include "headrace/second_look.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

namespace headrace {

std::uint64_t SecondLook::digest_of(std::span<const std::byte> bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

SecondLook::Verdict SecondLook::take(std::uint64_t digest) {
  if (std::find(seen_.begin(), seen_.end(), digest) != seen_.end()) return Verdict::kData;
  seen_.push_back(digest);
  return seen_.size() < kMostReads ? Verdict::kReadAgain : Verdict::kNeverSame;
}

Status SecondLook::never_same(const Status& last) {
  return Status(Code::kUnavailable,
                fmt::format("the same bytes came differently each of {} times that they were read, "
                            "on connections of their own; the last time: {}",
                            kMostReads, last.message()));
}

}  // namespace headrace
