// A table of an order is the same for all ranks of a node, costs seconds and up to gigabytes, and
// nobody needs it who can make it. So a file serves whoever finds one that is right, and all that
// goes wrong with files ends in a table of the process's own.
//
// Invariants:
// - A file is believed when it is this user's, regular, of the right length, of this boot and these
//   inputs (Header), and its sum fits. It is read into memory or, when it is large, page by page
//   with a sum each; it is never mapped, since who cuts off a mapped file ends all its readers by
//   SIGBUS.
// - A table gets its name once it is whole (TemporaryFile::publish()), so readers need no lock.
// - The lock saves work, and proves nothing: two who make the same table make the same bytes, and
//   the later name wins. Its file is removed under the lock; who locks one that has no name any
//   more has lost the race. Who waits longer than longest_wait makes a table of its own, as the one
//   with the lock may be stopped.
// - A file that changes under a reader is noticed by the page's sum, and the reader goes on with a
//   table made in memory: the order of a run does not change.
#include "headrace/order_table.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "base/atomic_file.h"
#include "base/check.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/mutex.h"
#include "base/read_at.h"
#include "headrace/clock.h"

namespace headrace {
namespace {

constexpr std::size_t kTextBytes = 40;
constexpr std::string_view kSuffix = ".order";
constexpr std::string_view kLockSuffix = ".lock";

/// Start of a table file; the entries follow.
struct Header {
  std::array<char, 16> magic{};
  std::array<char, kTextBytes> key{};
  std::array<char, kTextBytes> boot{};
  std::uint64_t table_bytes = 0;
  std::uint64_t checksum = 0;  ///< XXH3 of the entries.
  std::array<char, 16> reserved{};
  friend bool operator==(const Header&, const Header&) = default;
};
static_assert(sizeof(Header) == 128);

template <std::size_t N>
void set_text(std::array<char, N>& to, std::string_view text) {
  std::copy_n(text.begin(), std::min(text.size(), N), to.begin());
}

/// This boot's id; empty where the system has none, which is as good on all boots of such a system.
std::string boot_id() {
  const Fd fd(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  std::array<char, kTextBytes> text{};
  const ssize_t count = fd ? ::read(fd.get(), text.data(), text.size()) : 0;
  std::string_view id(text.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  return std::string(id.substr(0, id.find('\n')));
}

/// True where several machines may see the files of `directory`, or a process answers for it:
/// reading may then be slow at any moment, and locks may not be kept. Numbers: of
/// statfs(2) and linux/magic.h, and of the file systems' own headers.
bool is_network_directory(const std::string& directory) {
  struct statfs info {};
  if (::statfs(directory.c_str(), &info) != 0) return true;
  constexpr std::array<std::uint32_t, 14> kTypes = {
      0x6969,      // NFS
      0x517b,      // SMB
      0xff534d42,  // CIFS
      0xfe534d42,  // SMB2
      0x0bd00bd0,  // Lustre
      0x65735546,  // FUSE
      0x5346414f,  // AFS
      0x6b414653,  // kAFS
      0x00c36400,  // Ceph
      0x01021997,  // 9P
      0x47504653,  // GPFS
      0x19830326,  // BeeGFS
      0x01161970,  // GFS2
      0x7461636f,  // OCFS2
  };
  return std::find(kTypes.begin(), kTypes.end(), static_cast<std::uint32_t>(info.f_type)) !=
         kTypes.end();
}

Header header_of(const MosaicEpoch& epoch) {
  Header header;
  set_text(header.magic, "headrace-order2\n");
  set_text(header.key, epoch.table_key());
  set_text(header.boot, boot_id());
  header.table_bytes = epoch.table_bytes();
  return header;
}

/// The content of a table file, header and entries, in memory of this process.
class Table {
 public:
  static std::shared_ptr<Table> create(std::size_t bytes) {
    // Left uninitialised: all of it is read or made, and zeroes would cost as much again.
    auto* const at = new (std::nothrow) std::uint64_t[(bytes + 7) / 8];
    return at == nullptr ? nullptr : std::make_shared<Table>(at, bytes);
  }
  Table(std::uint64_t* at, std::size_t bytes) : at_(at), bytes_(bytes) {}
  std::span<std::byte> all() const { return {reinterpret_cast<std::byte*>(at_.get()), bytes_}; }
  std::span<std::byte> entries() const { return all().subspan(sizeof(Header)); }
  Header header() const {
    Header header;
    std::memcpy(&header, all().data(), sizeof header);
    return header;
  }
  void set_header(const Header& header) { std::memcpy(all().data(), &header, sizeof header); }
  std::uint64_t checksum() const { return XXH3_64bits(entries().data(), entries().size()); }

 private:
  const std::unique_ptr<std::uint64_t[]> at_;
  const std::size_t bytes_;
};

/// The entries of a table that is too large for each process's memory: pages of its file, which
/// the kernel keeps once for all. Of our own there are 16 MiB at most. A rank takes the entries one
/// after the other, so a page serves thousands.
class TablePages {
 public:
  static constexpr std::size_t kPageBytes = 64 << 10;
  static constexpr std::size_t kMostPages = 256;

  /// `sums`: of the pages, by sum_of().
  TablePages(Fd fd, std::uint64_t bytes, std::vector<std::uint64_t> sums)
      : fd_(std::move(fd)), bytes_(bytes), sums_(std::move(sums)), places_(kMostPages) {}

  static std::uint64_t sum_of(std::span<const std::byte> page) {
    return XXH3_64bits(page.data(), page.size());
  }
  /// Copies bytes of one entry. False: the file does not have any more what it had.
  bool read(std::uint64_t offset_bytes, std::span<std::byte> out) const {
    const std::uint64_t page = offset_bytes / kPageBytes;
    const std::size_t from = offset_bytes % kPageBytes;
    Place& place = places_[page % kMostPages];
    {
      MutexLock lock(place.mutex);
      if (place.tag == page + 1) {
        std::memcpy(out.data(), place.bytes.get() + from, out.size());
        return true;
      }
    }
    const std::size_t size = std::min<std::uint64_t>(kPageBytes, bytes_ - page * kPageBytes);
    std::unique_ptr<std::byte[]> bytes(new std::byte[kPageBytes]);
    const std::span<std::byte> read(bytes.get(), size);
    if (!read_all_at(fd_.get(), sizeof(Header) + page * kPageBytes, read) ||
        sum_of(read) != sums_[page])
      return false;
    std::memcpy(out.data(), bytes.get() + from, out.size());
    MutexLock lock(place.mutex);
    place.tag = page + 1;
    place.bytes = std::move(bytes);
    return true;
  }

 private:
  struct Place {
    Mutex mutex;
    std::uint64_t tag HEADRACE_GUARDED_BY(mutex) = 0;  ///< Page number + 1; 0: none.
    std::unique_ptr<std::byte[]> bytes HEADRACE_GUARDED_BY(mutex);
  };
  const Fd fd_;
  const std::uint64_t bytes_;
  const std::vector<std::uint64_t> sums_;
  mutable std::vector<Place> places_;
};

/// The slots of an epoch by a table in pages. When the file is cut off or changed, the table is
/// made once more, in memory.
class PagedList final : public SampleList {
 public:
  PagedList(const MosaicEpoch& epoch, std::unique_ptr<const TablePages> pages,
            std::uint32_t threads)
      : epoch_(epoch.shared_from_this()),
        ids_(epoch.list({}, nullptr)),
        entry_bytes_(epoch.table_bytes() / epoch.weights().epoch_size),
        threads_(threads),
        pages_(std::move(pages)) {}
  std::uint64_t size() const noexcept override { return ids_->size(); }
  void read(std::uint64_t t, std::span<std::int64_t> out) const override {
    if (!is_in_memory_.load(std::memory_order_acquire)) {
      ids_->read(t, out);
      if (std::all_of(out.begin(), out.end(), [this](std::int64_t& id) { return look_up(id); }))
        return;
    }
    in_memory().read(t, out);
  }

 private:
  bool look_up(std::int64_t& id) const {
    if (id < 0) return true;
    std::uint64_t entry = 0;  // Little-endian machines only, as all of the engine.
    if (!pages_->read(static_cast<std::uint64_t>(id) * entry_bytes_,
                      std::as_writable_bytes(std::span(&entry, 1)).first(entry_bytes_))) {
      return false;
    }
    id = static_cast<std::int64_t>(entry);
    return true;
  }
  const SampleList& in_memory() const {
    std::call_once(once_, [this] {
      auto made = make_mosaic_list(*epoch_, threads_);
      HEADRACE_CHECK(made);  // It was made before, of the same.
      made_ = *std::move(made);
      is_in_memory_.store(true, std::memory_order_release);
    });
    return *made_;
  }

  const std::shared_ptr<const MosaicEpoch> epoch_;
  const std::shared_ptr<const SampleList> ids_;
  const std::size_t entry_bytes_;
  const std::uint32_t threads_;
  const std::unique_ptr<const TablePages> pages_;
  mutable std::once_flag once_;
  mutable std::shared_ptr<const SampleList> made_;  ///< By once_.
  mutable std::atomic<bool> is_in_memory_{false};   ///< Released after made_ was written.
};

/// The right to make one table. Its file is removed with it: who locks a file that has no name any
/// more has lost the race and looks again.
class TableLock {
 public:
  /// Empty: not within `wait`, `stop`, or the file system has no locks.
  static TableLock acquire(std::string path, std::chrono::milliseconds wait,
                           const std::stop_token& stop) {
    constexpr std::chrono::milliseconds kSlice(10);
    const TimePoint until = system_clock().now() + wait;
    while (true) {
      Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
      if (!fd) return TableLock();
      if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) {
        struct stat info {};
        if (::fstat(fd.get(), &info) != 0) return TableLock();
        if (info.st_nlink > 0) return TableLock(std::move(fd), std::move(path));
        continue;
      }
      if (errno != EWOULDBLOCK || stop.stop_requested()) return TableLock();
      if (system_clock().now() >= until) return TableLock();
      std::this_thread::sleep_for(kSlice);
    }
  }
  TableLock(TableLock&&) noexcept = default;
  TableLock& operator=(TableLock&&) = delete;
  ~TableLock() {
    if (!fd_) return;
    ::unlink(path_.c_str());
    // A forked child may hold the same open file: closing ours would not unlock it.
    ::flock(fd_.get(), LOCK_UN);
  }
  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }

 private:
  TableLock() = default;
  TableLock(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  Fd fd_;
  std::string path_;
};

using List = std::shared_ptr<const SampleList>;

bool is_of(const Header& found, Header expected) {
  expected.checksum = found.checksum;
  return found == expected;
}

/// Null: not what it should be.
List copied_list(const MosaicEpoch& epoch, const Fd& fd, const Header& header) {
  auto table = Table::create(sizeof(Header) + header.table_bytes);
  if (table == nullptr || !read_all_at(fd.get(), 0, table->all())) return nullptr;
  if (!is_of(table->header(), header) || table->checksum() != table->header().checksum)
    return nullptr;
  return epoch.list(table->entries(), table);
}

/// Reads all of it once, for the sums.
List paged_list(const MosaicEpoch& epoch, Fd fd, const Header& header, std::uint32_t threads) {
  Header found;
  if (!read_all_at(fd.get(), 0, std::as_writable_bytes(std::span(&found, 1))) ||
      !is_of(found, header))
    return nullptr;
  std::vector<std::uint64_t> sums;
  std::vector<std::byte> page(TablePages::kPageBytes);
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> all(XXH3_createState(),
                                                                            XXH3_freeState);
  XXH3_64bits_reset(all.get());
  for (std::uint64_t at = 0; at < header.table_bytes; at += page.size()) {
    const auto part =
        std::span(page).first(std::min<std::uint64_t>(page.size(), header.table_bytes - at));
    if (!read_all_at(fd.get(), sizeof(Header) + at, part)) return nullptr;
    XXH3_64bits_update(all.get(), part.data(), part.size());
    sums.push_back(TablePages::sum_of(part));
  }
  if (XXH3_64bits_digest(all.get()) != found.checksum) return nullptr;
  auto pages =
      std::make_unique<const TablePages>(std::move(fd), header.table_bytes, std::move(sums));
  return std::make_shared<PagedList>(epoch, std::move(pages), threads);
}

/// By the table at `path`, when it is whole, ours, of these inputs and of this boot.
List find_list(const MosaicEpoch& epoch, const std::string& path, const Header& header,
               const OrderTableOptions& options) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0) return nullptr;
  const std::size_t bytes = sizeof(Header) + header.table_bytes;
  if (info.st_uid != ::geteuid() || !S_ISREG(info.st_mode)) return nullptr;
  if (info.st_size < 0 || static_cast<std::size_t>(info.st_size) != bytes) return nullptr;
  auto list = bytes <= options.most_copied_bytes
                  ? copied_list(epoch, fd, header)
                  : paged_list(epoch, std::move(fd), header, options.threads);
  // Marks it as used lately; without the right to, it is only removed earlier.
  if (list != nullptr) static_cast<void>(::utimensat(AT_FDCWD, path.c_str(), nullptr, 0));
  return list;
}

/// Removes a lock's file that a dead process left.
void remove_stale_lock(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
}

/// Removes all but the newest tables, and locks that nobody holds.
void prune(const std::string& directory, std::size_t kept) {
  struct Entry {
    std::string path;
    timespec used;
  };
  std::vector<Entry> entries;
  DIR* const listing = ::opendir(directory.c_str());
  if (listing == nullptr) return;
  while (const dirent* entry = ::readdir(listing)) {
    const std::string path = directory + "/" + entry->d_name;
    if (path.ends_with(kLockSuffix)) remove_stale_lock(path);
    if (!path.ends_with(kSuffix)) continue;
    struct stat info {};
    if (::lstat(path.c_str(), &info) == 0) entries.push_back({path, info.st_mtim});
  }
  ::closedir(listing);
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) > std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  for (std::size_t i = kept; i < entries.size(); ++i) ::unlink(entries[i].path.c_str());
}

/// Errors of the file system: any. Those of build(): kInvalidArgument.
Result<List> make_list(const MosaicEpoch& epoch, const std::string& path, Header header,
                       const OrderTableOptions& options) {
  remove_stale_temporaries(options.directory);
  HEADRACE_TRY_ASSIGN(TemporaryFile file, TemporaryFile::create(options.directory));
  if (::fchmod(file.fd(), S_IRUSR | S_IWUSR) != 0) return errno_status(errno, "chmod " + path);
  const std::size_t bytes = sizeof(Header) + header.table_bytes;
  // Before the work: nothing would be kept of it.
  if (const int error = ::posix_fallocate(file.fd(), 0, static_cast<off_t>(bytes)); error != 0) {
    return errno_status(error, "make room for " + path);
  }
  auto table = Table::create(bytes);
  if (table == nullptr) return errno_status(ENOMEM, "make " + path);
  HEADRACE_TRY(epoch.build(table->entries(), options.threads));
  header.checksum = table->checksum();
  table->set_header(header);
  HEADRACE_TRY(file.write(table->all()));
  HEADRACE_TRY(file.publish(path));
  prune(options.directory, std::max<std::size_t>(options.kept_tables, 1));
  if (bytes > options.most_copied_bytes) {
    if (auto list = find_list(epoch, path, header, options)) return list;
  }
  return epoch.list(table->entries(), table);
}

}  // namespace

Result<std::shared_ptr<const SampleList>> open_mosaic_list(const MosaicEpoch& epoch,
                                                           const OrderTableOptions& options,
                                                           const std::stop_token& stop) {
  const auto in_memory = [&] { return make_mosaic_list(epoch, options.threads); };
  const std::uint64_t least_bytes = std::max<std::uint64_t>(options.least_bytes, 1);
  if (options.directory.empty() || epoch.table_bytes() < least_bytes) return in_memory();
  if (is_network_directory(options.directory)) return in_memory();
  const Header header = header_of(epoch);
  // Machines that share the directory unnoticed do not replace each other's tables.
  const std::string name = options.directory + "/" + epoch.table_key() + "-" + boot_id();
  const std::string path = name + std::string(kSuffix);
  if (auto found = find_list(epoch, path, header, options)) return found;
  const TableLock lock =
      TableLock::acquire(name + std::string(kLockSuffix), options.longest_wait, stop);
  if (!lock && stop.stop_requested())
    return Status(Code::kCancelled, "waiting for a table of the order was cancelled");
  // Whoever makes it may be stopped: the same table of our own only costs time and memory.
  if (!lock) return in_memory();
  // Another process may have made it meanwhile.
  if (auto found = find_list(epoch, path, header, options)) return found;
  auto made = make_list(epoch, path, header, options);
  if (made) return *std::move(made);
  if (made.error().code() == Code::kInvalidArgument) return std::move(made).error();
  return in_memory();
}

}  // namespace headrace
