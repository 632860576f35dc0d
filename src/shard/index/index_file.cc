#include "shard/index/index_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/atomic_file.h"

namespace headrace::detail {
namespace {

Status failed(std::string_view action, const std::string& path, int error) {
  return Status(error == ENOENT ? Code::kNotFound : Code::kUnavailable,
                fmt::format("{} {}: {}", action, path, std::generic_category().message(error)));
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

Result<IndexBytes> IndexBytes::map(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return failed("opening", path, errno);
  struct stat info {};
  if (::fstat(fd, &info) != 0 || info.st_size <= 0) {
    const int error = info.st_size <= 0 ? EINVAL : errno;
    ::close(fd);
    return failed("reading", path, error);
  }
  IndexBytes out;
  out.mapped_bytes_ = static_cast<std::size_t>(info.st_size);
  void* at = ::mmap(nullptr, out.mapped_bytes_, PROT_READ, MAP_SHARED, fd, 0);
  const int error = errno;
  ::close(fd);
  if (at == MAP_FAILED) return failed("mapping", path, error);
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
  std::error_code ignored;  // A directory that cannot be made fails below, with a message.
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  return atomic_write_file(path, bytes);
}

}  // namespace headrace::detail
