#pragma once
/// \file
/// What this process may use of the machine: its CPU affinity, and the limits of the control groups
/// that it is in (v1 and v2, every level up to the mount), as containers set them. Linux.
///
/// Threads: every function from any thread.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

struct MachineShare {
  /// CPUs of the affinity mask, or fewer where a quota gives less time: the quota rounded up.
  std::uint32_t cores = 1;  ///< >= 1
  std::uint64_t memory_bytes = 0;
  /// File of the control group that sets `memory_bytes`; empty: it is the machine's memory.
  std::string memory_limit_file = {};
};

/// Contents of a file; nothing where it cannot be read.
using TextReader = std::function<std::optional<std::string>(const std::string& path)>;

/// Of a process whose /proc/self/cgroup, /proc/self/mountinfo and control groups `read` gives.
MachineShare machine_share(const TextReader& read, MachineShare whole);

/// Of this process, now. Reads some ten files of /proc and /sys.
MachineShare machine_share();

/// machine_share().cores, looked up once a process. What chooses a number of threads asks this:
/// std::thread::hardware_concurrency() knows of no quota, and threads beyond it are stopped by the
/// kernel for most of each period.
std::uint32_t available_cores();

/// Instructions beyond the least of its kind that this processor has and the library makes use of,
/// by their names in /proc/cpuinfo.
std::vector<std::string_view> cpu_features();

}  // namespace headrace
