#include "shard/index/index_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/atomic_file.h"
#include "base/fd.h"

namespace headrace::detail {
namespace {

Status failed(std::string_view action, const std::string& path, int error) {
  return Status(error == ENOENT ? Code::kNotFound : Code::kUnavailable,
                fmt::format("{} {}: {}", action, path, std::generic_category().message(error)));
}

Result<std::string> copy_of(const Fd& fd, const std::string& path, std::size_t size) {
  std::string bytes(size, '\0');
  for (std::size_t done = 0; done < size;) {
    const ssize_t count =
        ::pread(fd.get(), bytes.data() + done, size - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed("reading", path, errno);
    if (count == 0)
      return Status(Code::kChanged, fmt::format("reading {}: was cut off meanwhile", path));
    done += static_cast<std::size_t>(count);
  }
  return bytes;
}

}  // namespace

IndexBytes::IndexBytes(IndexBytes&& other) noexcept
    : owned_(std::move(other.owned_)),
      mapped_(std::exchange(other.mapped_, nullptr)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)) {}

IndexBytes& IndexBytes::operator=(IndexBytes&& other) noexcept {
  std::swap(owned_, other.owned_);
  std::swap(mapped_, other.mapped_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  return *this;
}

IndexBytes::~IndexBytes() {
  if (mapped_ != nullptr) ::munmap(mapped_, mapped_bytes_);
}

Result<IndexBytes> IndexBytes::read(const std::string& path, std::uint64_t most_copied_bytes) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return failed("opening", path, errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return failed("reading", path, errno);
  if (info.st_size <= 0) return failed("reading", path, EINVAL);
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size <= most_copied_bytes) {
    HEADRACE_TRY_ASSIGN(std::string copy, copy_of(fd, path, size));
    return IndexBytes(std::move(copy));
  }
  IndexBytes out;
  out.mapped_bytes_ = size;
  void* at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) return failed("mapping", path, errno);
  out.mapped_ = at;
  return out;
}

std::span<const std::byte> IndexBytes::bytes() const noexcept {
  if (mapped_ != nullptr) return {static_cast<const std::byte*>(mapped_), mapped_bytes_};
  if (owned_) return std::as_bytes(std::span(*owned_));
  return {};
}

std::string cached_index_path(const std::string& dir, std::string_view url,
                              std::string_view manifest) {
  std::string name(url);
  name.push_back('\0');
  name.append(manifest);
  const XXH128_hash_t hash = XXH3_128bits(name.data(), name.size());
  return fmt::format("{}/{:016x}{:016x}.hri", dir, hash.high64, hash.low64);
}

Status publish_file(const std::string& path, std::string_view bytes) {
  make_private_directories(path.substr(0, path.rfind('/')));
  return atomic_write_private_file(path, bytes);
}

}  // namespace headrace::detail
