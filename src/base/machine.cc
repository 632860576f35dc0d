// Names of files and their meaning: Linux, Documentation/admin-guide/cgroup-v1/ and cgroup-v2.rst;
// proc(5) for /proc/self/cgroup and mountinfo.
//
// A limit counts wherever it stands above the process, so every directory from its group up to the
// mount is looked at, and the least wins. In a container the mount shows only its own groups; where
// the process's path is not below what is mounted (another namespace), the mount itself is taken.
#include "headrace/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

namespace headrace {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

bool has_word(std::string_view words, std::string_view word) {
  const auto parts = split(words, ',');
  return std::find(parts.begin(), parts.end(), word) != parts.end();
}

/// Nothing for "max", for what is negative and what is no number.
std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

/// Path of the process's group in the hierarchy of a controller; "" stands for version 2.
std::optional<std::string> group_path(std::string_view groups, std::string_view controller) {
  for (const std::string_view line : split(groups, '\n')) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const bool is_it = controller.empty() ? controllers.empty() : has_word(controllers, controller);
    if (is_it) return std::string(line.substr(second + 1));
  }
  return std::nullopt;
}

struct Mount {
  std::string root;   ///< Group that is mounted.
  std::string point;  ///< Directory that shows it.
};

std::optional<Mount> find_mount(std::string_view mounts, std::string_view controller) {
  for (const std::string_view line : split(mounts, '\n')) {
    const auto fields = split(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 5 || fields.end() - dash < 4) continue;
    const bool is_it = controller.empty() ? dash[1] == "cgroup2"
                                          : dash[1] == "cgroup" && has_word(dash[3], controller);
    if (is_it) return Mount{std::string(fields[3]), std::string(fields[4])};
  }
  return std::nullopt;
}

/// Directories of the process's group and of those above it, as far as they are mounted.
std::vector<std::string> group_directories(const std::string& groups, const std::string& mounts,
                                           std::string_view controller) {
  auto path = group_path(groups, controller);
  const auto mount = find_mount(mounts, controller);
  if (!path || !mount) return {};
  const std::string root = mount->root == "/" ? "" : mount->root;
  const bool is_below = path->starts_with(root + "/") && path->find("/..") == path->npos;
  std::string below = is_below ? path->substr(root.size()) : "";
  std::vector<std::string> directories;
  while (!below.empty() && below != "/") {
    directories.push_back(mount->point + below);
    below.resize(below.rfind('/'));
  }
  directories.push_back(mount->point);
  return directories;
}

void limit_cores(MachineShare& share, std::optional<std::uint64_t> quota,
                 std::optional<std::uint64_t> period) {
  if (!quota || !period || *period == 0) return;
  const std::uint64_t cores = *quota / *period + (*quota % *period != 0 ? 1 : 0);
  share.cores = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(cores, 1, std::max(share.cores, std::uint32_t{1})));
}

void limit_memory(MachineShare& share, const TextReader& read, const std::string& file) {
  const auto text = read(file);
  const auto limit = text ? number(*text) : std::nullopt;
  if (!limit || *limit >= share.memory_bytes) return;
  share.memory_bytes = *limit;
  share.memory_limit_file = file;
}

std::optional<std::string> read_text(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::uint32_t affinity_cores() {
  cpu_set_t set;
  // Fails where there are more CPUs than the set has room for.
  if (::sched_getaffinity(0, sizeof(set), &set) == 0)
    return static_cast<std::uint32_t>(CPU_COUNT(&set));
  return static_cast<std::uint32_t>(std::max(::sysconf(_SC_NPROCESSORS_ONLN), 1L));
}

}  // namespace

MachineShare machine_share(const TextReader& read, MachineShare whole) {
  MachineShare share = std::move(whole);
  const std::string groups = read("/proc/self/cgroup").value_or("");
  const std::string mounts = read("/proc/self/mountinfo").value_or("");
  const auto value = [&read](const std::string& file) {
    const auto text = read(file);
    return text ? number(*text) : std::nullopt;
  };
  for (const std::string& group : group_directories(groups, mounts, "")) {
    const std::string text = read(group + "/cpu.max").value_or("");
    const auto fields = split(text, ' ');
    if (fields.size() == 2) limit_cores(share, number(fields[0]), number(fields[1]));
    limit_memory(share, read, group + "/memory.max");
    limit_memory(share, read, group + "/memory.high");
  }
  for (const std::string& group : group_directories(groups, mounts, "cpu"))
    limit_cores(share, value(group + "/cpu.cfs_quota_us"), value(group + "/cpu.cfs_period_us"));
  for (const std::string& group : group_directories(groups, mounts, "memory"))
    limit_memory(share, read, group + "/memory.limit_in_bytes");
  return share;
}

MachineShare machine_share() {
  const auto pages = static_cast<std::uint64_t>(std::max(::sysconf(_SC_PHYS_PAGES), 0L));
  const auto page_bytes = static_cast<std::uint64_t>(std::max(::sysconf(_SC_PAGESIZE), 0L));
  return machine_share(read_text, {.cores = affinity_cores(), .memory_bytes = pages * page_bytes});
}

std::uint32_t available_cores() {
  static const std::uint32_t cores = machine_share().cores;
  return cores;
}

}  // namespace headrace
