#pragma once
/// \file
/// TarScan: finds the samples of one tar. Pure.
///
/// Threads: one owner.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shard/formats/webdataset/sample_grouper.h"
#include "shard/scan/file_scan.h"

namespace headrace::detail {

/// What a scan leaves in FileSamples::facts.
struct TarFacts {
  std::vector<std::string> suffixes;

  std::string to_text() const;
  static Result<TarFacts> from_text(std::string_view text);
};

class TarScan final : public FileScan {
 public:
  /// `is_lenient`: what tarfile and so WebDataset pass over in silence ends the file: a bad header
  /// behind the first, a cut header, data after the end mark. Otherwise these are errors.
  explicit TarScan(bool is_lenient) : is_lenient_(is_lenient) {}

  std::uint64_t offset() const noexcept override { return offset_; }
  std::uint64_t needed_bytes() const noexcept override { return needed_bytes_; }
  Status feed(std::span<const std::byte> bytes) override;
  Status finish(std::uint64_t size_bytes) override;
  std::uint64_t held_bytes() const noexcept override {
    return grouper_.bounds().size() * sizeof(std::uint64_t);
  }
  FileSamples take() override;

 private:
  Status step(std::span<const std::byte>& bytes, bool& is_starved);
  Status check_globals(const TarMember& member);
  Status check_tail(std::span<const std::byte> bytes);
  Status fail(Status status) const;

  const bool is_lenient_;
  std::uint64_t offset_ = 0;
  std::uint64_t needed_bytes_ = kTarBlockBytes;
  std::uint64_t member_begin_ = 0;  ///< Of the last member.
  std::uint64_t data_end_ = 0;
  bool has_global_name_ = false;  ///< A global header further up sets it.
  bool has_global_size_ = false;
  bool is_after_end_ = false;
  bool is_given_up_ = false;                ///< Lenient: the rest is not looked at.
  std::optional<std::uint64_t> cut_begin_;  ///< Lenient: what is passed over begins there.
  std::uint64_t cut_bytes_ = 0;             ///< Once finished.
  SampleGrouper grouper_;
};

}  // namespace headrace::detail
