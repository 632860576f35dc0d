// A plan is written in full before it has its name, and its lock is taken before that, so that
// whoever sees it without a lock sees a dead one. It is read and written, never mapped: a file that
// is cut off, or a disk that fails, would kill who has it mapped. Marks may be read at any moment.
#include "tier/plan_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/errno_status.h"
#include "base/read_at.h"
#include "base/write_at.h"
#include "tier/folder.h"

namespace headrace::tier {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::string_view kMagic = "HRPLAN01";
constexpr std::string_view kPrefix = "plan-";
/// Locked while the reader lives.
constexpr std::uint64_t kLiveByte = 0;

static_assert(std::is_trivially_copyable_v<PlanEntry> && sizeof(PlanEntry) == 40);

constexpr std::uint32_t kRead = PlanEntry::kNever;

std::optional<std::vector<PlanEntry>> read_plan(int file) {
  struct stat info {};
  std::array<std::byte, 16> head{};
  if (::fstat(file, &info) != 0 || !read_all_at(file, 0, head)) return std::nullopt;
  std::uint64_t count = 0;
  std::memcpy(&count, head.data() + 8, sizeof(count));
  if (std::memcmp(head.data(), kMagic.data(), kMagic.size()) != 0 ||
      info.st_size < static_cast<off_t>(kPage) ||
      count != (static_cast<std::uint64_t>(info.st_size) - kPage) / sizeof(PlanEntry))
    return std::nullopt;
  std::vector<PlanEntry> entries(count);
  if (!read_all_at(file, kPage, std::as_writable_bytes(std::span(entries)))) return std::nullopt;
  return entries;
}

/// Deletes the plans of the dead, and calls `visit(file, is_unfinished)` for each of the living.
template <class Visit>
void visit_living(int directory, Visit visit) {
  // What cannot be read tells nothing; eviction goes on without it.
  static_cast<void>(visit_names(directory, [&](const char* path) {
    const std::string_view name = path;
    const bool is_new = name.starts_with(kUnfinished);
    if (!is_new && !name.starts_with(kPrefix)) return;
    Fd file(::openat(directory, path, O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (!file) return;
    const FileLocks locks(std::move(file));
    const auto is_dead = locks.try_lock(kLiveByte);
    if (is_dead && *is_dead) {
      ::unlinkat(directory, path, 0);
    } else {
      visit(locks, is_new);
    }
  }));
}

}  // namespace

Result<std::shared_ptr<OwnPlan>> OwnPlan::publish(int directory, std::vector<PlanEntry> entries) {
  std::sort(entries.begin(), entries.end(),
            [](const PlanEntry& a, const PlanEntry& b) { return a.range < b.range; });
  std::array<std::byte, kPage> head{};
  const std::uint64_t count = entries.size();
  std::memcpy(head.data(), kMagic.data(), kMagic.size());
  std::memcpy(head.data() + kMagic.size(), &count, sizeof(count));
  // Where nothing is evicted, nobody else looks for those of the dead.
  visit_living(directory, [](const FileLocks&, bool) {});
  // Whoever looks between its making and its lock takes it for one of the dead, and deletes it.
  constexpr int kTries = 3;
  int error = 0;
  for (int i = 0; i < kTries; ++i) {
    const std::string temporary = unfinished_name();
    const std::string name = std::string(kPrefix) + temporary.substr(kUnfinished.size());
    Fd file(::openat(directory, temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!file || ::fchmod(file.get(), file_mode(access_of(directory))) != 0)
      return errno_status(errno, "cache: making a plan");
    FileLocks lock(std::move(file));
    const auto is_mine = lock.try_lock(kLiveByte);
    error = is_mine && *is_mine ? 0 : EAGAIN;
    if (error == 0) error = write_all_at(lock.file(), 0, head);
    if (error == 0) error = write_all_at(lock.file(), kPage, std::as_bytes(std::span(entries)));
    if (error == 0 && ::renameat(directory, temporary.c_str(), directory, name.c_str()) != 0)
      error = errno;
    if (error == 0)
      return std::shared_ptr<OwnPlan>(
          new OwnPlan(directory, name, std::move(lock), std::move(entries)));
    ::unlinkat(directory, temporary.c_str(), 0);
    if (error != ENOENT && error != EAGAIN) break;
  }
  return errno_status(error, "cache: publishing a plan");
}

OwnPlan::OwnPlan(int directory, std::string name, FileLocks lock, std::vector<PlanEntry> entries)
    : directory_(directory),
      name_(std::move(name)),
      lock_(std::move(lock)),
      entries_(std::move(entries)) {}

OwnPlan::~OwnPlan() { ::unlinkat(directory_, name_.c_str(), 0); }

void OwnPlan::note_read(const ExtentName& range) noexcept {
  visit_over(entries_, range, [&](std::uint32_t& word) {
    word = PlanEntry::kNever;
    const auto at = std::as_writable_bytes(std::span(&word, 1)).data() -
                    std::as_writable_bytes(std::span(entries_)).data();
    // Where it cannot be written, others keep for longer what this reader has read.
    write_all_at(lock_.file(), kPage + static_cast<std::uint64_t>(at),
                 std::as_bytes(std::span(&kRead, 1)));
  });
}

void PlanBoard::look(int directory) {
  plans_.clear();
  visit_living(directory, [&](const FileLocks& file, bool is_unfinished) {
    if (is_unfinished) return;
    if (auto plan = read_plan(file.file())) plans_.push_back(*std::move(plan));
  });
}

std::optional<std::uint32_t> PlanBoard::next_need(const ExtentName& extent) const noexcept {
  std::optional<std::uint32_t> need;
  for (const std::vector<PlanEntry>& plan : plans_) {
    const std::span<const PlanEntry> entries(plan);
    for (auto at = find_first(entries, extent); at != entries.end() && is_inside(*at, extent); ++at)
      need = std::min(need.value_or(PlanEntry::kNever), need_of(*at));
  }
  return need;
}

}  // namespace headrace::tier
