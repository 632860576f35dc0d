// Why the file is copied and not mapped: a mapped file that another process cuts short kills the
// reader with SIGBUS. Of large files everything but the boundaries is copied into anonymous memory
// of the file's size; the boundaries, nearly all of it, are read with pread() when they are looked
// at. Their part of the memory stays untouched, and so takes none.
#include "shard/index/index_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/endian.h"
#include "base/fd.h"
#include "base/read_at.h"
#include "shard/index/hri_layout.h"

namespace headrace::detail {
namespace {

Status failed(std::string_view action, const std::string& path, int error) {
  return Status(error == ENOENT ? Code::kNotFound : Code::kUnavailable,
                fmt::format("{} {}: {}", action, path, std::generic_category().message(error)));
}

Status read_into(const Fd& fd, const std::string& path, std::uint64_t offset_bytes,
                 std::span<std::byte> out) {
  const std::int64_t count = read_at(fd.get(), offset_bytes, out);
  if (count < 0) return failed("reading", path, static_cast<int>(-count));
  if (static_cast<std::size_t>(count) < out.size())
    return Status(Code::kChanged, fmt::format("reading {}: was cut off meanwhile", path));
  return Status();
}

}  // namespace

// Memory of nobody else, of the size of the file; pages that are never written take none.
struct IndexBytes::Image {
  explicit Image(std::size_t size_bytes)
      : at(::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)),
        size(size_bytes) {}
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;
  ~Image() {
    if (at != MAP_FAILED) ::munmap(at, size);
  }
  std::span<std::byte> bytes() const noexcept { return {static_cast<std::byte*>(at), size}; }

  void* const at;
  const std::size_t size;
  std::vector<LeftOut> left_out;  ///< Ascending, apart from each other.
  std::once_flag is_filled;
};

IndexBytes::IndexBytes(IndexBytes&&) noexcept = default;
IndexBytes& IndexBytes::operator=(IndexBytes&& other) noexcept {
  owned_ = std::move(other.owned_);
  pages_ = std::move(other.pages_);
  image_ = std::move(other.image_);
  return *this;
}
IndexBytes::~IndexBytes() = default;
IndexBytes::IndexBytes() = default;
IndexBytes::IndexBytes(std::string bytes)
    : owned_(std::make_unique<std::string>(std::move(bytes))) {}

Result<IndexBytes> IndexBytes::read(const std::string& path, std::uint64_t most_copied_bytes) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return failed("opening", path, errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return failed("reading", path, errno);
  if (info.st_size <= 0) return failed("reading", path, EINVAL);
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size > most_copied_bytes) return read_parts(std::move(fd), path, size);
  std::string copy(size, '\0');
  HEADRACE_TRY(read_into(fd, path, 0, std::as_writable_bytes(std::span(copy))));
  return IndexBytes(std::move(copy));
}

// Whether the head makes sense is for IndexView to say; of another file all is read.
Result<IndexBytes> IndexBytes::read_parts(Fd fd, const std::string& path, std::size_t size) {
  IndexBytes out;
  out.image_ = std::make_unique<Image>(size);
  if (out.image_->at == MAP_FAILED) return failed("mapping", path, errno);
  const std::span<std::byte> all = out.image_->bytes();
  constexpr std::size_t kMostHeadBytes =
      hri::kHeaderBytes + hri::kMostSections * hri::kSectionRecordBytes;
  const auto head = all.first(std::min(size, kMostHeadBytes));
  HEADRACE_TRY(read_into(fd, path, 0, head));
  std::vector<LeftOut>& left_out = out.image_->left_out;
  std::size_t head_bytes = std::min(head.size(), hri::kHeaderBytes);
  for (std::size_t at = hri::kHeaderBytes; at + hri::kSectionRecordBytes <= head.size();
       at += hri::kSectionRecordBytes) {
    if ((at - hri::kHeaderBytes) / hri::kSectionRecordBytes >=
        load_le<std::uint32_t>(head.data() + 12)) {
      break;
    }
    head_bytes = at + hri::kSectionRecordBytes;
    const auto id = load_le<std::uint32_t>(head.data() + at);
    const auto offset = load_le<std::uint64_t>(head.data() + at + 8);
    const auto length = load_le<std::uint64_t>(head.data() + at + 16);
    const bool is_bounds = id == hri::kBoundGroups || id == hri::kBoundPacked;
    if (is_bounds && length > 0 && offset <= size && length <= size - offset) {
      left_out.push_back({offset, offset + length});
    }
  }
  std::sort(left_out.begin(), left_out.end(),
            [](const LeftOut& a, const LeftOut& b) { return a.begin < b.begin; });
  std::uint64_t done = head.size();
  for (std::size_t i = 0; i <= left_out.size(); ++i) {
    const std::uint64_t until = i < left_out.size() ? left_out[i].begin : size;
    if (until > done) HEADRACE_TRY(read_into(fd, path, done, all.subspan(done, until - done)));
    if (i < left_out.size()) done = std::max(done, left_out[i].end);
  }
  if (!left_out.empty())
    out.pages_ = std::make_unique<IndexPages>(std::move(fd), path, all, head_bytes);
  return out;
}

std::span<const std::byte> IndexBytes::bytes() const noexcept {
  if (image_) return image_->bytes();
  if (owned_) return std::as_bytes(std::span(*owned_));
  return {};
}

std::span<const std::byte> IndexBytes::whole() const noexcept {
  if (!pages_) return bytes();
  std::call_once(image_->is_filled, [this] {
    for (const LeftOut& part : image_->left_out) {
      const auto out = image_->bytes().subspan(part.begin, part.end - part.begin);
      if (!pages_->read_range(part.begin, out).ok()) return;
    }
  });
  return pages_->has_failed() ? std::span<const std::byte>() : bytes();
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
