// The file only grows: a slab that is given up leaves a hole, which takes no memory, and whose
// place the next slab of its class gets. Slabs of 2 MiB and more lie at multiples of 2 MiB both in
// the file and in memory, here and where other processes map them: so both can have huge pages.
#include "mem/shared_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "base/check.h"

namespace headrace::mem {
namespace {

bool is_huge(std::uint32_t index) noexcept { return class_bytes(index) >= kHugePageBytes; }

void* map_part(void* at, std::uint64_t size_bytes, int fd, std::uint64_t offset) noexcept {
  const int fixed = at == nullptr ? 0 : MAP_FIXED;
  return ::mmap(at, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | fixed, fd,
                static_cast<off_t>(offset));
}

/// The same at a multiple of 2 MiB.
void* map_part_aligned(std::uint64_t size_bytes, int fd, std::uint64_t offset) noexcept {
  const std::uint64_t room_bytes = size_bytes + kHugePageBytes;
  void* const room =
      ::mmap(nullptr, room_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return MAP_FAILED;
  const auto address = reinterpret_cast<std::uintptr_t>(room);
  const std::uint64_t lead = (kHugePageBytes - address % kHugePageBytes) % kHugePageBytes;
  std::byte* const base = static_cast<std::byte*>(room) + lead;
  void* const at = map_part(base, size_bytes, fd, offset);
  if (at == MAP_FAILED) {
    ::munmap(room, room_bytes);
    return at;
  }
  if (lead > 0) ::munmap(room, lead);
  if (lead < kHugePageBytes) ::munmap(base + size_bytes, kHugePageBytes - lead);
  return at;
}

}  // namespace

SharedFile::~SharedFile() {
  for (const auto& [slab, place] : places_) ::munmap(slab, class_pitch_bytes(place.index));
  if (fd_ >= 0) ::close(fd_);
}

/// Some systems (sandboxes that imitate Linux) have memfd and no holes in it: there unmap() could
/// not give memory back.
bool SharedFile::open() {
  if (is_refused_) return false;
  fd_ = ::memfd_create("headrace-batches", MFD_CLOEXEC);
  const auto page = static_cast<off_t>(kPageBytes);
  is_refused_ = fd_ < 0 || ::ftruncate(fd_, page) != 0 ||
                ::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, page) != 0;
  if (is_refused_ && fd_ >= 0) ::close(std::exchange(fd_, -1));
  return !is_refused_;
}

bool SharedFile::add_place(std::uint32_t index) {
  if (fd_ < 0 && !open()) return false;
  const std::uint64_t unit = is_huge(index) ? kHugePageBytes : kPageBytes;
  const std::uint64_t begin = (end_bytes_ + unit - 1) / unit * unit;
  const std::uint64_t end = begin + class_pitch_bytes(index);
  if (::ftruncate(fd_, static_cast<off_t>(end)) != 0) return false;
  end_bytes_ = end;
  std::vector<std::uint64_t>& free = free_offsets_[index];
  free.reserve(++place_counts_[index]);  // So that unmap() never allocates.
  free.push_back(begin);
  return true;
}

std::byte* SharedFile::map(std::uint32_t index) {
  std::vector<std::uint64_t>& free = free_offsets_[index];
  if (free.empty() && !add_place(index)) return nullptr;
  const std::uint64_t offset = free.back();
  const std::uint64_t size_bytes = class_pitch_bytes(index);
  void* const at = is_huge(index) ? map_part_aligned(size_bytes, fd_, offset)
                                  : map_part(nullptr, size_bytes, fd_, offset);
  if (at == MAP_FAILED) return nullptr;
  free.pop_back();
  auto* const slab = static_cast<std::byte*>(at);
  if (is_huge(index)) {
    // Failure (a system without huge pages for such files) only costs speed.
    const std::uint64_t huge_bytes = class_bytes(index) / kHugePageBytes * kHugePageBytes;
    static_cast<void>(::madvise(slab, huge_bytes, MADV_HUGEPAGE));
    if (huge_bytes < size_bytes)
      static_cast<void>(::madvise(slab + huge_bytes, size_bytes - huge_bytes, MADV_NOHUGEPAGE));
  }
  places_.emplace(slab, Place{.offset = offset, .index = index});
  return slab;
}

void SharedFile::unmap(std::byte* slab) noexcept {
  const auto at = places_.find(slab);
  const Place place = at->second;
  const std::uint64_t size_bytes = class_pitch_bytes(place.index);
  HEADRACE_CHECK(::munmap(slab, size_bytes) == 0);
  HEADRACE_CHECK(::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                             static_cast<off_t>(place.offset),
                             static_cast<off_t>(size_bytes)) == 0);
  places_.erase(at);
  free_offsets_[place.index].push_back(place.offset);
}

}  // namespace headrace::mem
