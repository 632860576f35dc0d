// A cache directory that two processes use, against a reference without files or processes: after
// each of many random operations exactly those extents are there that the rules say, the ledger
// knows their bytes, and what is read is right.
//
// Times of files are the file system's, whose clock ticks a few times in a test: each is set to
// the reference's count after the operation that changed it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/fd.h"
#include "base/random.h"
#include "base/temporary_directory.h"
#include "base/test_seed.h"
#include "tier/disk_cache.h"
#include "tier/disk_cache_reference.h"

namespace headrace::tier {
namespace {

constexpr std::size_t kObjects = 8;
constexpr std::size_t kCellsEach = 4;
constexpr std::size_t kExtents = kObjects * kCellsEach;
constexpr std::size_t kReaders = 2;
/// Of an object each: within a page, a page, more than one chunk of a sum.
constexpr std::array<std::uint64_t, 4> kCellBytes = {1000, 4096, 9001, 70'000};

enum class What : std::uint32_t {
  kRead,
  kDrop,
  kPut,
  kShrink,
  kRemove,
  kPin,
  kUnpin,
  kPlan,
  kCount,
  kReopen,
};

struct Command {
  What what = What::kCount;
  std::uint32_t extent = 0;                       ///< kRead, kDrop, kPut.
  std::uint64_t from_bytes = 0, count_bytes = 0;  ///< kRead: of the extent. kShrink: the count.
  std::array<char, 32> prefix{};                  ///< kRemove, kPin, kUnpin.
  std::array<std::uint32_t, kExtents> first{}, second{};  ///< kPlan: 0: not in it.
};

struct Answer {
  bool is_ok = false;  ///< It ended well, and what was read is right.
  bool was_there = false;
  std::uint64_t used_bytes = 0, file_bytes = 0, extent_count = 0;
};

std::string model_url(std::size_t object) {
  return "s3://" + std::string(object % 2 == 0 ? "even" : "odd") + "/o" + std::to_string(object);
}

ExtentInfo model_extent(std::size_t number) {
  const std::size_t object = number / kCellsEach;
  const std::uint64_t length = kCellBytes[object % kCellBytes.size()];
  return {
      .name = {object_id("model", model_url(object), "1"), number % kCellsEach * length, length},
      .object_size_bytes = kCellsEach * length,
      .url = model_url(object),
      .etag = "1"};
}

std::byte model_byte(std::size_t extent, std::uint64_t at) {
  return static_cast<std::byte>((extent * 0x9e37'79b9'7f4a'7c15ULL + at * 7919) >> 11);
}

/// A process with the directory open, which does what it is told.
class Worker {
 public:
  Worker(std::string directory, std::uint64_t limit_bytes)
      : directory_(std::move(directory)), limit_(limit_bytes) {}

  [[noreturn]] void run(int socket) {
    open();
    Command command;
    while (::read(socket, &command, sizeof(command)) == sizeof(command)) {
      const Answer answer = obey(command);
      if (::write(socket, &answer, sizeof(answer)) != sizeof(answer)) break;
    }
    ::_exit(0);  // As the test's process has more to end than this one.
  }

 private:
  void open() {
    auto opened = DiskCache::create({.directory = directory_,
                                     .limit_bytes = limit_,
                                     .free_floor_bytes = 0,
                                     .reader_count = 1,
                                     .writer_count = 1});
    HEADRACE_CHECK(opened);
    cache_ = *std::move(opened);
  }

  Answer obey(const Command& command) {
    Answer answer{.is_ok = true};
    const ExtentInfo info = model_extent(command.extent);
    const std::string prefix = command.prefix.data();
    switch (command.what) {
      case What::kRead:
        read(command, info, answer);
        break;
      case What::kDrop:
        cache_->drop(info.name);
        break;
      case What::kPut:
        put(command.extent, info);
        break;
      case What::kShrink:
        answer.is_ok = static_cast<bool>(cache_->shrink(command.count_bytes));
        break;
      case What::kRemove:
        answer.is_ok = static_cast<bool>(cache_->remove(prefix));
        break;
      case What::kPin:
        answer.is_ok = cache_->pin(prefix).ok();
        break;
      case What::kUnpin: {
        auto found = cache_->unpin(prefix);
        answer.is_ok = static_cast<bool>(found);
        answer.was_there = found && *found;
        break;
      }
      case What::kPlan:
        answer.is_ok = publish(command);
        break;
      case What::kCount:
        count(answer);
        break;
      case What::kReopen:
        plan_.reset();
        cache_.reset();
        open();
    }
    return answer;
  }

  void read(const Command& command, const ExtentInfo& info, Answer& answer) {
    ExtentInfo wanted = info;
    wanted.name.offset_bytes += command.from_bytes;
    wanted.name.length_bytes = command.count_bytes;
    if (plan_) plan_->note_read(wanted.name);
    std::vector<std::byte> out(command.count_bytes);
    std::uint64_t object_size = 0;
    cache_->read(wanted, out, TimePoint::max(), [&](Tier::Found found, std::uint64_t size) {
      answer.was_there = found == Tier::Found::kAll;
      object_size = size;
    });
    if (!answer.was_there) return;
    answer.is_ok = object_size == info.object_size_bytes;
    for (std::size_t i = 0; i < out.size(); ++i)
      answer.is_ok = answer.is_ok && out[i] == model_byte(command.extent, command.from_bytes + i);
  }

  void put(std::size_t extent, const ExtentInfo& info) {
    std::vector<std::byte> data(info.name.length_bytes);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = model_byte(extent, i);
    cache_->keep(info, data, cache_->begin_flight(info.name), Slab());
    cache_->flush();
  }

  bool publish(const Command& command) {
    std::vector<PlanEntry> entries;
    for (std::size_t i = 0; i < kExtents; ++i) {
      if (command.first[i] == 0) continue;
      const std::uint32_t second = command.second[i] == 0 ? PlanEntry::kNever : command.second[i];
      entries.push_back(
          {.range = model_extent(i).name, .first = command.first[i], .second = second});
    }
    plan_ = cache_->publish_plan(std::move(entries));
    return plan_ != nullptr;
  }

  void count(Answer& answer) {
    answer.used_bytes = cache_->used_bytes();  // Before all is counted anew.
    auto usage = cache_->usage();
    answer.is_ok = static_cast<bool>(usage);
    if (!usage) return;
    answer.file_bytes = usage->file_bytes;
    answer.extent_count = usage->extent_count;
  }

  const std::string directory_;
  const std::uint64_t limit_;
  std::shared_ptr<DiskCache> cache_;
  std::shared_ptr<OwnPlan> plan_;
};

class DiskCacheModel : public ::testing::Test {
 protected:
  struct Process {
    pid_t id = -1;
    Fd socket;
  };

  void begin_round(std::uint64_t limit_bytes) {
    directory_ = std::make_unique<TemporaryDirectory>();
    limit_ = limit_bytes;
    std::map<ObjectId, std::string> urls;
    for (std::size_t i = 0; i < kExtents; ++i)
      urls[model_extent(i).name.object] = model_extent(i).url;
    reference_ = std::make_unique<DiskCacheReference>(limit_bytes, urls);
    for (std::size_t i = 0; i < kReaders; ++i) start(i);
  }
  void end_round() {
    for (std::size_t i = 0; i < kReaders; ++i) kill(i);
  }
  void TearDown() override { end_round(); }

  void start(std::size_t reader) {
    std::array<int, 2> pair{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()), 0);
    const pid_t id = ::fork();
    if (id == 0) {
      ::close(pair[0]);
      for (Process& other : processes_) other.socket = Fd();
      Worker(directory_->path(), limit_).run(pair[1]);
    }
    ::close(pair[1]);
    processes_[reader] = {id, Fd(pair[0])};
  }
  void kill(std::size_t reader) {
    if (processes_[reader].id < 0) return;
    ::kill(processes_[reader].id, SIGKILL);
    ::waitpid(processes_[reader].id, nullptr, 0);
    processes_[reader] = {};
  }
  Answer tell(std::size_t reader, const Command& command) {
    Answer answer;
    const int socket = processes_[reader].socket.get();
    EXPECT_EQ(::write(socket, &command, sizeof(command)), sizeof(command));
    EXPECT_EQ(::read(socket, &answer, sizeof(answer)), sizeof(answer)) << "the process ended";
    EXPECT_TRUE(answer.is_ok) << "operation " << static_cast<int>(command.what);
    return answer;
  }

  // --- operations: of the cache and of the reference ---

  void get(std::size_t reader) {
    const auto extent = static_cast<std::uint32_t>(random_.below(kExtents));
    const ExtentName name = model_extent(extent).name;
    Command read{.what = What::kRead, .extent = extent, .count_bytes = name.length_bytes};
    if (random_.below(3) == 0) {
      read.from_bytes = random_.below(name.length_bytes);
      read.count_bytes = 1 + random_.below(name.length_bytes - read.from_bytes);
    }
    if (read.from_bytes == 0) reference_->note_read(reader, name);
    const bool is_held = reference_->read(name);
    EXPECT_EQ(tell(reader, read).was_there, is_held) << "extent " << extent;
    // Some of what is there is thrown away, as by a reader to whom it made no sense.
    if (is_held && random_.below(20) == 0) {
      tell(reader, {.what = What::kDrop, .extent = extent});
      reference_->drop(name);
    }
    if (is_held || read.count_bytes < name.length_bytes) return;
    tell(reader, {.what = What::kPut, .extent = extent});
    reference_->put(name);
  }
  void pin(std::size_t reader) {
    const std::array<std::string, 3> prefixes = {model_url(random_.below(kObjects)), "s3://even/",
                                                 "s3://odd/o1"};
    const std::string& prefix = prefixes[random_.below(prefixes.size())];
    const bool is_there = reference_->pins().contains(prefix);
    Command command{.what = is_there ? What::kUnpin : What::kPin};
    prefix.copy(command.prefix.data(), command.prefix.size() - 1);
    EXPECT_EQ(tell(reader, command).was_there, is_there);
    if (!reference_->unpin(prefix)) reference_->pin(prefix);
  }
  void remove(std::size_t reader) {
    const std::string prefix = random_.below(4) == 0 ? "" : model_url(random_.below(kObjects));
    Command command{.what = What::kRemove};
    prefix.copy(command.prefix.data(), command.prefix.size() - 1);
    tell(reader, command);
    reference_->remove(prefix);
  }
  /// Some extents, each needed at another time than all others, some of them twice.
  void plan(std::size_t reader) {
    Command command{.what = What::kPlan};
    DiskCacheReference::Plan plan;
    const std::uint64_t share = 1 + random_.below(4);
    for (std::uint32_t i = 0; i < kExtents; ++i) {
      if (random_.below(4) >= share) continue;
      const auto own = static_cast<std::uint32_t>(1 + reader + kReaders * i);
      const std::uint32_t turn = 1000 * static_cast<std::uint32_t>(1 + random_.below(8));
      command.first[i] = own + turn;
      command.second[i] = random_.below(2) == 0 ? 0 : own + turn + 100'000;
      auto& needs = plan[model_extent(i).name];
      needs.push_back(command.first[i]);
      if (command.second[i] != 0) needs.push_back(command.second[i]);
    }
    tell(reader, command);
    reference_->set_plan(reader, std::move(plan));
  }
  void step() {
    const std::size_t reader = random_.below(kReaders);
    switch (random_.below(40)) {
      case 0:
        return pin(reader);
      case 1:
        return remove(reader);
      case 2: {
        const std::uint64_t bytes = random_.below(limit_ + 1);
        tell(reader, {.what = What::kShrink, .count_bytes = bytes});
        return reference_->shrink(bytes);
      }
      case 3:
        return plan(reader);
      case 4:
        tell(reader, {.what = What::kReopen});
        return reference_->set_plan(reader, std::nullopt);
      case 5:
        kill(reader);
        start(reader);
        return reference_->set_plan(reader, std::nullopt);
      default:
        return get(reader);
    }
  }

  // --- what must hold after each ---

  void expect_same(std::size_t reader) {
    // First: it may be the only process, and has to make the directory.
    const Answer answer = tell(reader, {.what = What::kCount});
    std::set<std::string> expected, found;
    const std::filesystem::path root = directory_->path() + "/v1";
    for (const auto& [name, extent] : reference_->held()) {
      expected.insert(extent_path(name));
      set_times((root / extent_path(name)).string(), extent);
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      if (parse_file_name(entry.path().filename().string()))
        found.insert(entry.path().lexically_relative(root).string());
    }
    EXPECT_EQ(found, expected);
    EXPECT_EQ(answer.used_bytes, reference_->used_bytes());
    EXPECT_EQ(answer.file_bytes, reference_->used_bytes());
    EXPECT_EQ(answer.extent_count, reference_->held().size());
    EXPECT_LE(answer.file_bytes, limit_);
  }
  /// What the file says about a hit is what the reference says; when is set.
  static void set_times(const std::string& path, const DiskCacheReference::Extent& extent) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) return;  // It is missing, which is told elsewhere.
    EXPECT_EQ(info.st_mtim.tv_sec != 0 || info.st_mtim.tv_nsec != 0, extent.was_hit) << path;
    const timespec time{.tv_sec = 1000 + extent.since, .tv_nsec = 0};
    const timespec times[2] = {time, extent.was_hit ? time : timespec{}};
    EXPECT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }

  Random random_{test_seed()};
  std::uint64_t limit_ = 0;
  std::unique_ptr<TemporaryDirectory> directory_;
  std::unique_ptr<DiskCacheReference> reference_;
  std::array<Process, kReaders> processes_;
};

TEST_F(DiskCacheModel, HoldsWhatTheRulesSay) {
  for (std::uint64_t round = 0; round < test_round_count(); ++round) {
    // From less than the largest file to more than all of them.
    begin_round(60'000 + random_.below(700'000));
    for (int i = 0; i < 60; ++i) {
      step();
      expect_same(random_.below(kReaders));
      ASSERT_FALSE(HasFailure()) << seed_and_round(round) << " step " << i;
    }
    end_round();
  }
}

}  // namespace
}  // namespace headrace::tier
