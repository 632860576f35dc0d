#pragma once
/// \file
/// LocalShard: a shard written from files of a directory to a file of a directory, piece after
/// piece through one small buffer that stays in the processor's cache, in the caller's thread; long
/// files are copied by the kernel where nothing is hashed.
///
/// Threads: one owner.
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/atomic_file.h"
#include "pack/digest.h"
#include "pack/local_files.h"
#include "pack/shard_image.h"

namespace headrace::pack_detail {

class LocalShard final : public ImageSink {
 public:
  /// `buffer` is not empty; all references outlive the shard.
  LocalShard(const PackPlan& plan, LocalFiles& files, TemporaryFile& file,
             std::span<std::byte> buffer, std::stop_token stop)
      : plan_(plan), files_(files), file_(file), buffer_(buffer), stop_(std::move(stop)) {}

  /// Hashes what is written. Call before the first piece.
  void hash_with(Digest digest) { digest_.emplace(std::move(digest)); }

  void put(std::string_view literal) override;
  void put_zeros(std::uint64_t length) override;
  void put_file(std::uint64_t file, std::uint64_t size) override;
  bool wants_more() const override { return status_.ok(); }

  /// Writes what is left. The first error of any piece: kCancelled (stop), kChanged (a file is not
  /// as listed), others of errno_status().
  Status finish();
  /// The hash, empty without hash_with(). After finish().
  std::string hash() { return digest_ ? digest_->finish() : std::string(); }

 private:
  std::span<std::byte> room();
  void flush();
  Status copy_file(const ObjectInfo& file);
  /// Lets the kernel copy the open file from its start, as far as it can; returns how far it went.
  Result<std::uint64_t> copy_in_kernel(const ObjectInfo& file);

  const PackPlan& plan_;
  LocalFiles& files_;
  TemporaryFile& file_;
  std::span<std::byte> buffer_;
  std::size_t filled_ = 0;
  std::stop_token stop_;
  std::optional<Digest> digest_;
  bool can_copy_in_kernel_ = true;
  Status status_;
};

}  // namespace headrace::pack_detail
