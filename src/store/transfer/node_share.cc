#include "store/transfer/node_share.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>

#include "base/errno_status.h"
#include "base/fd.h"
#include "base/random.h"

namespace headrace::transfer {
namespace {

constexpr std::uint64_t kMagic = 0x31'6c'72'74'63'64'72'68ULL;  // "hrdctrl1"
// Sums beyond these in one exchange are garbage: a million requests in some milliseconds.
constexpr std::uint64_t kLargestCount = 1'000'000;
constexpr std::uint64_t kLargestSum = std::uint64_t{1} << 50;

std::uint64_t micros(double time_s) {
  return static_cast<std::uint64_t>(std::max(0.0, time_s * 1e6));
}

std::array<std::uint64_t, 9> to_sums(const ControlSample& sample) {
  return {sample.completions,
          sample.bytes,
          micros(sample.busy_s),
          static_cast<std::uint64_t>(std::max(0.0, sample.byte_seconds)),
          micros(sample.first_byte_s),
          sample.attempts,
          sample.throttles,
          micros(sample.used_s),
          micros(sample.in_flight_s)};
}

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0x9e3779b97f4a7c15ULL;
  for (const char c : text) hash = mix64(hash ^ static_cast<unsigned char>(c));
  return hash | 1;
}

}  // namespace

// Lock-free atomics work between processes. All relaxed but `owner`: a mixture of old and new sums
// evens out with the next exchange.
struct NodeShare::Slot {
  std::atomic<std::uint64_t> owner;
  std::atomic<std::uint64_t> endpoint;
  std::atomic<std::int64_t> heartbeat_us;  // CLOCK_MONOTONIC, common to the node's processes
  std::atomic<std::uint32_t> demand;
  std::atomic<std::uint32_t> node_limit;
  std::array<std::atomic<std::uint64_t>, 9> sums;
  std::array<std::uint64_t, 3> spare;

  bool is_live(TimePoint now) const noexcept {
    if (owner.load(std::memory_order_acquire) == 0) return false;
    const auto now_us = std::chrono::duration_cast<Microseconds>(now.time_since_epoch()).count();
    const std::int64_t beat_us = heartbeat_us.load(std::memory_order_relaxed);
    constexpr std::int64_t kLimit = Microseconds(kShareTimeout).count();
    return beat_us >= now_us - kLimit && beat_us <= now_us + kLimit;
  }
};

struct NodeShare::File {
  std::atomic<std::uint64_t> magic;
  std::array<std::uint64_t, 15> spare;
  std::array<Slot, kShareSlots> slots;
};

std::uint32_t fair_share(std::uint32_t limit, const std::uint32_t* demands, std::size_t count,
                         std::size_t own) noexcept {
  // Rounds: who wants less than an equal part is served, its rest goes to the others.
  std::uint64_t left = limit;
  std::uint64_t level = 0;
  std::size_t hungry = count;
  while (hungry > 0) {
    const std::uint64_t part = left / hungry;
    std::uint64_t taken = 0;
    std::size_t still_hungry = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (demands[i] <= level) continue;
      if (demands[i] <= level + part) {
        taken += demands[i] - level;
      } else {
        taken += part;
        ++still_hungry;
      }
    }
    level += part;
    left -= taken;
    if (still_hungry == hungry || part == 0) break;
    hungry = still_hungry;
  }
  const std::uint64_t share = std::min<std::uint64_t>(demands[own], level);
  return static_cast<std::uint32_t>(demands[own] > 0 ? std::max<std::uint64_t>(share, 1) : 0);
}

namespace {

/// A page that cannot be backed by the file system would be a SIGBUS at the first write.
Status allocate(const Fd& fd, const struct stat& info, std::size_t size_bytes,
                const std::string& path) {
  constexpr std::uint64_t kBlockBytes = 512;  // of st_blocks, by stat(2)
  if (static_cast<std::uint64_t>(info.st_blocks) * kBlockBytes >= size_bytes) return {};
  int error = EINTR;
  while (error == EINTR) error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(size_bytes));
  return error == 0 ? Status() : errno_status(error, "allocate " + path);
}

}  // namespace

std::string NodeShare::path_in(const std::string& directory) {
  // A directory may be shared by many nodes (a home on NFS), the file must not be.
  std::string boot(8, '0');
  const Fd fd(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  if (fd && ::read(fd.get(), boot.data(), boot.size()) < 0) boot.assign(8, '0');
  return directory + "/headrace-control-" + boot;
}

Result<std::unique_ptr<NodeShare>> NodeShare::open(const std::string& directory,
                                                   std::string_view endpoint, std::uint64_t id) {
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  if (directory.empty()) return Status(Code::kInvalidArgument, "no control directory");
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return errno_status(errno, "create " + directory);
  const std::string path = path_in(directory);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return errno_status(errno, "open " + path);
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0) return errno_status(errno, "stat " + path);
    // New, or just created by another process: zeros are an empty table.
    if (info.st_size == 0 && ::ftruncate(fd.get(), sizeof(File)) == 0)
      info.st_size = static_cast<off_t>(sizeof(File));
    if (info.st_size == static_cast<off_t>(sizeof(File))) {
      HEADRACE_TRY(allocate(fd, info, sizeof(File), path));
      void* const memory =
          ::mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
      if (memory == MAP_FAILED) return errno_status(errno, "map " + path);
      auto* const file = static_cast<File*>(memory);
      std::uint64_t expected = 0;
      file->magic.compare_exchange_strong(expected, kMagic);
      if (expected == 0 || expected == kMagic)
        return std::unique_ptr<NodeShare>(new NodeShare(file, hash_of(endpoint), id));
      ::munmap(memory, sizeof(File));
    }
    // Something else: out of the way. Who has it mapped keeps it.
    if (::unlink(path.c_str()) != 0 && errno != ENOENT)
      return errno_status(errno, "replace " + path);
  }
  return Status(Code::kUnavailable, path + " keeps changing its form");
}

NodeShare::NodeShare(File* file, std::uint64_t endpoint, std::uint64_t id)
    : file_(file), endpoint_(endpoint), id_(id) {}

NodeShare::~NodeShare() {
  leave();
  ::munmap(file_, sizeof(File));
}

bool NodeShare::has_slot() const noexcept {
  return slot_ < kShareSlots && file_->slots[slot_].owner.load(std::memory_order_acquire) == id_;
}

bool NodeShare::claim(TimePoint now) noexcept {
  for (std::size_t i = 0; i < kShareSlots; ++i) {
    const std::size_t index = (endpoint_ + i) % kShareSlots;
    Slot& slot = file_->slots[index];
    std::uint64_t owner = slot.owner.load(std::memory_order_acquire);
    if (slot.is_live(now)) continue;
    if (!slot.owner.compare_exchange_strong(owner, id_, std::memory_order_acq_rel)) continue;
    slot.heartbeat_us.store(
        std::chrono::duration_cast<Microseconds>(now.time_since_epoch()).count(),
        std::memory_order_relaxed);
    slot.endpoint.store(endpoint_, std::memory_order_relaxed);
    slot.node_limit.store(0, std::memory_order_relaxed);
    slot_ = index;
    return true;
  }
  slot_ = kShareSlots;
  return false;
}

void NodeShare::publish(const ControlSample& sample, std::uint32_t demand, TimePoint now) noexcept {
  Slot& slot = file_->slots[slot_];
  const auto sums = to_sums(sample);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    own_sums_[i] += sums[i];
    slot.sums[i].store(own_sums_[i], std::memory_order_relaxed);
  }
  slot.demand.store(demand, std::memory_order_relaxed);
  slot.heartbeat_us.store(std::chrono::duration_cast<Microseconds>(now.time_since_epoch()).count(),
                          std::memory_order_relaxed);
}

void NodeShare::collect(std::size_t index, std::uint64_t owner, ControlSample& sum) noexcept {
  const Slot& slot = file_->slots[index];
  Seen& seen = seen_[index];
  std::array<std::uint64_t, 9> now_sums{};
  std::array<std::uint64_t, 9> grown{};
  bool is_sane = seen.owner == owner;
  for (std::size_t i = 0; i < now_sums.size(); ++i) {
    now_sums[i] = slot.sums[i].load(std::memory_order_relaxed);
    grown[i] = now_sums[i] - seen.sums[i];  // below zero: huge, and so not sane
    is_sane = is_sane && grown[i] < kLargestSum;
  }
  is_sane = is_sane && grown[0] < kLargestCount && grown[5] < kLargestCount;
  seen.owner = owner;
  seen.sums = now_sums;
  if (!is_sane) return;
  const auto seconds_of = [](std::uint64_t time_us) { return static_cast<double>(time_us) * 1e-6; };
  sum.completions += grown[0];
  sum.bytes += grown[1];
  sum.busy_s += seconds_of(grown[2]);
  sum.byte_seconds += static_cast<double>(grown[3]);
  sum.first_byte_s += seconds_of(grown[4]);
  sum.attempts += grown[5];
  sum.throttles += grown[6];
  sum.used_s = std::max(sum.used_s, seconds_of(grown[7]));
  sum.in_flight_s += seconds_of(grown[8]);
}

NodeShare::View NodeShare::exchange(const ControlSample& sample, std::uint32_t demand,
                                    TimePoint now) {
  View view;
  if (!has_slot() && !claim(now)) return view;
  publish(sample, demand, now);
  view.is_shared = true;
  std::size_t leader = kShareSlots;
  demand_count_ = 0;
  for (std::size_t i = 0; i < kShareSlots; ++i) {
    const Slot& slot = file_->slots[i];
    if (slot.endpoint.load(std::memory_order_relaxed) != endpoint_ || !slot.is_live(now)) continue;
    if (leader == kShareSlots) leader = i;
    if (i == slot_) own_demand_ = demand_count_;
    demands_[demand_count_++] = slot.demand.load(std::memory_order_relaxed);
    collect(i, slot.owner.load(std::memory_order_acquire), view.sample);
  }
  view.process_count = static_cast<std::uint32_t>(std::max<std::size_t>(1, demand_count_));
  view.is_leader = leader == slot_ || leader == kShareSlots;
  if (!view.is_leader)
    view.node_limit = file_->slots[leader].node_limit.load(std::memory_order_relaxed);
  return view;
}

std::uint32_t NodeShare::share_of(std::uint32_t node_limit) const noexcept {
  if (demand_count_ == 0 || own_demand_ >= demand_count_) return node_limit;
  return fair_share(node_limit, demands_.data(), demand_count_, own_demand_);
}

void NodeShare::publish_limit(std::uint32_t node_limit) noexcept {
  if (has_slot()) file_->slots[slot_].node_limit.store(node_limit, std::memory_order_relaxed);
}

void NodeShare::leave() noexcept {
  if (slot_ >= kShareSlots) return;
  std::uint64_t own = id_;
  file_->slots[slot_].owner.compare_exchange_strong(own, 0, std::memory_order_acq_rel);
  slot_ = kShareSlots;
}

}  // namespace headrace::transfer
