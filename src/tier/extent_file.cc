// Invariants:
// - A file has its final name only when it is complete: it is written without a name (O_TMPFILE)
//   and linked, or, where the file system knows no such files, under a name that begins with a dot,
//   which then goes. Nothing is synchronised: after a loss of power a file may hold anything, and
//   its sums tell.
// - Nothing is believed but what a sum covers: the header by its own, each chunk by one in it. A
//   file under another's name is found by the name in the header.
#include "tier/extent_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "base/endian.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/read_at.h"

namespace headrace::tier {
namespace {

constexpr std::string_view kMagic = "HRXT";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kFixedBytes = 72;
constexpr std::size_t kSumAt = 68;
constexpr std::uint64_t kLeastChunkBytes = std::uint64_t{64} << 10;
constexpr std::uint64_t kMostChunks = 512;

std::uint64_t chunk_bytes_of(std::uint64_t length) noexcept {
  std::uint64_t chunk = kLeastChunkBytes;
  while ((length - 1) / chunk + 1 > kMostChunks) chunk *= 2;
  return chunk;
}

Status corrupt(std::string_view why) {
  return Status(Code::kCorrupt, "cached file: " + std::string(why));
}

std::uint32_t sum_of_header(std::span<const std::byte> header) noexcept {
  constexpr std::array<std::byte, 4> kZeros{};
  const std::uint32_t before = crc32c(header.first(kSumAt));
  return crc32c(header.subspan(kSumAt + 4), crc32c(kZeros, before));
}

/// The header of an open file, proved.
class Header {
 public:
  /// `data` is filled with what follows the header, in the same call of the system, as far as
  /// data_came() tells then.
  Status read(int fd, const ExtentName* name, std::span<std::byte> data) {
    HEADRACE_TRY(read_both(fd, data));
    if (std::memcmp(bytes_.data(), kMagic.data(), kMagic.size()) != 0) return corrupt("no header");
    if (half(4) != kVersion) return corrupt("another version");
    if (half(kSumAt) != sum_of_header(bytes_)) return corrupt("the header does not match its sum");
    const ExtentName found = this->name();
    if (name != nullptr && found != *name) return corrupt("of another extent");
    const std::uint64_t length = found.length_bytes;
    if (length == 0 || chunk_bytes() != chunk_bytes_of(length) ||
        half(12) != (length - 1) / chunk_bytes() + 1 || etag_bytes() > kHeaderBytes ||
        url_bytes() > kHeaderBytes || texts_at() + etag_bytes() + url_bytes() > kHeaderBytes)
      return corrupt("a header that contradicts itself");
    return {};
  }

  ExtentName name() const noexcept { return {{word(16), word(24)}, word(32), word(40)}; }
  std::uint64_t object_size_bytes() const noexcept { return word(48); }
  std::uint64_t chunk_bytes() const noexcept { return half(8); }
  std::uint32_t sum(std::uint64_t chunk) const noexcept { return half(kFixedBytes + 4 * chunk); }
  std::size_t data_came() const noexcept { return data_came_; }
  std::string etag() const { return text(texts_at(), etag_bytes()); }
  std::string url() const { return text(texts_at() + etag_bytes(), url_bytes()); }

 private:
  std::uint64_t word(std::size_t at) const noexcept {
    return load_le<std::uint64_t>(bytes_.data() + at);
  }
  std::uint32_t half(std::size_t at) const noexcept {
    return load_le<std::uint32_t>(bytes_.data() + at);
  }
  std::size_t etag_bytes() const noexcept { return half(56); }
  std::size_t url_bytes() const noexcept { return half(60); }
  std::size_t texts_at() const noexcept { return kFixedBytes + 4 * std::size_t{half(12)}; }
  std::string text(std::size_t at, std::size_t size) const {
    return {reinterpret_cast<const char*>(bytes_.data()) + at, size};
  }

  Status read_both(int fd, std::span<std::byte> data) {
    std::array<iovec, 2> parts = {iovec{bytes_.data(), bytes_.size()},
                                  iovec{data.data(), data.size()}};
    ssize_t count = -1;
    do {
      count = ::preadv(fd, parts.data(), data.empty() ? 1 : 2, 0);
    } while (count < 0 && errno == EINTR);
    if (count < 0) return errno_status(errno, "reading a cached file");
    if (static_cast<std::size_t>(count) < bytes_.size()) return corrupt("shorter than a header");
    data_came_ = static_cast<std::size_t>(count) - bytes_.size();
    return {};
  }

  HeaderBytes bytes_;
  std::size_t data_came_ = 0;
};

/// Reads all of [from, from + out.size()) of the file's data, of which `came` bytes are there.
Status read_rest(int fd, std::uint64_t from, std::span<std::byte> out, std::size_t came) {
  const auto rest = out.subspan(std::min(came, out.size()));
  const std::int64_t count = read_at(fd, kHeaderBytes + from + (out.size() - rest.size()), rest);
  if (count < 0) return errno_status(static_cast<int>(-count), "reading a cached file");
  if (static_cast<std::size_t>(count) < rest.size()) return corrupt("ends too early");
  return {};
}

/// One chunk of which only a part is wanted.
Status read_part(int fd, const Header& header, std::uint64_t chunk, std::uint64_t skipped_bytes,
                 std::span<std::byte> out, std::vector<std::byte>& scratch) {
  const std::uint64_t at = chunk * header.chunk_bytes();
  scratch.resize(std::min(header.chunk_bytes(), header.name().length_bytes - at));
  HEADRACE_TRY(read_rest(fd, at, scratch, 0));
  if (crc32c(scratch) != header.sum(chunk)) return corrupt("bytes that do not match their sum");
  std::memcpy(out.data(), scratch.data() + skipped_bytes, out.size());
  return {};
}

Status write_all(int fd, std::span<const std::byte> header, std::span<const std::byte> data) {
  std::array<iovec, 2> parts = {iovec{const_cast<std::byte*>(header.data()), header.size()},
                                iovec{const_cast<std::byte*>(data.data()), data.size()}};
  std::span<iovec> left(parts);
  while (!left.empty()) {
    ssize_t count = ::writev(fd, left.data(), static_cast<int>(left.size()));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_status(errno, "writing a cached file");
    while (!left.empty() && static_cast<std::size_t>(count) >= left.front().iov_len) {
      count -= static_cast<ssize_t>(left.front().iov_len);
      left = left.subspan(1);
    }
    if (left.empty()) break;
    left.front().iov_base = static_cast<std::byte*>(left.front().iov_base) + count;
    left.front().iov_len -= static_cast<std::size_t>(count);
  }
  return {};
}

/// Where files without a name are not known.
Status publish_by_name(int directory, const std::string& name, std::span<const std::byte> header,
                       std::span<const std::byte> data) {
  static std::atomic<std::uint64_t> next{0};
  const std::string temporary =
      ".new-" + std::to_string(::getpid()) + "-" + std::to_string(next.fetch_add(1));
  const Fd fd(
      ::openat(directory, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) return errno_status(errno, "making a cached file");
  Status status = write_all(fd.get(), header, data);
  if (status.ok() && ::linkat(directory, temporary.c_str(), directory, name.c_str(), 0) != 0)
    status = errno_status(errno, "naming a cached file");
  ::unlinkat(directory, temporary.c_str(), 0);
  return status;
}

}  // namespace

HeaderBytes make_header(const ExtentInfo& info, std::span<const std::byte> data) {
  HeaderBytes header{};
  std::byte* const at = header.data();
  const std::uint64_t chunk_bytes = chunk_bytes_of(data.size());
  std::uint32_t chunk = 0;
  std::byte* end = at + kFixedBytes;
  for (auto rest = data; !rest.empty(); ++chunk, end += 4) {
    const auto bytes = rest.first(std::min<std::size_t>(chunk_bytes, rest.size()));
    store_le<std::uint32_t>(end, crc32c(bytes));
    rest = rest.subspan(bytes.size());
  }
  const auto add_text = [&](std::string_view text) {
    const auto room = static_cast<std::size_t>(at + kHeaderBytes - end);
    text = text.substr(0, room);
    std::memcpy(end, text.data(), text.size());
    end += text.size();
    return static_cast<std::uint32_t>(text.size());
  };
  std::memcpy(at, kMagic.data(), kMagic.size());
  store_le<std::uint32_t>(at + 4, kVersion);
  store_le<std::uint32_t>(at + 8, static_cast<std::uint32_t>(chunk_bytes));
  store_le<std::uint32_t>(at + 12, chunk);
  store_le<std::uint64_t>(at + 16, info.name.object.high);
  store_le<std::uint64_t>(at + 24, info.name.object.low);
  store_le<std::uint64_t>(at + 32, info.name.offset_bytes);
  store_le<std::uint64_t>(at + 40, info.name.length_bytes);
  store_le<std::uint64_t>(at + 48, info.object_size_bytes);
  store_le<std::uint32_t>(at + 56, add_text(info.etag));
  store_le<std::uint32_t>(at + 60, add_text(info.url));
  store_le<std::uint32_t>(at + kSumAt, sum_of_header(header));
  return header;
}

Result<ExtentInfo> read_info(int fd, const ExtentName* name) {
  Header header;
  HEADRACE_TRY(header.read(fd, name, {}));
  return ExtentInfo{.name = header.name(),
                    .object_size_bytes = header.object_size_bytes(),
                    .url = header.url(),
                    .etag = header.etag()};
}

Status read_extent(int fd, const ExtentName& name, std::uint64_t from_bytes,
                   std::span<std::byte> out, std::uint64_t& object_size_bytes) {
  thread_local Header header;  // Keeps its memory.
  thread_local std::vector<std::byte> scratch;
  HEADRACE_TRY(header.read(fd, &name, from_bytes == 0 ? out : std::span<std::byte>()));
  object_size_bytes = header.object_size_bytes();
  const std::uint64_t chunk_bytes = header.chunk_bytes();
  std::uint64_t at = from_bytes;
  std::span<std::byte> rest = out;
  if (at % chunk_bytes != 0) {
    const std::size_t skipped = at % chunk_bytes;
    const auto part = rest.first(std::min<std::size_t>(rest.size(), chunk_bytes - skipped));
    HEADRACE_TRY(read_part(fd, header, at / chunk_bytes, skipped, part, scratch));
    at += part.size();
    rest = rest.subspan(part.size());
  }
  // Whole chunks, the extent's last one included, land where they are wanted.
  const bool ends_extent = at + rest.size() == name.length_bytes;
  const std::size_t whole = ends_extent ? rest.size() : rest.size() / chunk_bytes * chunk_bytes;
  HEADRACE_TRY(read_rest(fd, at, rest.first(whole), header.data_came()));
  for (std::size_t done = 0; done < whole; done += chunk_bytes) {
    const auto bytes = rest.subspan(done, std::min<std::size_t>(chunk_bytes, whole - done));
    if (crc32c(bytes) != header.sum((at + done) / chunk_bytes))
      return corrupt("bytes that do not match their sum");
  }
  if (whole == rest.size()) return {};
  return read_part(fd, header, (at + whole) / chunk_bytes, 0, rest.subspan(whole), scratch);
}

Status publish_extent(int directory, const ExtentName& name, std::span<const std::byte> header,
                      std::span<const std::byte> data) {
  const std::string shown = file_name(name);
  const Fd fd(::openat(directory, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600));
  if (!fd) {
    if (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT || errno == EINVAL)
      return publish_by_name(directory, shown, header, data);
    return errno_status(errno, "making a cached file");
  }
  HEADRACE_TRY(write_all(fd.get(), header, data));
  // linkat() by descriptor wants a privilege; by this path it wants none (open(2), O_TMPFILE).
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", fd.get());
  if (::linkat(AT_FDCWD, path.data(), directory, shown.c_str(), AT_SYMLINK_FOLLOW) == 0) return {};
  if (errno == ENOENT) return publish_by_name(directory, shown, header, data);  // No /proc.
  return errno_status(errno, "naming a cached file");
}

}  // namespace headrace::tier
