// Pages of a private mapping are the file's until somebody here writes to them; from then on they
// are this process's own copies, and no longer follow the file. keep() makes that so for all pages
// at once; PageMap::drop_written() takes it back for those where it happened, which costs a third
// of a millisecond for 36 MiB, where mapping and touching them anew costs 4 ms.
#include "mem/private_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "mem/size_class.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace headrace::mem {
namespace {

std::span<std::byte> map(void* at, std::size_t size_bytes, int protection, int flags, int fd,
                         std::uint64_t begin) {
  void* const mapped =
      ::mmap(at, size_bytes, protection, MAP_PRIVATE | flags, fd, static_cast<off_t>(begin));
  if (mapped == MAP_FAILED) return {};
  return {static_cast<std::byte*>(mapped), size_bytes};
}

/// Addresses for so many bytes from a multiple of 2 MiB on, without memory.
std::span<std::byte> reserve(std::size_t size_bytes) {
  return map(nullptr, size_bytes + kHugePageBytes, PROT_NONE, MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

bool is_written(std::uint64_t page) noexcept {
  constexpr std::uint64_t kPresent = std::uint64_t{1} << 63;
  constexpr std::uint64_t kSwapped = std::uint64_t{1} << 62;
  constexpr std::uint64_t kOfFile = std::uint64_t{1} << 61;
  return (page & (kPresent | kSwapped)) != 0 && (page & kOfFile) == 0;
}

/// Drops the written of some pages, which begin at `at`.
bool drop(std::byte* at, std::span<const std::uint64_t> pages) noexcept {
  for (auto first = pages.begin();;) {
    first = std::find_if(first, pages.end(), is_written);
    if (first == pages.end()) return true;
    const auto last = std::find_if_not(first, pages.end(), is_written);
    const auto size = static_cast<std::size_t>(last - first) * kPageBytes;
    std::byte* const begin = at + (first - pages.begin()) * std::ptrdiff_t{kPageBytes};
    if (::madvise(begin, size, MADV_DONTNEED) != 0) return false;
    first = last;
  }
}

}  // namespace

Result<std::unique_ptr<PrivateMapping>> PrivateMapping::create(int fd, std::uint64_t begin,
                                                               std::size_t size_bytes) {
  constexpr int kBoth = PROT_READ | PROT_WRITE;
  std::span<std::byte> room, bytes;
  if (size_bytes < kHugePageBytes) {
    room = bytes = map(nullptr, size_bytes, kBoth, 0, fd, begin);
  } else if (room = reserve(size_bytes); !room.empty()) {
    const auto address = reinterpret_cast<std::uintptr_t>(room.data());
    const std::size_t lead = (kHugePageBytes - address % kHugePageBytes) % kHugePageBytes;
    bytes = map(room.data() + lead, size_bytes, kBoth, MAP_FIXED, fd, begin);
  }
  if (!bytes.empty()) return std::unique_ptr<PrivateMapping>(new PrivateMapping(room, bytes));
  const int problem = errno;
  if (!room.empty()) ::munmap(room.data(), room.size());
  return Status(Code::kExhausted,
                std::string("cannot map a batch's memory: ") + std::strerror(problem));
}

PrivateMapping::~PrivateMapping() { ::munmap(room_.data(), room_.size()); }

void PrivateMapping::keep() const noexcept {
  if (::madvise(bytes_.data(), bytes_.size(), MADV_POPULATE_WRITE) == 0) return;
  // Before Linux 5.14: a write to each page makes it a copy.
  for (std::size_t i = 0; i < bytes_.size(); i += kPageBytes) {
    volatile std::byte& first = bytes_[i];
    first = first;
  }
}

PageMap::PageMap() : fd_(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)) {}

PageMap::~PageMap() {
  if (fd_ >= 0) ::close(fd_);
}

bool PageMap::drop_written(std::span<std::byte> bytes) const noexcept {
  std::array<std::uint64_t, 4096> pages;
  const std::size_t count = (bytes.size() + kPageBytes - 1) / kPageBytes;
  for (std::size_t done = 0; done < count;) {
    const auto part = std::span(pages).first(std::min(count - done, pages.size()));
    std::byte* const at = bytes.data() + done * kPageBytes;
    const auto offset = reinterpret_cast<std::uintptr_t>(at) / kPageBytes * sizeof(std::uint64_t);
    const auto got = ::pread(fd_, part.data(), part.size_bytes(), static_cast<off_t>(offset));
    if (got != static_cast<ssize_t>(part.size_bytes()) || !drop(at, part)) return false;
    done += part.size();
  }
  return true;
}

}  // namespace headrace::mem
