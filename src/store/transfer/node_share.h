#pragma once
/// \file
/// NodeShare: one engine's slot in the small file by which the processes of a node share the limit
/// of an endpoint. Each process writes its own slot alone; there are no locks, so nothing is left
/// behind by a process that is killed at any point. The file is read and written, never mapped:
/// one that somebody cuts off ends the sharing, not the process.
///
/// A slot whose heartbeat is older than kShareTimeout, or from another time (a reboot), belongs to
/// nobody and is taken by the next. The leader (the live slot of an endpoint with the lowest index)
/// runs the control for all on the sum of their samples; the others follow its limit. A torn or
/// misplaced write spoils one sample of some milliseconds.
///
/// The file has a fixed size; of another size it is shared by nobody until the next open() has made
/// it whole. Garbage in a slot looks like a dead process; a file of another form is replaced.
/// Values read from it are clamped before use.
///
/// Threads: its owner's. Processes: any number; more than kShareSlots live engines share nothing.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "headrace/clock.h"
#include "headrace/status.h"
#include "store/transfer/concurrency_control.h"

namespace headrace::transfer {

constexpr std::size_t kShareSlots = 128;
/// Long beside the interval of the writers (10 ms while they work), short beside a training step's
/// patience: so long the share of a killed process lies idle.
constexpr std::chrono::milliseconds kShareTimeout{2'000};

/// Divides `limit` among `demands`: nobody gets more than it wants, the rest is equal. The share of
/// demands[own]; at least 1 when it wants any.
std::uint32_t fair_share(std::uint32_t limit, const std::uint32_t* demands, std::size_t count,
                         std::size_t own) noexcept;

class NodeShare {
 public:
  /// The file that the processes of this node share.
  static std::string path_in(const std::string& directory);
  /// Opens path_in(`directory`), creating what is missing. `endpoint`: "host:port". `id`:
  /// unique among all engines of the node and not 0.
  /// Errors: kDenied, kInvalidArgument, kExhausted, kUnavailable (the file system's).
  static Result<std::unique_ptr<NodeShare>> open(const std::string& directory,
                                                 std::string_view endpoint, std::uint64_t id);
  ~NodeShare();
  NodeShare(const NodeShare&) = delete;
  NodeShare& operator=(const NodeShare&) = delete;

  struct View {
    bool is_shared = false;           ///< false: no free slot, or the file is broken; go alone.
    bool is_leader = false;           ///< Run the control on `sample` and publish_limit().
    ControlSample sample;             ///< Leader: what all processes did since the last call.
    std::uint32_t node_limit = 0;     ///< Others: the leader's; 0: none yet.
    std::uint32_t process_count = 1;  ///< Live ones of this endpoint, this one included.
  };
  /// Publishes what this process did and wants, and looks at the others. A heartbeat: call it at
  /// least every second while requests are in flight. Reads the file (16.5 KB) and writes 128 bytes
  /// of it: 3 us.
  View exchange(const ControlSample& sample, std::uint32_t demand, TimePoint now);
  /// This process's part of a limit for all, by the demands seen in the last exchange().
  std::uint32_t share_of(std::uint32_t node_limit) const noexcept;
  void publish_limit(std::uint32_t node_limit) noexcept;
  /// Gives the slot back early; the next exchange() takes one again.
  void leave() noexcept;

 private:
  struct Slot;
  struct File;
  struct Seen {
    std::uint64_t owner = 0;
    std::array<std::uint64_t, 9> sums{};
  };

  NodeShare(Fd fd, std::unique_ptr<File> file, std::uint64_t endpoint, std::uint64_t id);
  bool has_slot() const noexcept;
  bool claim(TimePoint now) noexcept;
  bool publish(const ControlSample& sample, std::uint32_t demand, TimePoint now) noexcept;
  void collect(std::size_t index, std::uint64_t owner, ControlSample& sum) noexcept;

  const Fd fd_;
  const std::unique_ptr<File>
      file_;  ///< What was read last; of the own slot also what was written.
  const std::uint64_t endpoint_;
  const std::uint64_t id_;
  std::size_t slot_ = kShareSlots;
  std::array<std::uint64_t, 9> own_sums_{};
  std::array<Seen, kShareSlots> seen_{};
  std::array<std::uint32_t, kShareSlots> demands_{};
  std::size_t demand_count_ = 0;
  std::size_t own_demand_ = 0;
};

}  // namespace headrace::transfer
