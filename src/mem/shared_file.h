#pragma once
/// \file
/// SharedFile: memory of slabs that other processes can map: parts of one file without a name
/// (memfd), each mapped by itself.
///
/// Threads: the caller's lock.
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "mem/size_class.h"

namespace headrace::mem {

class SharedFile {
 public:
  SharedFile() = default;
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;
  /// Unmaps all. Other processes keep what they have mapped.
  ~SharedFile();

  /// Of the file, which is made by the first map(); -1 before, and where the system refuses one.
  int fd() const noexcept { return fd_; }
  /// A slab of the class; null when the system refuses. \pre index < kClassCount.
  std::byte* map(std::uint32_t index);
  /// Gives a slab's memory and addresses back; its place in the file is used again.
  void unmap(std::byte* slab) noexcept;
  /// Where in the file a slab lies that map() gave.
  std::uint64_t offset_of(std::byte* slab) const noexcept { return places_.at(slab).offset; }

 private:
  struct Place {
    std::uint64_t offset = 0;
    std::uint32_t index = 0;
  };

  /// Makes the file; false when the system refuses.
  bool open();
  /// Place for one more slab of the class; false when the system refuses.
  bool add_place(std::uint32_t index);

  int fd_ = -1;
  bool is_refused_ = false;
  std::uint64_t end_bytes_ = 0;
  std::array<std::vector<std::uint64_t>, kClassCount> free_offsets_;
  std::array<std::size_t, kClassCount> place_counts_{};
  std::map<std::byte*, Place> places_;  ///< Of what is mapped.
};

}  // namespace headrace::mem
