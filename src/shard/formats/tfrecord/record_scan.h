#pragma once
/// \file
/// RecordScan: finds the records of one TFRecord file and the columns of their Examples. Pure.
///
/// Every length's checksum is checked. Payloads that a feed brings whole are checked too; larger
/// ones that it does not are passed over (cut() checks each payload when it is read).
///
/// Threads: one owner.
#include <cstdint>
#include <string>
#include <vector>

#include "shard/formats/tfrecord/example_schema.h"
#include "shard/scan/file_scan.h"

namespace headrace::detail {

/// Payloads up to this size are always read whole, and their checksums checked.
inline constexpr std::uint64_t kSmallRecordBytes = std::uint64_t{64} << 10;
/// Payloads up to this size are always looked at for the schema, whatever the size of the feeds.
inline constexpr std::uint64_t kLeastWholeBytes = std::uint64_t{1} << 20;
/// Those above it as well where the memory allows reading them whole, up to this size: the largest
/// image of ImageNet is 15 MB.
inline constexpr std::uint64_t kMostWholeBytes = std::uint64_t{16} << 20;
inline constexpr std::uint64_t kFirstRecords = 16;

/// What a scan leaves in FileSamples::facts.
struct RecordFacts {
  ExampleSchema schema;
  /// The first kFirstRecords that were looked at are Examples.
  bool begins_with_examples = false;
  /// What is wrong with the first record that is none, and where.
  std::string problem;

  std::string to_text() const;
  static Result<RecordFacts> from_text(std::string_view text);
};

struct RecordScanOptions {
  bool wants_schema = true;
  /// A file that ends inside a record ends before it.
  bool is_lenient = false;
  /// Payloads up to this size are looked at.
  std::uint64_t whole_bytes = kLeastWholeBytes;
};

class RecordScan final : public BoundsScan {
 public:
  /// Bounds: begin of each record, then where the next would begin.
  explicit RecordScan(RecordScanOptions options) : BoundsScan({0}), options_(options) {}

  std::uint64_t needed_bytes() const noexcept override { return needed_bytes_; }
  Status feed(std::span<const std::byte> bytes) override;
  Status finish(std::uint64_t size_bytes) override;
  FileSamples take() override;

 private:
  Status look_at(std::span<const std::byte> payload);
  bool is_wanted(std::uint64_t payload_bytes) const noexcept;
  Status fail(Status status) const;

  const RecordScanOptions options_;
  std::uint64_t needed_bytes_ = 12;
  std::uint64_t looked_at_ = 0;
  RecordFacts facts_;
  std::uint64_t cut_bytes_ = 0;  ///< Lenient: at the end, once finished.
};

}  // namespace headrace::detail
