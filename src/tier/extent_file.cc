// Invariants:
// - A file has its final name only when it is complete: it is written without a name (O_TMPFILE)
//   and linked, or, where the file system knows no such files, under an unfinished_name(), which
//   then goes, and locked meanwhile, so that those of the dead are known.
//   Nothing is synchronised: after a loss of power a file may hold anything, and its sums tell.
// - Nothing is believed but what a sum covers: the header by its own, each chunk by one in it. A
//   file under another's name is found by the name in the header.
// - O_DIRECT is a way, never a condition: where it is refused, the same goes through the page
//   cache.
#include "tier/extent_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "base/errno_status.h"
#include "base/fd.h"
#include "tier/file_locks.h"
#include "tier/folder.h"

namespace headrace::tier {
namespace {

constexpr std::size_t kPage = kHeaderBytes;
/// From this length on the page cache costs more than a disk's latency is worth. CPU s/GB of
/// writing 8 MiB: 0.87 through it, 0.08 past it (fio, virtio disk, 2 cores, 2026-11-24).
constexpr std::size_t kDirectBytes = std::size_t{256} << 10;
/// Bytes that are read at once on their way to somewhere else: they fit the processor's caches.
constexpr std::uint64_t kAroundBytes = std::uint64_t{512} << 10;

Status corrupt(std::string_view why) {
  return Status(Code::kCorrupt, "cached file: " + std::string(why));
}

bool is_at_page(const void* address) noexcept {
  return reinterpret_cast<std::uintptr_t>(address) % kPage == 0;
}

bool set_direct(int fd, bool is_direct) noexcept {
  return ::fcntl(fd, F_SETFL, is_direct ? O_DIRECT : 0) == 0;
}

struct FreeMemory {
  void operator()(std::byte* memory) const noexcept { std::free(memory); }
};

/// Whole pages of memory, kept by a thread for parts of a file that are not wanted as they lie
/// there.
class Pages {
 public:
  /// `size_bytes`: whole pages. Valid until the next call.
  std::span<std::byte> get(std::size_t size_bytes) {
    if (size_bytes > size_bytes_) {
      memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, size_bytes)));
      if (!memory_) throw std::bad_alloc();
      size_bytes_ = size_bytes;
    }
    return {memory_.get(), size_bytes};
  }

 private:
  std::unique_ptr<std::byte, FreeMemory> memory_;
  std::size_t size_bytes_ = 0;
};

std::span<std::byte> header_page() {
  thread_local Pages own;
  return own.get(kPage);
}

std::size_t up_to_page(std::size_t bytes) noexcept { return (bytes + kPage - 1) / kPage * kPage; }

/// Where bytes of a file go that follow each other in it.
using Parts = std::array<iovec, 3>;

/// What is left of `parts` when `count` bytes of them are there.
std::span<iovec> skip(std::span<iovec> parts, std::size_t count) noexcept {
  while (!parts.empty() && count >= parts.front().iov_len) {
    count -= parts.front().iov_len;
    parts = parts.subspan(1);
  }
  if (parts.empty()) return parts;
  parts.front().iov_base = static_cast<std::byte*>(parts.front().iov_base) + count;
  parts.front().iov_len -= count;
  return parts;
}

/// Reads until `parts` are full or the file ends; `at` moves on. 0 or an errno.
int read_parts(int fd, std::uint64_t& at, std::span<iovec>& parts) noexcept {
  while (!parts.empty()) {
    const ssize_t count =
        ::preadv(fd, parts.data(), static_cast<int>(parts.size()), static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    if (count == 0) return 0;
    at += static_cast<std::uint64_t>(count);
    parts = skip(parts, static_cast<std::size_t>(count));
  }
  return 0;
}

/// The same past the page cache, for parts of whole pages. Not with a look into that first
/// (RWF_NOWAIT): where it has nothing, the kernel begins to read ahead into it, which is what is to
/// be avoided.
int read_pages(int fd, std::uint64_t& at, std::span<iovec>& parts) noexcept {
  if (!set_direct(fd, true)) return read_parts(fd, at, parts);
  const int error = read_parts(fd, at, parts);
  set_direct(fd, false);
  // Of what is left after a short count, or of this device, not so.
  return error == EINVAL ? read_parts(fd, at, parts) : error;
}

/// Reads what is at `at` of the file into `header` (where there is one), then `out`. `is_direct`:
/// past the page cache, for which `out` begins at a page.
Status read_bytes(int fd, std::uint64_t at, std::span<std::byte> header, std::span<std::byte> out,
                  bool is_direct) {
  const std::size_t whole = is_direct ? out.size() / kPage * kPage : out.size();
  const std::size_t rest = out.size() - whole;
  thread_local Pages tail;
  Parts all{};
  std::size_t count = 0;
  const auto add = [&](std::span<std::byte> part) {
    if (!part.empty()) all[count++] = {part.data(), part.size()};
  };
  add(header);
  add(out.first(whole));
  if (rest > 0) add(tail.get(kPage));
  const std::uint64_t end = at + header.size() + out.size();
  std::span<iovec> parts = std::span(all).first(count);
  const int error = is_direct ? read_pages(fd, at, parts) : read_parts(fd, at, parts);
  if (error != 0) return errno_status(error, "reading a cached file");
  if (at < end) return corrupt("ends too early");
  if (rest > 0) std::memcpy(out.data() + whole, tail.get(kPage).data(), rest);
  return {};
}

/// What proves chunks of a file, and decrypts those that are encrypted.
struct Proof {
  const ExtentHeader& header;
  std::optional<seal::Sealer> sealer = {};

  /// \pre `data` begins with a chunk and ends with one.
  Status prove_all(std::uint64_t at, std::span<std::byte> data) {
    const std::uint64_t chunk_bytes = header.chunk_bytes();
    for (std::size_t done = 0; done < data.size(); done += chunk_bytes) {
      const auto bytes = data.subspan(done, std::min<std::size_t>(chunk_bytes, data.size() - done));
      const std::uint64_t chunk = (at + done) / chunk_bytes;
      HEADRACE_TRY(sealer ? header.open(chunk, bytes, *sealer) : header.prove(chunk, bytes));
    }
    return {};
  }
};

/// Reads whole chunks into memory of its own, some at a time, and copies what is wanted of them.
Status read_around(int fd, Proof& proof, std::uint64_t at, std::span<std::byte> out,
                   bool is_direct) {
  const ExtentHeader& header = proof.header;
  thread_local Pages pages;
  const std::uint64_t chunk_bytes = header.chunk_bytes();
  const std::uint64_t most = std::max<std::uint64_t>(chunk_bytes, kAroundBytes);
  while (!out.empty()) {
    const std::uint64_t skipped = at % chunk_bytes;
    const std::uint64_t begin = at - skipped;
    const std::uint64_t wanted = (skipped + out.size() + chunk_bytes - 1) / chunk_bytes;
    const std::uint64_t size = std::min({most / chunk_bytes * chunk_bytes, wanted * chunk_bytes,
                                         header.name().length_bytes - begin});
    const auto chunks = pages.get(up_to_page(size)).first(size);
    HEADRACE_TRY(read_bytes(fd, kHeaderBytes + begin, {}, chunks, is_direct));
    HEADRACE_TRY(proof.prove_all(begin, chunks));
    const std::size_t count = std::min<std::size_t>(size - skipped, out.size());
    std::memcpy(out.data(), chunks.data() + skipped, count);
    out = out.subspan(count);
    at += count;
  }
  return {};
}

Status write_all(int fd, std::span<const std::byte> file) {
  while (!file.empty()) {
    const ssize_t count = ::write(fd, file.data(), file.size());
    if (count < 0 && errno == EINTR) continue;
    // As read_pages().
    if (count < 0 && errno == EINVAL && (::fcntl(fd, F_GETFL) & O_DIRECT) != 0 &&
        set_direct(fd, false))
      continue;
    if (count < 0) return errno_status(errno, "writing a cached file");
    file = file.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

Fd create_file(int directory, const char* path, int flags, std::size_t size) {
  flags |= O_WRONLY | O_CLOEXEC;
  if (size >= kDirectBytes) {
    Fd fd(::openat(directory, path, flags | O_DIRECT, 0600));
    if (fd || errno != EINVAL) return fd;
  }
  return Fd(::openat(directory, path, flags, 0600));
}

/// Where files without a name are not known.
Status publish_by_name(int directory, const std::string& name, std::span<const std::byte> file) {
  const std::string temporary = unfinished_name();
  Fd fd = create_file(directory, temporary.c_str(), O_CREAT | O_EXCL, file.size());
  if (!fd || !share_as_folder(directory, fd.get()))
    return errno_status(errno, "making a cached file");
  const FileLocks writer(std::move(fd));
  static_cast<void>(writer.try_lock(0));
  Status status = write_all(writer.file(), file);
  if (status.ok() && ::linkat(directory, temporary.c_str(), directory, name.c_str(), 0) != 0)
    status = errno_status(errno, "naming a cached file");
  ::unlinkat(directory, temporary.c_str(), 0);
  return status;
}

}  // namespace

bool share_as_folder(int directory, int file) noexcept {
  return ::fchmod(file, file_mode(access_of(directory))) == 0;
}

int link_nameless(int file, int directory, const ExtentName& name) noexcept {
  // linkat() by descriptor wants a privilege; by this path it wants none (open(2), O_TMPFILE).
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", file);
  const int result =
      ::linkat(AT_FDCWD, path.data(), directory, file_name(name).c_str(), AT_SYMLINK_FOLLOW);
  return result == 0 ? 0 : errno;
}

void remove_if_dead(int directory, const char* unfinished) {
  Fd fd(::openat(directory, unfinished, O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return;
  const auto is_dead = FileLocks(std::move(fd)).try_lock(0);
  if (is_dead && *is_dead) ::unlinkat(directory, unfinished, 0);
}

void seal_extent(const ExtentInfo& info, std::span<std::byte> file, const SealKey* key) {
  const auto data = file.subspan(kHeaderBytes, info.name.length_bytes);
  make_header(info, data, file.first(kHeaderBytes), key);
  const auto padding = file.subspan(kHeaderBytes + data.size());
  std::fill(padding.begin(), padding.end(), std::byte{0});
}

Result<ExtentInfo> read_info(int fd, const ExtentName* name) {
  const std::span<std::byte> page = header_page();
  HEADRACE_TRY(read_bytes(fd, 0, page, {}, false));
  const ExtentHeader header(page);
  HEADRACE_TRY(header.check(name));
  return header.info();
}

Status read_extent(int fd, const ExtentName& name, std::uint64_t from_bytes,
                   std::span<std::byte> out, std::uint64_t& object_size_bytes, const SealKey* key) {
  const std::span<std::byte> page = header_page();
  const ExtentHeader header(page);
  Proof proof{header};
  const bool is_long = out.size() >= kDirectBytes;
  // What begins with the extent and is wanted where whole pages can land comes in the call that
  // reads the header: but for a last chunk of which only a part is wanted.
  std::size_t whole = 0;
  if (from_bytes == 0 && (!is_long || is_at_page(out.data()))) {
    const std::uint64_t chunk_bytes = chunk_bytes_of(name.length_bytes, key != nullptr);
    whole = out.size() == name.length_bytes ? out.size() : out.size() / chunk_bytes * chunk_bytes;
  }
  HEADRACE_TRY(read_bytes(fd, 0, page, out.first(whole), is_long));
  HEADRACE_TRY(header.check(&name));
  HEADRACE_TRY(header.check_key(key, proof.sealer));
  object_size_bytes = header.object_size_bytes();
  // Of what came in parts the chunks are others: it is read again, by those.
  if (whole < name.length_bytes && whole % header.chunk_bytes() != 0) whole = 0;
  HEADRACE_TRY(proof.prove_all(0, out.first(whole)));
  return read_around(fd, proof, from_bytes + whole, out.subspan(whole), is_long);
}

Status check_sums(int fd, const ExtentName& name, std::span<std::byte> scratch) {
  const std::span<std::byte> page = header_page();
  const ExtentHeader header(page);
  Proof proof{header};
  HEADRACE_TRY(read_bytes(fd, 0, page, {}, false));
  HEADRACE_TRY(header.check(&name));
  if (!header.is_sealed()) return corrupt("not encrypted");
  return read_around(fd, proof, 0, scratch, true);
}

Status publish_extent(int directory, const ExtentName& name, std::span<const std::byte> file) {
  const std::string shown = file_name(name);
  const Fd fd = create_file(directory, ".", O_TMPFILE, file.size());
  if (!fd) {
    if (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT || errno == EINVAL)
      return publish_by_name(directory, shown, file);
    return errno_status(errno, "making a cached file");
  }
  if (!share_as_folder(directory, fd.get())) return errno_status(errno, "making a cached file");
  HEADRACE_TRY(write_all(fd.get(), file));
  const int error = link_nameless(fd.get(), directory, name);
  if (error == 0) return {};
  if (error == ENOENT) return publish_by_name(directory, shown, file);  // No /proc.
  return errno_status(error, "naming a cached file");
}

}  // namespace headrace::tier
