#pragma once
/// \file
/// LineScan: finds the lines of one text file, and what the first of them look like. Pure.
///
/// A line ends behind its "\n"; the last may lack it. JSON lines: a blank line (spaces, tabs, "\r")
/// is no sample and belongs to the one before it, or to the first.
///
/// Threads: one owner.
#include <cstdint>
#include <string>
#include <vector>

#include "shard/formats/text/text_layout.h"
#include "shard/scan/file_scan.h"

namespace headrace::detail {

class LineScan final : public BoundsScan {
 public:
  /// Bounds: begin of each sample, then where the next would begin.
  LineScan(TextKind kind, bool wants_fields)
      : BoundsScan({0}), kind_(kind), is_looking_(wants_fields && kind == TextKind::kJson) {}

  std::uint64_t needed_bytes() const noexcept override { return 1; }
  Status feed(std::span<const std::byte> bytes) override;
  Status finish(std::uint64_t size_bytes) override;
  FileSamples take() override;

 private:
  void end_line();
  bool look_at(std::string_view line);

  const TextKind kind_;
  bool has_text_ = false;  ///< Of the line that goes on: something but blanks.
  bool has_bytes_ = false;
  std::uint64_t sample_count_ = 0;
  std::uint64_t line_count_ = 0;  ///< Blank ones too.
  bool is_looking_;
  std::string line_;  ///< While looking: the line so far.
  TextFields fields_;
};

}  // namespace headrace::detail
