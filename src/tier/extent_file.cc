// Invariants:
// - Nothing is believed but what a sum covers: the header by its own, each chunk by one in it. A
//   file under another's name is found by the name in the header.
// - O_DIRECT is a way, never a condition: where it is refused, the same goes through the page
//   cache.
#include "tier/extent_file.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "base/errno_status.h"
#include "tier/file_parts.h"

namespace headrace::tier {
namespace {

constexpr std::size_t kPage = kHeaderBytes;
/// Bytes that are read at once on their way to somewhere else: they fit the processor's caches.
constexpr std::uint64_t kAroundBytes = std::uint64_t{512} << 10;

Status corrupt(std::string_view why) {
  return Status(Code::kCorrupt, "cached file: " + std::string(why));
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
  IoParts all{};
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

}  // namespace

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

}  // namespace headrace::tier
