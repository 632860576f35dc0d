#include "decode/image/resizer.h"

#include <algorithm>
#include <cstring>

#include "decode/image/scratch.h"

namespace headrace::detail {
namespace {

constexpr std::uint32_t kRowsAtOnce = 8;
/// Rows beyond those that one result takes: the more, the rarer what is still needed moves up.
constexpr std::uint32_t kSpareRows = 56;

std::size_t stride_of(std::size_t row_bytes) noexcept {
  return (row_bytes + kRowSpill + 63) / 64 * 64;
}
std::uint32_t room_for(std::uint32_t taps) noexcept { return taps + taps / 2 + kSpareRows; }

}  // namespace

Resizer::Resizer(const ResizeTable& across, const ResizeTable& down, std::uint32_t channels,
                 WindowRows& out) noexcept
    : across_(across),
      down_(down),
      channels_(channels),
      out_(out),
      row_bytes_(across.first.size() * channels),
      stride_bytes_(stride_of(row_bytes_)),
      room_(room_for(down.taps)),
      middle_(thread_scratch().take(ScratchUse::kMiddle, room_ * stride_bytes_ + kRowPadding)) {}

std::uint64_t Resizer::workspace_bytes(std::uint64_t taps, std::uint64_t row_bytes) noexcept {
  return (taps + taps / 2 + kSpareRows) * (row_bytes + 128) + kRowPadding;
}

void Resizer::take(const Rows& rows) noexcept {
  for (std::uint32_t y = 0; y < rows.count; y += kRowsAtOnce)
    take_some({rows.row(y), rows.stride_bytes, std::min(kRowsAtOnce, rows.count - y)});
}

void Resizer::make_room() noexcept {
  const std::uint32_t needed =
      written_ < down_.first.size() ? std::min(down_.first[written_], taken_) : taken_;
  const std::size_t held = taken_ - needed;
  std::memmove(middle_, middle_ + (needed - held_from_) * stride_bytes_, held * stride_bytes_);
  held_from_ = needed;
}

void Resizer::take_some(const Rows& rows) noexcept {
  if (taken_ - held_from_ + kRowsAtOnce > room_) make_room();
  std::uint8_t* to = middle_ + (taken_ - held_from_) * stride_bytes_;
  if (across_.is_copy) {
    for (std::uint32_t y = 0; y < rows.count; ++y)
      std::memcpy(to + y * stride_bytes_, rows.row(y), row_bytes_);
  } else {
    resize_passes().across(across_, channels_, rows, to, stride_bytes_);
  }
  taken_ += rows.count;
  write_finished();
}

void Resizer::write_finished() noexcept {
  const auto count = static_cast<std::uint32_t>(down_.first.size());
  for (; written_ < count; ++written_) {
    const std::uint32_t end = std::min(down_.first[written_] + down_.taps, down_.in_count);
    if (end > taken_) return;
    const std::uint8_t* from = middle_ + (down_.first[written_] - held_from_) * stride_bytes_;
    std::uint8_t* to = out_.begin_row(written_);
    if (down_.is_copy) {
      std::memcpy(to, middle_ + (written_ - held_from_) * stride_bytes_, row_bytes_);
    } else {
      resize_passes().down(down_, written_, {from, stride_bytes_, down_.taps}, row_bytes_, to);
    }
    out_.finish_row(written_);
  }
}

}  // namespace headrace::detail
