#pragma once
/// \file
/// StreamInflater: decompression piece by piece, in bounded memory, for those who read an object
/// from front to back and do not hold it.
///
/// Place: builders that scan compressed objects; inflate() uses it for codecs without a one-shot
/// call. Pure.
///
/// Threads: one owner.
#include <cstddef>
#include <memory>
#include <span>

#include "headrace/status.h"
#include "shard/index/hri.h"

namespace headrace::detail {

class StreamInflater {
 public:
  /// Of kGzip, kZlib, kBzip2, kBrotli, kXz, kZstd. Errors: kUnsupported (the others: they cannot be
  /// inflated in pieces), kExhausted.
  static Result<std::unique_ptr<StreamInflater>> create(Compression compression);

  StreamInflater(const StreamInflater&) = delete;
  StreamInflater& operator=(const StreamInflater&) = delete;
  virtual ~StreamInflater() = default;

  struct Step {
    std::size_t consumed_bytes = 0;
    std::size_t produced_bytes = 0;
  };
  /// Takes bytes from the front of `in` and writes to the front of `out` until one of them is used
  /// up (output that found no room comes with the next call, which may then bring no input).
  /// Everything that comes after the end of a member must be another (gzip, bzip2, xz, zstd) or
  /// zeros (gzip, xz). Memory: at most 16 MiB for brotli, 128 MiB for xz and zstd, 4 MiB for the
  /// others. Errors: kCorrupt, kUnsupported (an xz or zstd window beyond the bound); nothing more
  /// can be asked after one.
  Result<Step> step(std::span<const std::byte> in, std::span<std::byte> out);
  /// True when the input may end here: behind a whole member, and not before the first. Ask after a
  /// step that left room in `out`.
  bool is_complete() const noexcept { return is_between_ && has_begun_; }

 protected:
  struct Codec {
    std::string_view name;
    bool may_repeat = true;     ///< Several members may follow one another.
    bool may_be_padded = true;  ///< Zeros may follow a member.
  };
  explicit StreamInflater(const Codec& codec) : codec_(codec) {}
  struct Coded {
    Step step;
    bool is_end = false;  ///< Of a member; begin() is called before the next.
  };
  virtual Status begin() = 0;
  /// At most 1 GiB each; `out` is not empty.
  virtual Result<Coded> code(std::span<const std::byte> in, std::span<std::byte> out) = 0;
  Status corrupt(std::string_view what) const;

 private:
  const Codec codec_;
  bool is_between_ = true;
  bool has_begun_ = false;
};

}  // namespace headrace::detail
