#pragma once
/// \file
/// Resizer: rows of a region in, rows of the result out, as soon as they can be made.
///
/// What lies between the two passes are only the rows that results still need, so it stays in a
/// near cache, and a tall image takes no more memory than a flat one.
///
/// Threads: one owner; takes the thread's scratch.
#include "decode/image/image_plan.h"
#include "decode/image/pixel_writer.h"
#include "decode/image/resize.h"

namespace headrace::detail {

/// Takes finished rows, of the window only: 8 bits, channels side by side.
class WindowRows {
 public:
  virtual ~WindowRows() = default;
  /// Where row `y` of the window is to be written.
  virtual std::uint8_t* begin_row(std::uint32_t y) noexcept = 0;
  virtual void finish_row(std::uint32_t y) noexcept = 0;
};

class Resizer final : public RowSink {
 public:
  Resizer(const ResizeTable& across, const ResizeTable& down, std::uint32_t channels,
          WindowRows& out) noexcept;
  bool is_ready() const noexcept { return middle_ != nullptr; }
  /// Row i is row down.in_begin + i of the image, beginning with column across.in_begin.
  void take(const Rows& rows) noexcept override;

  static std::uint64_t workspace_bytes(std::uint64_t taps, std::uint64_t row_bytes) noexcept;

 private:
  void make_room() noexcept;
  void take_some(const Rows& rows) noexcept;
  void write_finished() noexcept;

  const ResizeTable& across_;
  const ResizeTable& down_;
  const std::uint32_t channels_;
  WindowRows& out_;
  const std::size_t row_bytes_;
  const std::size_t stride_bytes_;
  const std::uint32_t room_;     ///< Rows that `middle_` holds.
  std::uint32_t held_from_ = 0;  ///< Row that is first in `middle_`.
  std::uint32_t taken_ = 0;      ///< Rows so far.
  std::uint32_t written_ = 0;    ///< Results so far.
  std::uint8_t* middle_ = nullptr;
};

}  // namespace headrace::detail
