#pragma once
/// \file
/// ArrayScan: finds the elements of a file that is one JSON array, and what the first of them look
/// like. Pure.
///
/// An element is a sample: its bytes, without the blanks and commas between elements. Of an element
/// only the balance of quotes, braces and brackets is looked at; cutting it checks the rest.
///
/// Threads: one owner.
#include <cstdint>
#include <string>
#include <vector>

#include "shard/formats/text/text_layout.h"
#include "shard/scan/file_scan.h"

namespace headrace::detail {

class ArrayScan final : public BoundsScan {
 public:
  /// Bounds: begin and end of each element.
  explicit ArrayScan(bool wants_fields) : BoundsScan({}), is_looking_(wants_fields) {}

  std::uint64_t needed_bytes() const noexcept override { return 1; }
  Status feed(std::span<const std::byte> bytes) override;
  Status finish(std::uint64_t size_bytes) override;
  FileSamples take() override;

 private:
  enum class State : std::uint8_t {
    kBegin,    ///< Before the opening bracket.
    kFirst,    ///< Behind it: an element or the end.
    kElement,  ///< Behind a comma: an element.
    kInside,   ///< Of an element.
    kBehind,   ///< An element: a comma or the end.
    kEnd,      ///< Behind the closing bracket.
  };
  Status take_outside(char c);
  /// True when `c` is not part of the element any more: it ended before.
  bool is_over(char c) noexcept;
  void end_element();
  Status wrong(std::string_view what) const;

  State state_ = State::kBegin;
  std::uint32_t depth_ = 0;   ///< Open braces and brackets of the element.
  bool is_complete_ = false;  ///< The element's last bracket, brace or quote has come.
  bool is_in_string_ = false;
  bool is_escaped_ = false;
  bool is_looking_;
  std::string element_;  ///< While looking: the element so far.
  TextFields fields_;
};

}  // namespace headrace::detail
