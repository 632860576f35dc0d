// Slots hold sums that only grow, never what was done since the last time. A reader takes the
// difference to what it saw before, so one that comes late loses nothing and two readers do not
// disturb each other; and where the owner of a slot has changed, or a difference is impossible, it
// only remembers where the slot stands now.
//
// Nothing here waits and nothing is locked. A process writes its own slot only, and between
// claiming and leaving it never the owner's field: one that was stopped for seconds and lost its
// slot meanwhile spoils numbers of the next owner for one exchange, then sees from the owner's
// field that the slot is not its own.
#include "store/transfer/node_share.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "base/errno_status.h"
#include "base/fd.h"
#include "base/random.h"
#include "base/read_at.h"

namespace headrace::transfer {
namespace {

constexpr std::uint64_t kMagic = 0x31'6c'72'74'63'64'72'68ULL;  // "hrdctrl1"
// Sums beyond these in one exchange are garbage: a million requests in some milliseconds.
constexpr std::uint64_t kLargestCount = 1'000'000;
constexpr std::uint64_t kLargestSum = std::uint64_t{1} << 50;

std::uint64_t micros(double time_s) {
  return static_cast<std::uint64_t>(std::max(0.0, time_s * 1e6));
}

std::int64_t micros_of(TimePoint time) {
  return std::chrono::duration_cast<Microseconds>(time.time_since_epoch()).count();
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

// A read beside a write may see both old and new sums: it evens out with the next exchange.
struct NodeShare::Slot {
  std::uint64_t owner;
  std::uint64_t endpoint;
  std::int64_t heartbeat_us;  // CLOCK_MONOTONIC, common to the node's processes
  std::uint32_t demand;
  std::uint32_t node_limit;
  std::array<std::uint64_t, 9> sums;
  std::array<std::uint64_t, 3> spare;

  bool is_live(TimePoint now) const noexcept {
    if (owner == 0) return false;
    const std::int64_t now_us = micros_of(now);
    constexpr std::int64_t kLimit = Microseconds(kShareTimeout).count();
    return heartbeat_us >= now_us - kLimit && heartbeat_us <= now_us + kLimit;
  }
};

struct NodeShare::File {
  std::uint64_t magic;
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

template <class T>
std::span<std::byte> bytes_of(T& value) noexcept {
  return std::as_writable_bytes(std::span(&value, 1));
}

bool write_at(const Fd& fd, std::size_t offset_bytes, const void* from,
              std::size_t size_bytes) noexcept {
  ssize_t count = -1;
  do {
    count = ::pwrite(fd.get(), from, size_bytes, static_cast<off_t>(offset_bytes));
  } while (count < 0 && errno == EINTR);
  return count == static_cast<ssize_t>(size_bytes);
}

constexpr std::size_t kHeadBytes = 128;
constexpr std::size_t kSlotBytes = 128;
constexpr std::size_t offset_of_slot(std::size_t index) { return kHeadBytes + index * kSlotBytes; }

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
  static_assert(sizeof(File) == kHeadBytes + kShareSlots * kSlotBytes);
  static_assert(sizeof(Slot) == kSlotBytes && offsetof(File, slots) == kHeadBytes);
  if (directory.empty()) return Status(Code::kInvalidArgument, "no control directory");
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return errno_status(errno, "create " + directory);
  const std::string path = path_in(directory);
  for (int attempt = 0; attempt < 2; ++attempt) {
    Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return errno_status(errno, "open " + path);
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0) return errno_status(errno, "stat " + path);
    // New, or just created by another process: zeros are an empty table.
    if (info.st_size == 0 && ::ftruncate(fd.get(), sizeof(File)) == 0)
      info.st_size = static_cast<off_t>(sizeof(File));
    auto file = std::make_unique<File>();
    if (info.st_size == static_cast<off_t>(sizeof(File)) &&
        read_all_at(fd.get(), 0, bytes_of(*file))) {
      if (file->magic == 0) {
        if (!write_at(fd, 0, &kMagic, sizeof kMagic)) return errno_status(errno, "write " + path);
        file->magic = kMagic;
      }
      if (file->magic == kMagic) {
        return std::unique_ptr<NodeShare>(
            new NodeShare(std::move(fd), std::move(file), hash_of(endpoint), id));
      }
    }
    // Something else: out of the way. Who has it open keeps it.
    if (::unlink(path.c_str()) != 0 && errno != ENOENT)
      return errno_status(errno, "replace " + path);
  }
  return Status(Code::kUnavailable, path + " keeps changing its form");
}

NodeShare::NodeShare(Fd fd, std::unique_ptr<File> file, std::uint64_t endpoint, std::uint64_t id)
    : fd_(std::move(fd)), file_(std::move(file)), endpoint_(endpoint), id_(id) {}

NodeShare::~NodeShare() { leave(); }

bool NodeShare::has_slot() const noexcept {
  return slot_ < kShareSlots && file_->slots[slot_].owner == id_;
}

// Two that take the same slot at once: the later write has it, the other sees so at its next
// exchange.
bool NodeShare::claim(TimePoint now) noexcept {
  slot_ = kShareSlots;
  for (std::size_t i = 0; i < kShareSlots; ++i) {
    // Each endpoint begins elsewhere: fewer claims of the same slot at once.
    const std::size_t index = (endpoint_ + i) % kShareSlots;
    Slot& slot = file_->slots[index];
    if (slot.is_live(now)) continue;
    slot = Slot{};
    slot.owner = id_;
    slot.endpoint = endpoint_;
    if (!write_at(fd_, offset_of_slot(index), &slot, sizeof(Slot))) return false;
    slot_ = index;
    return true;
  }
  return false;
}

bool NodeShare::publish(const ControlSample& sample, std::uint32_t demand, TimePoint now) noexcept {
  Slot& slot = file_->slots[slot_];
  const auto sums = to_sums(sample);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    own_sums_[i] += sums[i];
    slot.sums[i] = own_sums_[i];
  }
  slot.demand = demand;
  slot.heartbeat_us = micros_of(now);
  // All but the owner: a process that was stopped must not take back a slot that is another's now.
  constexpr std::size_t kSkipped = offsetof(Slot, heartbeat_us);
  return write_at(fd_, offset_of_slot(slot_) + kSkipped,
                  reinterpret_cast<const char*>(&slot) + kSkipped, sizeof(Slot) - kSkipped);
}

void NodeShare::collect(std::size_t index, std::uint64_t owner, ControlSample& sum) noexcept {
  const Slot& slot = file_->slots[index];
  Seen& seen = seen_[index];
  std::array<std::uint64_t, 9> now_sums{};
  std::array<std::uint64_t, 9> grown{};
  bool is_sane = seen.owner == owner;
  for (std::size_t i = 0; i < now_sums.size(); ++i) {
    now_sums[i] = slot.sums[i];
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
  // Cut off, or overwritten: alone, until it is whole again.
  if (!read_all_at(fd_.get(), 0, bytes_of(*file_)) || file_->magic != kMagic) {
    slot_ = kShareSlots;
    return view;
  }
  if (!has_slot() && !claim(now)) return view;
  if (!publish(sample, demand, now)) return view;
  view.is_shared = true;
  std::size_t leader = kShareSlots;
  demand_count_ = 0;
  for (std::size_t i = 0; i < kShareSlots; ++i) {
    const Slot& slot = file_->slots[i];
    if (slot.endpoint != endpoint_ || !slot.is_live(now)) continue;
    if (leader == kShareSlots) leader = i;
    if (i == slot_) own_demand_ = demand_count_;
    demands_[demand_count_++] = slot.demand;
    collect(i, slot.owner, view.sample);
  }
  view.process_count = static_cast<std::uint32_t>(std::max<std::size_t>(1, demand_count_));
  view.is_leader = leader == slot_ || leader == kShareSlots;
  if (!view.is_leader) view.node_limit = file_->slots[leader].node_limit;
  return view;
}

std::uint32_t NodeShare::share_of(std::uint32_t node_limit) const noexcept {
  if (demand_count_ == 0 || own_demand_ >= demand_count_) return node_limit;
  return fair_share(node_limit, demands_.data(), demand_count_, own_demand_);
}

void NodeShare::publish_limit(std::uint32_t node_limit) noexcept {
  if (!has_slot()) return;
  // Who lost the slot meanwhile sees so at the next exchange; a file that fails is noticed there.
  file_->slots[slot_].node_limit = node_limit;
  static_cast<void>(write_at(fd_, offset_of_slot(slot_) + offsetof(Slot, node_limit), &node_limit,
                             sizeof node_limit));
}

void NodeShare::leave() noexcept {
  if (slot_ >= kShareSlots) return;
  std::uint64_t owner = 0;
  const std::size_t place = offset_of_slot(std::exchange(slot_, kShareSlots));
  if (!read_all_at(fd_.get(), place, bytes_of(owner)) || owner != id_) return;
  owner = 0;
  static_cast<void>(write_at(fd_, place, &owner, sizeof owner));
}

}  // namespace headrace::transfer
