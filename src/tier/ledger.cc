// Invariants:
// - The sum is at least what lies in the directory: a file is added before it appears and
//   subtracted after it went.
// - Each word has one writer: a slot is written by the process that holds its lock, or by whoever
//   takes the lock of a dead one, the head by whoever holds the gate. So no sum needs a lock, and
//   nobody waits for one who was stopped.
// - The file is read and written, never mapped: a disk that fails, fills or turns read-only, and a
//   file that is cut off, are errors here, where a mapping would end the process by SIGBUS. What
//   was read is believed when its checks say so.
// - What a slot in memory and its copy in the file say of files is the same, since whoever counts
//   makes the sum of all copies right: a change that could not be written is taken back, which
//   leaves the sum too high, and doubted. Reservations in the file may be late, and are then too
//   high: the next write makes them good.
#include "tier/ledger.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "base/errno_status.h"
#include "base/random.h"
#include "base/read_at.h"
#include "base/write_at.h"
#include "tier/folder.h"

namespace headrace::tier {
namespace {

constexpr std::uint32_t kSlotCount = 1024;
constexpr std::uint32_t kGhostCount = 1U << 16;
constexpr std::array<char, 8> kMagic = {'H', 'R', 'C', 'A', 'C', 'H', 'E', '2'};
/// More than any directory holds: a sum beyond it is garbage.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 62;

// Bytes of the lock file: one a slot, then these, then flights.
constexpr std::uint64_t kInitByte = kSlotCount;
constexpr std::uint64_t kGateByte = kSlotCount + 1;
constexpr std::uint64_t kEvictionByte = kSlotCount + 2;
constexpr std::uint64_t kFirstFlightByte = std::uint64_t{1} << 32;

std::uint64_t flight_byte(const ExtentName& extent) noexcept {
  return kFirstFlightByte + (hash_of(extent) >> 2);
}

template <class T>
std::span<std::byte> bytes_of(T& value) noexcept {
  return std::as_writable_bytes(std::span(&value, 1));
}

}  // namespace

struct LedgerReading {
  using Slot = Ledger::Slot;
  struct Head {
    std::array<char, 8> magic{};
    std::uint64_t base_bytes = 0;  // With every slot's net bytes: the files.
    /// The slots' doubts when files were last counted; of a new ledger none.
    std::uint64_t known_doubts = UINT64_MAX;
    std::uint64_t check = 0;

    std::uint64_t right_check() const noexcept { return mix64(base_bytes ^ mix64(known_doubts)); }
  };

  Head head;
  std::array<Slot, kSlotCount> slots;
  /// A file that was cut off before it, and became longer again by writing, has zeros here.
  std::array<char, 8> end;

  /// 0 of a slot of zeros, which is what a new ledger has.
  static std::uint64_t check_of(const Slot& slot) noexcept {
    const std::uint64_t words = std::uint64_t{slot.is_changing} << 32 | slot.doubts;
    return mix64(slot.reserved_bytes ^ mix64(slot.net_bytes ^ mix64(words)));
  }
  /// The slot of one who is gone, for the next. What it had reserved may lie there under an
  /// unfinished name (new_extent.h), and counting removes that: until then the sum is doubted, or
  /// the files of many who were killed would come on top of the limit.
  static Slot free_of(Slot slot) noexcept {
    slot.doubts += slot.is_changing != 0 || slot.reserved_bytes != 0 ? 1 : 0;
    slot.reserved_bytes = slot.is_changing = 0;
    return slot;
  }
  bool is_whole() const noexcept {
    return head.magic == kMagic && end == kMagic && head.check == head.right_check() &&
           std::all_of(slots.begin(), slots.end(),
                       [](const Slot& slot) { return slot.check == check_of(slot); }) &&
           used_bytes() < kMostBytes;
  }
  std::uint64_t file_bytes() const noexcept {
    std::uint64_t sum = head.base_bytes;
    for (const Slot& slot : slots) sum += slot.net_bytes;
    return sum;
  }
  std::uint64_t used_bytes() const noexcept {
    std::uint64_t sum = file_bytes();
    for (const Slot& slot : slots) sum += slot.reserved_bytes;
    return sum;
  }
  /// A new ledger knows nothing of the files that there are.
  bool is_counted() const noexcept { return head.known_doubts != UINT64_MAX; }
  std::uint64_t doubts() const noexcept {
    std::uint64_t sum = 0;
    for (const Slot& slot : slots) sum += slot.doubts;
    return sum;
  }
};

namespace {

constexpr std::size_t offset_of_slot(std::uint32_t index) noexcept {
  return sizeof(LedgerReading::Head) + index * sizeof(LedgerReading::Slot);
}
constexpr std::size_t offset_of_ghost(std::uint64_t hash) noexcept {
  return sizeof(LedgerReading) + hash % kGhostCount * sizeof(std::uint32_t);
}
constexpr std::size_t kFileBytes = sizeof(LedgerReading) + kGhostCount * sizeof(std::uint32_t);

bool is_gone(int file) noexcept {
  struct stat info {};
  return ::fstat(file, &info) != 0 || info.st_nlink == 0;
}

std::uint64_t inode_of(int file) noexcept {
  struct stat info {};
  return ::fstat(file, &info) == 0 ? info.st_ino : 0;
}

/// Errors: kCorrupt (not whole), those of reading.
Status read_whole(int file, LedgerReading& out) noexcept {
  constexpr int kTries = 8;  // Who reads while a slot is written may see half of it.
  for (int i = 0; i < kTries; ++i) {
    const std::int64_t count = read_at(file, 0, bytes_of(out));
    if (count < 0) return errno_status(static_cast<int>(-count), "reading the cache's ledger");
    if (count == static_cast<std::int64_t>(sizeof(out)) && out.is_whole()) return {};
  }
  return Status(Code::kCorrupt, "the cache's ledger is damaged");
}

/// Fills in an empty file, its first bytes last. Whatever files there are were counted by a ledger
/// that is gone: the new one has doubts.
Status fill(int file) {
  const int error = ::posix_fallocate(file, 0, kFileBytes);
  if (error != 0) return errno_status(error, "making the cache's ledger");
  LedgerReading::Head head{.magic = kMagic};
  head.check = head.right_check();
  constexpr std::size_t kEndAt = offset_of_slot(kSlotCount);
  int failure = write_all_at(file, kEndAt, std::as_bytes(std::span(kMagic)));
  if (failure == 0) failure = write_all_at(file, 0, bytes_of(head));
  return failure == 0 ? Status() : errno_status(failure, "making the cache's ledger");
}

/// The ledger in the directory; another one for one that is not whole. \pre the lock of kInitByte
/// is held.
Result<Fd> open_whole(int root) {
  HEADRACE_TRY_ASSIGN(Fd file, open_file(root, "ledger"));
  LedgerReading found;
  const Status status = read_whole(file.get(), found);
  if (status.ok()) return file;
  if (status.code() != Code::kCorrupt) return status.clone();
  std::array<char, kMagic.size()> magic{};
  const std::int64_t count = read_at(file.get(), 0, bytes_of(magic));
  if (count < 0) return errno_status(static_cast<int>(-count), "reading the cache's ledger");
  const auto known = static_cast<std::size_t>(count);
  const bool is_empty = std::all_of(magic.begin(), magic.end(), [](char c) { return c == '\0'; });
  if (!is_empty && !std::equal(magic.begin(), magic.begin() + known, kMagic.begin()))
    return Status(Code::kUnsupported, "the cache's ledger is not one of this version");
  // Who has it open sees that it is cut off, and takes the new one.
  if (::ftruncate(file.get(), 0) != 0 || ::unlinkat(root, "ledger", 0) != 0)
    return errno_status(errno, "replacing the cache's ledger");
  HEADRACE_TRY_ASSIGN(file, open_file(root, "ledger"));
  HEADRACE_TRY(fill(file.get()));
  return file;
}

}  // namespace

Result<std::unique_ptr<Ledger>> Ledger::open(int root, const std::function<Status()>& before) {
  HEADRACE_TRY_ASSIGN(Fd lock_file, open_file(root, "locks"));
  FileLocks locks(std::move(lock_file));
  HEADRACE_TRY(locks.lock(kInitByte));
  Status first = before();
  auto file = first.ok() ? open_whole(root) : Result<Fd>(std::move(first));
  locks.unlock(kInitByte);
  if (!file) return std::move(file).error();
  std::unique_ptr<Ledger> ledger(new Ledger(root, std::move(locks), *std::move(file)));
  HEADRACE_TRY(ledger->claim_slot());
  return ledger;
}

Ledger::Ledger(int root, FileLocks locks, Fd file)
    : root_(root), locks_(std::move(locks)), file_(std::move(file)) {}

Status Ledger::claim_slot() {
  for (slot_index_ = 0; slot_index_ < kSlotCount; ++slot_index_) {
    HEADRACE_TRY_ASSIGN(const bool is_mine, locks_.try_lock(slot_index_));
    if (!is_mine) continue;
    LedgerReading found;
    if (!look(found)) return Status(Code::kUnavailable, "the cache's ledger cannot be read");
    MutexLock lock(slot_mutex_);
    slot_ = LedgerReading::free_of(found.slots[slot_index_]);
    if (!store(slot_index_, slot_))
      return Status(Code::kUnavailable, "the cache's ledger cannot be written");
    return {};
  }
  return Status(Code::kExhausted,
                "the cache is in use by " + std::to_string(kSlotCount) + " processes");
}

bool Ledger::look(LedgerReading& out) const noexcept {
  // Who deletes files by hand may delete these, and others then make new ones.
  return !is_gone(file_.get()) && !is_gone(locks_.file()) && read_whole(file_.get(), out).ok();
}

bool Ledger::store(std::uint32_t index, Slot slot) const noexcept {
  slot.check = LedgerReading::check_of(slot);
  return write_all_at(file_.get(), offset_of_slot(index), bytes_of(slot)) == 0;
}

template <class Edit>
bool Ledger::update(const Edit& edit) noexcept {
  MutexLock lock(slot_mutex_);
  const std::uint64_t net_bytes = slot_.net_bytes;
  edit(slot_);
  if (store(slot_index_, slot_)) return true;
  if (std::exchange(slot_.net_bytes, net_bytes) != net_bytes) ++slot_.doubts;
  return false;
}

void Ledger::doubt() noexcept {
  update([](Slot& slot) { ++slot.doubts; });
}

bool Ledger::recover() {
  // Without the locks that others have, the slot is no longer known to be this process's.
  if (is_gone(locks_.file()) || !locks_.lock(kInitByte).ok()) return false;
  auto file = open_whole(root_);
  const bool is_same = file && inode_of(file->get()) == inode_of(file_.get());
  // It could not be read for a moment: nothing is to be done. Else no thread may write into the new
  // one what the slot says of the old.
  MutexLock lock(slot_mutex_);
  const bool is_open = file && !is_same && ::dup3(file->get(), file_.get(), O_CLOEXEC) >= 0;
  locks_.unlock(kInitByte);
  if (is_same) return true;
  if (!is_open) return false;
  // What this process added before is in the new one's sum as soon as somebody has counted.
  slot_.net_bytes = 0;
  return store(slot_index_, slot_);
}

void Ledger::sweep() noexcept {
  LedgerReading found;
  if (!look(found)) return;
  for (std::uint32_t i = 0; i < kSlotCount; ++i) {
    const Slot& seen = found.slots[i];
    if (i == slot_index_ || (seen.reserved_bytes == 0 && seen.is_changing == 0)) continue;
    const auto is_dead = locks_.try_lock(i);
    if (!is_dead || !*is_dead) continue;
    // Somebody may have had it since it was seen.
    LedgerReading now;
    if (look(now)) {
      store(i, LedgerReading::free_of(now.slots[i]));
    }
    locks_.unlock(i);
  }
}

std::uint64_t Ledger::file_bytes() const noexcept {
  LedgerReading found;
  return look(found) ? found.file_bytes() : 0;
}

std::uint64_t Ledger::used_bytes() const noexcept {
  LedgerReading found;
  return look(found) ? found.used_bytes() : 0;
}

bool Ledger::try_reserve(std::uint64_t bytes, std::uint64_t limit_bytes) noexcept {
  if (bytes > limit_bytes) return false;
  // Reserved first: of two who see room for one, both may lose, and never do both win.
  LedgerReading found;
  if (update([&](Slot& slot) { slot.reserved_bytes += bytes; }) && look(found) &&
      found.is_counted() && found.used_bytes() <= limit_bytes)
    return true;
  cancel(bytes);
  return false;
}

void Ledger::cancel(std::uint64_t bytes) noexcept {
  update([&](Slot& slot) { slot.reserved_bytes -= bytes; });
}

Ledger::Change::Change(Ledger& ledger) : ledger_(ledger) {
  MutexLock lock(ledger.mutex_);
  if (ledger.changing_count_++ > 0) return;
  // Who counts may have been stopped: what it finds is then doubtful.
  if (!ledger.locks_.lock(kGateByte, FileLocks::Kind::kShared).ok()) ledger.doubt();
  ledger.update([](Slot& slot) { slot.is_changing = 1; });
}

Ledger::Change::~Change() {
  MutexLock lock(ledger_.mutex_);
  if (--ledger_.changing_count_ > 0) return;
  ledger_.update([](Slot& slot) { slot.is_changing = 0; });
  ledger_.locks_.unlock(kGateByte);
}

bool Ledger::Change::add(std::uint64_t bytes) noexcept {
  // Who replaces the ledger counts before or after this change: what was reserved in one that is
  // gone was counted by nobody.
  const bool is_current = !is_gone(ledger_.file_.get());
  const bool is_added = ledger_.update([&](Slot& slot) {
    slot.reserved_bytes -= bytes;
    if (is_current) slot.net_bytes += bytes;
  });
  return is_added && is_current;
}

void Ledger::Change::subtract(std::uint64_t bytes) noexcept {
  ledger_.update([&](Slot& slot) { slot.net_bytes -= bytes; });
}

bool Ledger::is_doubtful() const noexcept {
  LedgerReading found;
  return !look(found) || found.doubts() != found.head.known_doubts;
}

bool Ledger::recount(const std::function<std::optional<std::uint64_t>()>& count) {
  // Threads of this process wait in Change(): its lock is held for the whole of it.
  MutexLock lock(mutex_);
  if (changing_count_ > 0) return false;
  LedgerReading found;
  if (!look(found) && !recover()) return false;
  if (!locks_.lock(kGateByte).ok()) return false;
  // Doubts that come while it is counted stay; whoever dies meanwhile leaves those there were.
  bool is_done = look(found);
  const std::uint64_t known_doubts = found.doubts();
  if (is_done) {
    const auto held = count();
    is_done = held && look(found);
    if (is_done) {
      LedgerReading::Head head{.magic = kMagic,
                               .base_bytes = *held - (found.file_bytes() - found.head.base_bytes),
                               .known_doubts = known_doubts};
      head.check = head.right_check();
      is_done = write_all_at(file_.get(), 0, bytes_of(head)) == 0;
    }
  }
  locks_.unlock(kGateByte);
  return is_done;
}

bool Ledger::is_alone() const noexcept {
  const std::uint64_t after = std::uint64_t{slot_index_} + 1;
  return !locks_.is_any_locked(0, slot_index_) && !locks_.is_any_locked(after, kSlotCount - after);
}

void Ledger::note_ghost(const ExtentName& extent) noexcept {
  const std::uint64_t hash = hash_of(extent);
  std::uint32_t mark = static_cast<std::uint32_t>(hash >> 32) | 1U;
  write_all_at(file_.get(), offset_of_ghost(hash), bytes_of(mark));
}

bool Ledger::was_ghost(const ExtentName& extent) noexcept {
  const std::uint64_t hash = hash_of(extent);
  std::uint32_t mark = 0;
  if (!read_all_at(file_.get(), offset_of_ghost(hash), bytes_of(mark)) ||
      mark != (static_cast<std::uint32_t>(hash >> 32) | 1U))
    return false;
  mark = 0;
  write_all_at(file_.get(), offset_of_ghost(hash), bytes_of(mark));
  return true;
}

bool Ledger::try_begin_eviction() noexcept {
  const auto got = locks_.try_lock(kEvictionByte);
  return got && *got;
}
void Ledger::end_eviction() noexcept { locks_.unlock(kEvictionByte); }

bool Ledger::try_begin_flight(const ExtentName& extent) noexcept {
  const auto got = locks_.try_lock(flight_byte(extent));
  return !got || *got;
}
void Ledger::end_flight(const ExtentName& extent) noexcept { locks_.unlock(flight_byte(extent)); }

}  // namespace headrace::tier
