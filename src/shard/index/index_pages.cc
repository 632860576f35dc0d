// One place a page, chosen by a hash, without a list of what was used last: a look takes one lock
// of one stripe and no other thread's page is moved. Two pages that fall on the same place drive
// each other out, which costs a read of 4 KiB from the kernel's own cache.
//
// After each read the head of the file is read again and compared with the one that the index was
// opened with. The order matters: a file that was written over before the page was read shows its
// new head by then. Once anything failed, everything does: boundaries of two indexes must not be
// mixed.
#include "shard/index/index_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/random.h"
#include "base/read_at.h"

namespace headrace::detail {

IndexPages::IndexPages(Fd fd, std::string path, std::span<const std::byte> image,
                       std::size_t head_bytes)
    : fd_(std::move(fd)),
      path_(std::move(path)),
      image_(image),
      head_bytes_(head_bytes),
      tags_(kMostPages),
      pages_(new Page[kMostPages]) {}

void IndexPages::read(const std::byte* at, std::span<std::byte> out) const noexcept {
  auto offset = static_cast<std::uint64_t>(at - image_.data());
  bool is_good = offset <= image_.size() && out.size() <= image_.size() - offset && !has_failed();
  for (std::size_t done = 0; is_good && done < out.size();) {
    const std::uint64_t page = (offset + done) / kPageBytes;
    const std::size_t from = (offset + done) % kPageBytes;
    const auto part = out.subspan(done, std::min(out.size() - done, kPageBytes - from));
    is_good = find(page, from, part) || load(page, from, part);
    done += part.size();
  }
  if (!is_good) std::fill(out.begin(), out.end(), std::byte{});
}

bool IndexPages::find(std::uint64_t page, std::size_t from,
                      std::span<std::byte> out) const noexcept {
  const std::size_t place = mix64(page) % kMostPages;
  MutexLock lock(mutexes_[place % kStripes]);
  if (tags_[place] != page + 1) return false;
  std::copy_n(pages_[place].begin() + static_cast<std::ptrdiff_t>(from), out.size(), out.begin());
  return true;
}

bool IndexPages::load(std::uint64_t page, std::size_t from,
                      std::span<std::byte> out) const noexcept {
  Page bytes;
  const std::uint64_t begin = page * kPageBytes;
  const std::size_t size = std::min<std::uint64_t>(kPageBytes, image_.size() - begin);
  if (!read_range(begin, std::span(bytes).first(size)).ok()) return false;
  std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(from), out.size(), out.begin());
  keep(page, bytes);
  return true;
}

void IndexPages::keep(std::uint64_t page, const Page& bytes) const noexcept {
  const std::size_t place = mix64(page) % kMostPages;
  MutexLock lock(mutexes_[place % kStripes]);
  tags_[place] = page + 1;
  pages_[place] = bytes;
}

Status IndexPages::read_range(std::uint64_t begin, std::span<std::byte> out) const noexcept {
  if (has_failed()) return status();
  const auto read_all = [this](std::uint64_t from, std::span<std::byte> to) {
    const std::int64_t count = read_at(fd_.get(), from, to);
    if (count < 0) {
      const std::string why = std::generic_category().message(static_cast<int>(-count));
      return fail(Status(Code::kUnavailable, fmt::format("reading {}: {}", path_, why)));
    }
    if (static_cast<std::size_t>(count) < to.size())
      return fail(Status(Code::kChanged,
                         fmt::format("reading {}: the index was cut off meanwhile", path_)));
    return Status();
  };
  HEADRACE_TRY(read_all(begin, out));
  // Afterwards: what was written over the file before the read is seen.
  Page head;
  const auto now = std::span(head).first(std::min(head_bytes_, kPageBytes));
  HEADRACE_TRY(read_all(0, now));
  if (std::memcmp(now.data(), image_.data(), now.size()) == 0) return Status();
  return fail(Status(Code::kChanged, fmt::format("reading {}: it is another index by now", path_)));
}

Status IndexPages::fail(Status why) const noexcept {
  MutexLock lock(failure_mutex_);
  if (failure_.ok()) failure_ = why.clone();
  has_failed_.store(true, std::memory_order_release);
  return why;
}

Status IndexPages::status() const {
  if (!has_failed()) return Status();
  MutexLock lock(failure_mutex_);
  return failure_.clone();
}

}  // namespace headrace::detail
