#pragma once
/// \file
/// Engine memory seen from Python, and Python memory seen from the engine.
#include <cstddef>
#include <memory>
#include <span>

#include "bind.h"
#include "headrace/memory.h"
#include "process.h"

namespace headrace {

/// Python object over part of a slab; supports the buffer protocol. The slab returns to its pool
/// when the object and every view of it are gone. In a forked child it leaks instead: the pool's
/// lock may be held there for ever.
class SlabBuffer {
 public:
  SlabBuffer(std::shared_ptr<SlabPool> pool, Slab slab, std::size_t length_bytes)
      : owned_(std::make_unique<Owned>(Owned{std::move(pool), std::move(slab)})),
        length_bytes_(length_bytes),
        generation_(fork_generation()) {}
  SlabBuffer(SlabBuffer&&) noexcept = default;
  SlabBuffer& operator=(SlabBuffer&&) = delete;
  ~SlabBuffer() {
    if (generation_ != fork_generation()) static_cast<void>(owned_.release());
  }
  std::span<std::byte> bytes() const noexcept { return owned_->slab.bytes().first(length_bytes_); }

 private:
  struct Owned {
    std::shared_ptr<SlabPool> pool;  // Outlives the slab.
    Slab slab;
  };
  std::unique_ptr<Owned> owned_;
  std::size_t length_bytes_;
  std::uint32_t generation_;
};

void bind_buffers(nb::module_& m);

/// A memoryview (format "B", writable) that owns the slab.
nb::object make_memoryview(SlabBuffer buffer);

/// The bytes of a Python object with the buffer protocol, held for the life of this. Raises
/// TypeError otherwise, and BufferError for one that cannot be written where that `is_written`.
class BufferArgument {
 public:
  explicit BufferArgument(nb::handle object, bool is_written = false) {
    const int flags = is_written ? PyBUF_WRITABLE : PyBUF_SIMPLE;
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nb::python_error();
  }
  ~BufferArgument() { PyBuffer_Release(&view_); }
  BufferArgument(const BufferArgument&) = delete;
  BufferArgument& operator=(const BufferArgument&) = delete;
  std::span<const std::byte> bytes() const noexcept {
    return {static_cast<const std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }
  /// \pre is_written.
  std::span<std::byte> writable() const noexcept {
    return {static_cast<std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 private:
  Py_buffer view_{};
};

}  // namespace headrace
