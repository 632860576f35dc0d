#include "headrace/order_table.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

#include "base/atomic_file.h"
#include "base/errno_status.h"
#include "base/fd.h"
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

/// True where several machines may see the files of `directory`, or a process answers for it: a
/// mapping may then fail (SIGBUS) or be slow at any moment, and locks may not be kept. Numbers: of
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

/// The content of a table file: header and entries, in memory of this process or mapped.
class Table {
 public:
  static std::shared_ptr<Table> in_memory(std::size_t bytes) {
    // Left uninitialised: all of it is read or made, and zeroes would cost as much again.
    auto* const at = new (std::nothrow) std::uint64_t[(bytes + 7) / 8];
    return at == nullptr ? nullptr
                         : std::make_shared<Table>(reinterpret_cast<std::byte*>(at), bytes, false);
  }
  static std::shared_ptr<Table> mapped(int fd, std::size_t bytes, int protection) {
    void* at = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? nullptr
                            : std::make_shared<Table>(static_cast<std::byte*>(at), bytes, true);
  }
  Table(std::byte* at, std::size_t bytes, bool is_mapped)
      : at_(at), bytes_(bytes), is_mapped_(is_mapped) {}
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  ~Table() {
    if (is_mapped_) {
      ::munmap(at_, bytes_);
    } else {
      delete[] reinterpret_cast<std::uint64_t*>(at_);
    }
  }
  std::span<std::byte> all() const { return {at_, bytes_}; }
  std::span<std::byte> entries() const { return all().subspan(sizeof(Header)); }
  Header header() const {
    Header header;
    std::memcpy(&header, at_, sizeof header);
    return header;
  }
  void set_header(const Header& header) { std::memcpy(at_, &header, sizeof header); }
  std::uint64_t checksum() const { return XXH3_64bits(entries().data(), entries().size()); }

 private:
  std::byte* at_;
  std::size_t bytes_;
  bool is_mapped_;
};

/// Reads a file of exactly `bytes`; null when it is another by now.
std::shared_ptr<Table> copy_table(const Fd& fd, std::size_t bytes) {
  auto table = Table::in_memory(bytes);
  if (table == nullptr) return nullptr;
  const std::span<std::byte> to = table->all();
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t count =
        ::pread(fd.get(), to.data() + done, bytes - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return nullptr;
    done += static_cast<std::size_t>(count);
  }
  return table;
}

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

/// The table at `path`, when it is whole, ours, of these inputs and of this boot.
std::shared_ptr<Table> find_table(const std::string& path, const Header& header,
                                  std::uint64_t most_copied_bytes) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0) return nullptr;
  const std::size_t bytes = sizeof(Header) + header.table_bytes;
  if (info.st_uid != ::geteuid() || !S_ISREG(info.st_mode)) return nullptr;
  if (info.st_size < 0 || static_cast<std::size_t>(info.st_size) != bytes) return nullptr;
  auto table = bytes <= most_copied_bytes ? copy_table(fd, bytes)
                                          : Table::mapped(fd.get(), bytes, PROT_READ);
  if (table == nullptr) return nullptr;
  Header expected = header;
  expected.checksum = table->header().checksum;
  if (!(table->header() == expected) || table->checksum() != expected.checksum) return nullptr;
  // Marks it as used lately; without the right to, it is only removed earlier.
  static_cast<void>(::utimensat(AT_FDCWD, path.c_str(), nullptr, 0));
  return table;
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
Result<std::shared_ptr<Table>> make_table(const MosaicEpoch& epoch, const std::string& path,
                                          Header header, const OrderTableOptions& options) {
  remove_stale_temporaries(options.directory);
  HEADRACE_TRY_ASSIGN(TemporaryFile file, TemporaryFile::create(options.directory));
  if (::fchmod(file.fd(), S_IRUSR | S_IWUSR) != 0) return errno_status(errno, "chmod " + path);
  const std::size_t bytes = sizeof(Header) + header.table_bytes;
  const bool is_copied = bytes <= options.most_copied_bytes;
  // Room is taken first: writing to a mapping of a file without room would kill the process.
  if (const int error = ::posix_fallocate(file.fd(), 0, static_cast<off_t>(bytes)); error != 0) {
    return errno_status(error, "make room for " + path);
  }
  auto table =
      is_copied ? Table::in_memory(bytes) : Table::mapped(file.fd(), bytes, PROT_READ | PROT_WRITE);
  if (table == nullptr) return errno_status(errno, "map " + path);
  HEADRACE_TRY(epoch.build(table->entries(), options.threads));
  header.checksum = table->checksum();
  table->set_header(header);
  if (is_copied) HEADRACE_TRY(file.write(table->all()));
  HEADRACE_TRY(file.publish(path));
  prune(options.directory, std::max<std::size_t>(options.kept_tables, 1));
  return table;
}

}  // namespace

Result<std::shared_ptr<const SampleList>> open_mosaic_list(const MosaicEpoch& epoch,
                                                           const OrderTableOptions& options,
                                                           const std::stop_token& stop) {
  const auto in_memory = [&] { return make_mosaic_list(epoch, options.threads); };
  if (options.directory.empty() || epoch.table_bytes() < options.least_bytes) return in_memory();
  if (is_network_directory(options.directory)) return in_memory();
  const Header header = header_of(epoch);
  // Machines that share the directory unnoticed do not replace each other's tables.
  const std::string name = options.directory + "/" + epoch.table_key() + "-" + boot_id();
  const std::string path = name + std::string(kSuffix);
  auto table = find_table(path, header, options.most_copied_bytes);
  if (table == nullptr) {
    const TableLock lock =
        TableLock::acquire(name + std::string(kLockSuffix), options.longest_wait, stop);
    if (!lock && stop.stop_requested())
      return Status(Code::kCancelled, "waiting for a table of the order was cancelled");
    // Whoever makes it may be stopped: the same table of our own only costs time and memory.
    if (!lock) return in_memory();
    // Another process may have made it meanwhile.
    table = find_table(path, header, options.most_copied_bytes);
    if (table == nullptr) {
      auto made = make_table(epoch, path, header, options);
      if (!made) {
        if (made.error().code() == Code::kInvalidArgument) return std::move(made).error();
        return in_memory();
      }
      table = *std::move(made);
    }
  }
  return epoch.list(table->entries(), table);
}

}  // namespace headrace
