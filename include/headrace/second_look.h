#pragma once
/// \file
/// SecondLook: whether bytes that make no sense came wrong or are wrong. A bit that flips on the
/// wire is noticed only by the format's own checksums; whoever finds such bytes reads them again
/// (Request::fresh_connection) until the same bytes have come twice: those are the data's fault.
///
/// Place: src/shard/. For whoever reads samples: read/, feed/.
///
/// Threads: one owner.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "headrace/status.h"

namespace headrace {

class SecondLook {
 public:
  enum class Verdict : std::uint8_t {
    kReadAgain,  ///< They came for the first time like this.
    kData,       ///< They came like this before: the object holds them.
    kNeverSame,  ///< They came differently kMostReads times: nobody knows what the object holds.
  };
  /// With one read in ten flipped, six of six differ once in a million.
  static constexpr std::size_t kMostReads = 6;

  static std::uint64_t digest_of(std::span<const std::byte> bytes) noexcept;

  /// Takes what one more read brought that made no sense. `digest`: of all its bytes.
  Verdict take(std::uint64_t digest);
  /// No read has been taken.
  bool is_empty() const noexcept { return seen_.empty(); }
  /// The error of kNeverSame: kUnavailable, with what was wrong with the last one.
  static Status never_same(const Status& last);

 private:
  std::vector<std::uint64_t> seen_;
};

}  // namespace headrace
