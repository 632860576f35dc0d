// A plan is written in full before it has its name, and its lock is taken before that, so that
// whoever sees it without a lock sees a dead one. Readers copy it: a file that is cut off under a
// mapping would kill who looks at it. Marks are single words that may be read at any moment.
#include "tier/plan_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <iterator>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/errno_status.h"
#include "base/read_at.h"
#include "tier/folder.h"

namespace headrace::tier {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::string_view kMagic = "HRPLAN01";
constexpr std::string_view kPrefix = "plan-";
/// Locked while the reader lives.
constexpr std::uint64_t kLiveByte = 0;

static_assert(std::is_trivially_copyable_v<PlanEntry> && sizeof(PlanEntry) == 40);

std::uint64_t end_of(const ExtentName& range) noexcept {
  return range.offset_bytes + range.length_bytes;
}

/// The first entry that ends behind the beginning of `range`, in its object. Entries do not
/// overlap.
template <class Entries>
auto find_first(Entries entries, const ExtentName& range) noexcept {
  auto at = std::upper_bound(entries.begin(), entries.end(), range,
                             [](const ExtentName& r, const PlanEntry& entry) {
                               return std::tuple(r.object, r.offset_bytes) <
                                      std::tuple(entry.range.object, entry.range.offset_bytes);
                             });
  if (at != entries.begin() && std::prev(at)->range.object == range.object &&
      end_of(std::prev(at)->range) > range.offset_bytes)
    --at;
  return at;
}

bool is_inside(const PlanEntry& entry, const ExtentName& range) noexcept {
  return entry.range.object == range.object && entry.range.offset_bytes < end_of(range);
}

std::uint32_t load(std::uint32_t& word) noexcept {
  return std::atomic_ref(word).load(std::memory_order_relaxed);
}

std::uint32_t need_of(std::uint32_t first, std::uint32_t second) noexcept {
  return first != PlanEntry::kNever ? first : second;
}

std::string new_name() {
  static std::atomic<std::uint64_t> next{0};
  return std::to_string(::getpid()) + "-" + std::to_string(next.fetch_add(1));
}

std::optional<std::vector<PlanEntry>> read_plan(int file) {
  struct stat info {};
  std::array<std::byte, 16> head{};
  if (::fstat(file, &info) != 0 || !read_all_at(file, 0, head)) return std::nullopt;
  std::uint64_t count = 0;
  std::memcpy(&count, head.data() + 8, sizeof(count));
  if (std::memcmp(head.data(), kMagic.data(), kMagic.size()) != 0 ||
      count != (static_cast<std::uint64_t>(info.st_size) - kPage) / sizeof(PlanEntry))
    return std::nullopt;
  std::vector<PlanEntry> entries(count);
  if (!read_all_at(file, kPage, std::as_writable_bytes(std::span(entries)))) return std::nullopt;
  return entries;
}

}  // namespace

Result<std::shared_ptr<OwnPlan>> OwnPlan::publish(int directory, std::vector<PlanEntry> entries) {
  std::sort(entries.begin(), entries.end(),
            [](const PlanEntry& a, const PlanEntry& b) { return a.range < b.range; });
  const std::string id = new_name();
  const std::string temporary = ".new-" + id;
  Fd file(::openat(directory, temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return errno_status(errno, "cache: making a plan");
  const auto fail = [&](int error, const char* what) {
    ::unlinkat(directory, temporary.c_str(), 0);
    return errno_status(error, what);
  };
  const std::size_t size = kPage + entries.size() * sizeof(PlanEntry);
  // Its blocks are there before it is mapped: a full disk is an error here, not a signal later.
  if (const int error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(size)); error != 0)
    return fail(error, "cache: writing a plan");
  void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return fail(errno, "cache: mapping a plan");
  const std::span<std::byte> bytes(static_cast<std::byte*>(memory), size);
  const std::uint64_t count = entries.size();
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  std::memcpy(bytes.data() + 8, &count, sizeof(count));
  if (count > 0) std::memcpy(bytes.data() + kPage, entries.data(), size - kPage);
  const std::string name = std::string(kPrefix) + id;
  FileLocks lock(std::move(file));
  auto is_mine = lock.try_lock(kLiveByte);
  const auto give_up = [&](Status status) {
    ::munmap(memory, size);
    ::unlinkat(directory, temporary.c_str(), 0);
    return status;
  };
  // The file is new: nobody else can have its lock.
  if (!is_mine) return give_up(std::move(is_mine).error());
  if (::renameat(directory, temporary.c_str(), directory, name.c_str()) != 0)
    return give_up(errno_status(errno, "cache: publishing a plan"));
  return std::shared_ptr<OwnPlan>(new OwnPlan(directory, name, std::move(lock), bytes));
}

OwnPlan::OwnPlan(int directory, std::string name, FileLocks lock, std::span<std::byte> memory)
    : directory_(directory),
      name_(std::move(name)),
      lock_(std::move(lock)),
      memory_(memory),
      entries_(reinterpret_cast<PlanEntry*>(memory.data() + kPage),
               (memory.size() - kPage) / sizeof(PlanEntry)) {}

OwnPlan::~OwnPlan() {
  ::unlinkat(directory_, name_.c_str(), 0);
  ::munmap(memory_.data(), memory_.size());
}

void OwnPlan::note_read(const ExtentName& range) noexcept {
  for (auto at = find_first(entries_, range); at != entries_.end() && is_inside(*at, range); ++at) {
    // Parts of an entry are read one by one, a lane's share of a block maybe without its first:
    // where it begins it counts.
    if (at->range.offset_bytes < range.offset_bytes) continue;
    std::uint32_t& word = load(at->first) != PlanEntry::kNever ? at->first : at->second;
    std::atomic_ref(word).store(PlanEntry::kNever, std::memory_order_relaxed);
  }
}

void PlanBoard::look(int directory) {
  plans_.clear();
  // What cannot be read tells nothing; eviction goes on without it.
  static_cast<void>(visit_names(directory, [&](const char* path) {
    const std::string_view name = path;
    const bool is_new = name.starts_with(".new-");
    if (!is_new && !name.starts_with(kPrefix)) return;
    Fd file(::openat(directory, path, O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (!file) return;
    const int descriptor = file.get();
    const FileLocks locks(std::move(file));
    const auto is_dead = locks.try_lock(kLiveByte);
    if (is_dead && *is_dead) {
      struct stat info {};
      // One that is being written has no lock yet; a day is enough for that.
      constexpr std::int64_t kLongS = 86'400;
      if (is_new && ::fstat(descriptor, &info) == 0 && ::time(nullptr) - info.st_mtime < kLongS)
        return;
      ::unlinkat(directory, path, 0);
    } else if (auto plan = read_plan(descriptor); plan && !is_new) {
      plans_.push_back(*std::move(plan));
    }
  }));
}

std::optional<std::uint32_t> PlanBoard::next_need(const ExtentName& extent) const noexcept {
  std::optional<std::uint32_t> need;
  for (const std::vector<PlanEntry>& plan : plans_) {
    const std::span<const PlanEntry> entries(plan);
    for (auto at = find_first(entries, extent); at != entries.end() && is_inside(*at, extent); ++at)
      need = std::min(need.value_or(PlanEntry::kNever), need_of(at->first, at->second));
  }
  return need;
}

}  // namespace headrace::tier
