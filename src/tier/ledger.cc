// Invariants:
// - The sum is at least what lies in the directory: a file is added before it appears and
//   subtracted after it went.
// - A slot's numbers are changed by the process that holds its lock, and by whoever takes the lock
//   of a dead one.
// - The page's blocks are allocated when it is made, so that a full disk can never turn a store
//   into SIGBUS.
#include "tier/ledger.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "base/errno_status.h"

namespace headrace::tier {
namespace {

constexpr std::uint32_t kSlotCount = 1024;
constexpr std::uint32_t kGhostCount = 1U << 16;
constexpr std::array<char, 8> kMagic = {'H', 'R', 'C', 'A', 'C', 'H', 'E', '1'};

// Bytes of the lock file: one a slot, then these, then flights.
constexpr std::uint64_t kInitByte = kSlotCount;
constexpr std::uint64_t kGateByte = kSlotCount + 1;
constexpr std::uint64_t kEvictionByte = kSlotCount + 2;
constexpr std::uint64_t kFirstFlightByte = std::uint64_t{1} << 32;

std::uint64_t flight_byte(const ExtentName& extent) noexcept {
  return kFirstFlightByte + (hash_of(extent) >> 2);
}

}  // namespace

struct LedgerPage {
  struct Slot {
    std::atomic<std::uint64_t> reserved_bytes;
    std::atomic<std::uint32_t> is_changing;
  };

  std::array<char, 8> magic;
  std::atomic<std::uint64_t> file_bytes;
  std::atomic<std::uint32_t> is_doubtful;
  std::array<Slot, kSlotCount> slots;
  std::array<std::atomic<std::uint32_t>, kGhostCount> ghosts;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "shared between processes");

namespace {

Result<Fd> open_file(int root, const char* name) {
  Fd file(::openat(root, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file) return errno_status(errno, std::string("opening ") + name + " of the cache");
  return file;
}

/// Fills in a new file. \pre the lock of kInitByte is held.
Status prepare(int file) {
  struct stat info {};
  if (::fstat(file, &info) != 0) return errno_status(errno, "looking at the cache's ledger");
  if (info.st_size == static_cast<off_t>(sizeof(LedgerPage))) {
    std::array<char, 8> magic{};
    if (::pread(file, magic.data(), magic.size(), 0) != static_cast<ssize_t>(magic.size()) ||
        (magic != kMagic && magic != std::array<char, 8>{}))
      return Status(Code::kUnsupported, "the cache's ledger is not one of this version");
    if (magic == kMagic) return {};
  } else if (info.st_size != 0) {
    return Status(Code::kUnsupported, "the cache's ledger is not one of this version");
  }
  const int error = ::posix_fallocate(file, 0, sizeof(LedgerPage));
  if (error != 0) return errno_status(error, "making the cache's ledger");
  // Whatever files there are were counted by a ledger that is gone.
  constexpr std::uint32_t kYes = 1;
  if (::pwrite(file, &kYes, sizeof(kYes), offsetof(LedgerPage, is_doubtful)) != sizeof(kYes) ||
      ::pwrite(file, kMagic.data(), kMagic.size(), 0) != static_cast<ssize_t>(kMagic.size()))
    return errno_status(errno, "making the cache's ledger");
  return {};
}

}  // namespace

Result<std::unique_ptr<Ledger>> Ledger::open(int root) {
  HEADRACE_TRY_ASSIGN(Fd lock_file, open_file(root, "locks"));
  HEADRACE_TRY_ASSIGN(Fd file, open_file(root, "ledger"));
  FileLocks locks(std::move(lock_file));
  HEADRACE_TRY(locks.lock(kInitByte));
  const Status prepared = prepare(file.get());
  locks.unlock(kInitByte);
  if (!prepared.ok()) return prepared.clone();
  void* const memory =
      ::mmap(nullptr, sizeof(LedgerPage), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return errno_status(errno, "mapping the cache's ledger");
  std::unique_ptr<Ledger> ledger(
      new Ledger(std::move(locks), std::move(file), static_cast<LedgerPage*>(memory)));
  HEADRACE_TRY(ledger->claim_slot());
  return ledger;
}

Ledger::Ledger(FileLocks locks, Fd file, LedgerPage* page)
    : locks_(std::move(locks)), file_(std::move(file)), page_(page) {}

Ledger::~Ledger() { ::munmap(page_, sizeof(LedgerPage)); }

Status Ledger::claim_slot() {
  for (slot_ = 0; slot_ < kSlotCount; ++slot_) {
    HEADRACE_TRY_ASSIGN(const bool is_mine, locks_.try_lock(slot_));
    if (!is_mine) continue;
    LedgerPage::Slot& slot = page_->slots[slot_];
    if (slot.is_changing.exchange(0) != 0) page_->is_doubtful.store(1);
    slot.reserved_bytes.store(0);
    return {};
  }
  return Status(Code::kExhausted,
                "the cache is in use by " + std::to_string(kSlotCount) + " processes");
}

void Ledger::sweep() noexcept {
  for (std::uint32_t i = 0; i < kSlotCount; ++i) {
    LedgerPage::Slot& slot = page_->slots[i];
    if (i == slot_ || (slot.reserved_bytes.load() == 0 && slot.is_changing.load() == 0)) continue;
    const auto is_dead = locks_.try_lock(i);
    if (!is_dead || !*is_dead) continue;
    if (slot.is_changing.exchange(0) != 0) page_->is_doubtful.store(1);
    slot.reserved_bytes.store(0);
    locks_.unlock(i);
  }
}

std::uint64_t Ledger::file_bytes() const noexcept { return page_->file_bytes.load(); }

std::uint64_t Ledger::used_bytes() const noexcept {
  std::uint64_t used = page_->file_bytes.load();
  for (const LedgerPage::Slot& slot : page_->slots) used += slot.reserved_bytes.load();
  return used;
}

bool Ledger::try_reserve(std::uint64_t bytes, std::uint64_t limit_bytes) noexcept {
  if (bytes > limit_bytes) return false;
  // Reserved first: of two who see room for one, both may lose, and never do both win.
  page_->slots[slot_].reserved_bytes.fetch_add(bytes);
  if (used_bytes() <= limit_bytes) return true;
  cancel(bytes);
  return false;
}

void Ledger::cancel(std::uint64_t bytes) noexcept {
  page_->slots[slot_].reserved_bytes.fetch_sub(bytes);
}

Ledger::Change::Change(Ledger& ledger) : ledger_(ledger) {
  MutexLock lock(ledger.mutex_);
  if (ledger.changing_count_++ > 0) return;
  // Who counts may have been stopped: what it finds is then doubtful.
  if (!ledger.locks_.lock(kGateByte, FileLocks::Kind::kShared).ok())
    ledger.page_->is_doubtful.store(1);
  ledger.page_->slots[ledger.slot_].is_changing.store(1);
}

Ledger::Change::~Change() {
  MutexLock lock(ledger_.mutex_);
  if (--ledger_.changing_count_ > 0) return;
  ledger_.page_->slots[ledger_.slot_].is_changing.store(0);
  ledger_.locks_.unlock(kGateByte);
}

void Ledger::Change::add(std::uint64_t bytes) noexcept {
  ledger_.page_->file_bytes.fetch_add(bytes);
  ledger_.cancel(bytes);
}

void Ledger::Change::subtract(std::uint64_t bytes) noexcept {
  ledger_.page_->file_bytes.fetch_sub(bytes);
}

bool Ledger::is_doubtful() const noexcept { return page_->is_doubtful.load() != 0; }

bool Ledger::recount(const std::function<std::uint64_t()>& count) {
  // Threads of this process wait in Change(): its lock is held for the whole of it.
  MutexLock lock(mutex_);
  if (changing_count_ > 0) return false;
  if (!locks_.lock(kGateByte).ok()) return false;
  page_->is_doubtful.store(0);
  page_->file_bytes.store(count());
  locks_.unlock(kGateByte);
  return true;
}

void Ledger::note_ghost(const ExtentName& extent) noexcept {
  const std::uint64_t hash = hash_of(extent);
  page_->ghosts[hash % kGhostCount].store(static_cast<std::uint32_t>(hash >> 32) | 1U,
                                          std::memory_order_relaxed);
}

bool Ledger::was_ghost(const ExtentName& extent) noexcept {
  const std::uint64_t hash = hash_of(extent);
  std::uint32_t expected = static_cast<std::uint32_t>(hash >> 32) | 1U;
  return page_->ghosts[hash % kGhostCount].compare_exchange_strong(expected, 0);
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
