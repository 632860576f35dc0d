#include "shard/webdataset/tar_scan.h"

#include <fmt/format.h>

#include <algorithm>

namespace headrace::detail {

Status TarScan::fail(Status status) const {
  return std::move(status).annotate(fmt::format("at byte {}", offset_));
}

Status TarScan::feed(std::span<const std::byte> bytes) {
  bool is_starved = false;
  while (!is_done() && !is_starved) {
    if (is_after_end_) return check_tail(bytes);
    HEADRACE_TRY(step(bytes, is_starved));
  }
  if (is_done()) grouper_.finish(size_bytes_);
  return Status();
}

// Parses one member from the front of `bytes` and moves on to the next; `bytes` runs dry when that
// lies beyond them.
Status TarScan::step(std::span<const std::byte>& bytes, bool& is_starved) {
  const bool is_all = offset_ + bytes.size() >= size_bytes_;
  TarNameBuffer buffer;
  auto parsed = parse_tar_member(bytes, buffer);
  if (!parsed) return fail(std::move(parsed).error());
  if (parsed->step == TarStep::kNeedMore) {
    if (is_all) return fail(Status(Code::kCorrupt, "tar: the file ends inside a header"));
    needed_bytes_ = parsed->needed_bytes;
    is_starved = true;
    return Status();
  }
  needed_bytes_ = kTarBlockBytes;
  if (parsed->step == TarStep::kZeroBlock) {
    is_after_end_ = true;
    return Status();
  }
  const TarMember& member = parsed->member;
  if (member.data_begin + member.data_bytes > size_bytes_ - offset_) {
    return fail(
        Status(Code::kCorrupt,
               fmt::format("tar: '{}' has {} bytes of data, the file ends after {}", member.name,
                           member.data_bytes, size_bytes_ - offset_ - member.data_begin)));
  }
  if (Status status = grouper_.add(member, offset_); !status.ok()) return fail(std::move(status));
  offset_ += member.end;
  is_starved = member.end >= bytes.size();
  if (!is_starved) bytes = bytes.subspan(member.end);
  return Status();
}

Status TarScan::check_tail(std::span<const std::byte> bytes) {
  const auto found =
      std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b != std::byte{0}; });
  offset_ += static_cast<std::uint64_t>(found - bytes.begin());
  if (found != bytes.end())
    return fail(Status(Code::kCorrupt, "tar: data after the end mark; readers stop before it"));
  if (is_done()) grouper_.finish(size_bytes_);
  return Status();
}

}  // namespace headrace::detail
