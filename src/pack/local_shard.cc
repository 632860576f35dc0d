#include "pack/local_shard.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace headrace::pack_detail {
namespace {

// From here on copy_file_range() is cheaper than reading into the buffer: it saves one copy and
// costs one write of what is in the buffer (tmpfs, Xeon, November 2026).
constexpr std::uint64_t kKernelCopyBytes = 8 << 10;
// Between two looks at stop.
constexpr std::uint64_t kKernelPieceBytes = 4 << 20;

}  // namespace

/// Where the next bytes go; never empty while the status is good.
std::span<std::byte> LocalShard::room() {
  if (filled_ == buffer_.size()) flush();
  return status_.ok() ? buffer_.subspan(filled_) : std::span<std::byte>();
}

void LocalShard::flush() {
  if (!status_.ok()) return;
  if (stop_.stop_requested()) {
    status_ = Status(Code::kCancelled, "pack: stopped");
    return;
  }
  const auto bytes = buffer_.first(filled_);
  if (digest_) digest_->update(bytes);
  status_ = file_.write(bytes);
  filled_ = 0;
}

void LocalShard::put(std::string_view literal) {
  while (!literal.empty()) {
    const auto to = room();
    if (to.empty()) return;
    const std::size_t count = std::min(to.size(), literal.size());
    std::memcpy(to.data(), literal.data(), count);
    filled_ += count;
    literal.remove_prefix(count);
  }
}

void LocalShard::put_zeros(std::uint64_t length) {
  while (length > 0) {
    const auto to = room();
    if (to.empty()) return;
    const std::size_t count = std::min<std::uint64_t>(to.size(), length);
    std::memset(to.data(), 0, count);
    filled_ += count;
    length -= count;
  }
}

void LocalShard::put_file(std::uint64_t file, std::uint64_t /*size*/) {
  if (!status_.ok()) return;
  // Empty files as well: one may have been written to since it was listed.
  Status copied = copy_file(plan_.files[file]);
  if (status_.ok()) status_ = std::move(copied).annotate("pack");
}

Status LocalShard::copy_file(const ObjectInfo& file) {
  HEADRACE_TRY(files_.open(file));
  HEADRACE_TRY_ASSIGN(std::uint64_t offset, copy_in_kernel(file));
  while (offset < file.size_bytes && status_.ok()) {
    const auto to = room();
    if (to.empty()) return {};  // The reason is in status_.
    const std::size_t count = std::min<std::uint64_t>(to.size(), file.size_bytes - offset);
    HEADRACE_TRY(files_.read(offset, to.first(count)));
    filled_ += count;
    offset += count;
  }
  return files_.check();
}

Result<std::uint64_t> LocalShard::copy_in_kernel(const ObjectInfo& file) {
  std::uint64_t offset = 0;
  if (digest_ || file.size_bytes < kKernelCopyBytes || !can_copy_in_kernel_) return offset;
  if (filled_ > 0) flush();
  while (status_.ok() && offset < file.size_bytes) {
    if (stop_.stop_requested()) {
      status_ = Status(Code::kCancelled, "pack: stopped");
      break;
    }
    const std::uint64_t piece = std::min(file.size_bytes - offset, kKernelPieceBytes);
    auto from = static_cast<off_t>(offset);
    const ssize_t count = ::copy_file_range(files_.fd(), &from, file_.fd(), nullptr, piece, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      // Not between these file systems, or something that read() and write() will tell.
      can_copy_in_kernel_ = false;
      break;
    }
    offset += static_cast<std::uint64_t>(count);
  }
  return offset;
}

Status LocalShard::finish() {
  if (filled_ > 0) flush();
  return std::move(status_);
}

}  // namespace headrace::pack_detail
