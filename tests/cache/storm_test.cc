// Processes that share a cache are killed at random moments, its files are damaged and deleted, and
// its disk fills, fails, turns read-only and back while clocks jump: no wrong byte, no read that
// does not end, never more than the limit, nothing left behind.
#include <sys/mman.h>
#include <sys/stat.h>

#include <ctime>
#include <new>

#include "base/cut_off.h"
#include "cache/disk_faults.h"
#include "cache/storm_world.h"

namespace headrace {
namespace {

/// Kills between two changes of what is wrong with the disk.
constexpr std::uint64_t kKillsBetween = 12;

class Storm : public StormWorld {
 protected:
  std::uint64_t limit_bytes() const override { return std::uint64_t{4} << 20; }  // A third.

  void SetUp() override {
    StormWorld::SetUp();
    const std::string control = directory_.path() + "/faults";
    const Fd file(::open(control.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_EQ(::ftruncate(file.get(), sizeof(DiskFaults)), 0);
    void* const memory =
        ::mmap(nullptr, sizeof(DiskFaults), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    ASSERT_NE(memory, MAP_FAILED);
    faults_ = new (memory) DiskFaults{};
    ::setenv("HEADRACE_FAULT_ROOT", cache().c_str(), 1);
    ::setenv("HEADRACE_FAULT_CONTROL", control.c_str(), 1);
  }
  void TearDown() override {
    StormWorld::TearDown();
    if (faults_ != nullptr) ::munmap(faults_, sizeof(DiskFaults));
  }

  Worker start_one(std::size_t job) { return start(job, HEADRACE_DISK_FAULTS); }

  void make_calm() {
    for (auto* share :
         {&faults_->read_eio, &faults_->write_eio, &faults_->no_space, &faults_->short_count,
          &faults_->is_read_only, &faults_->no_tmpfile, &faults_->no_links})
      share->store(0);
    faults_->clock_offset_s.store(0);
  }
  /// \return whether a process can be expected to read then.
  void change_weather() {
    make_calm();
    constexpr std::int64_t kYear = 31'557'600;
    weather_ = random_.below(9);
    switch (weather_) {
      case 0:
        break;
      case 1:
        faults_->no_space.store(1000);
        break;
      case 2:
        faults_->no_space.store(200);
        break;
      case 3:
        faults_->read_eio.store(random_.below(2) == 0 ? 1000 : 20);
        break;
      case 4:
        faults_->write_eio.store(random_.below(2) == 0 ? 1000 : 20);
        break;
      case 5:
        faults_->is_read_only.store(1);
        break;
      case 6:
        faults_->short_count.store(300);
        break;
      case 7:
        faults_->clock_offset_s.store(random_.below(2) == 0 ? kYear : -50 * kYear);
        break;
      default:
        faults_->read_eio.store(5);
        faults_->write_eio.store(5);
        faults_->no_space.store(50);
        faults_->short_count.store(100);
        faults_->clock_offset_s.store(-3600);
    }
    const std::uint64_t kind = random_.below(3);  // Of the file system.
    faults_->no_tmpfile.store(kind > 0 ? 1 : 0);
    faults_->no_links.store(kind > 1 ? 1 : 0);
  }
  bool is_calm() const {
    return faults_->read_eio == 0 && faults_->write_eio == 0 && faults_->no_space == 0 &&
           faults_->is_read_only == 0;
  }

  void damage_one() {
    const auto all = extents();
    const std::filesystem::path own = cache() + "/v1/ledger";
    const bool is_ledger = random_.below(8) == 0;
    if (!is_ledger && all.empty()) return;
    const std::filesystem::path victim = is_ledger ? own : all[random_.below(all.size())];
    std::error_code gone;
    const std::uint64_t size = std::filesystem::file_size(victim, gone);
    if (gone) return;
    const std::uint64_t kind = random_.below(4);
    last_damage_ += " " + std::to_string(kind) + (is_ledger ? "L" : "");
    if (last_damage_.size() > 100) last_damage_.erase(0, 20);
    switch (kind) {
      case 0:
        std::filesystem::remove(victim, gone);
        return;
      case 1:
        std::filesystem::resize_file(victim, random_.below(size + 1), gone);
        return;
      case 2: {
        const timespec times[2] = {{static_cast<time_t>(random_.below(4'000'000'000)), 0},
                                   {static_cast<time_t>(random_.below(4'000'000'000)), 0}};
        ::utimensat(AT_FDCWD, random_.below(2) == 0 ? victim.c_str() : victim.parent_path().c_str(),
                    times, 0);
        return;
      }
      default: {
        const Fd file(::open(victim.c_str(), O_WRONLY | O_CLOEXEC));
        const std::uint64_t garbage = random_.next();
        static_cast<void>(!::pwrite(file.get(), &garbage, sizeof(garbage),
                                    static_cast<off_t>(8 + random_.below(size + 1))));
      }
    }
  }

  /// So many processes at a time, of which one after the other is killed and replaced.
  void storm(std::size_t processes, std::uint64_t kills) {
    for (std::size_t i = 0; i < processes; ++i) workers_.push_back(start_one(i % kJobs));
    for (std::uint64_t i = 0; i < kills; ++i) {
      if (i % kKillsBetween == kKillsBetween - 1) change_weather();
      Worker& worker = workers_[random_.below(processes)];
      if (is_calm() && random_.below(4) != 0) {
        ASSERT_TRUE(says(worker)) << "every start finds the cache usable, after kill " << i;
      }
      // At any moment of its life, its start included.
      const timespec pause{.tv_sec = 0, .tv_nsec = static_cast<long>(random_.below(20'000'000))};
      ::nanosleep(&pause, nullptr);
      kill(worker);
      if (HasFailure()) return;
      worker = start_one(worker.job);
      if (random_.below(3) == 0) damage_one();
      // One extent for each process: written and about to be deleted as damaged.
      ASSERT_LE(held_bytes(), limit_bytes() + processes * kStormExtentBytes)
          << "after kill " << i << " in weather " << weather_ << " " << faults_->no_tmpfile
          << last_damage_;
    }
    make_calm();
    EXPECT_GT(faults_->given_count.load(), 0U) << "the library was not loaded";
    for (Worker& worker : workers_) {
      EXPECT_TRUE(says(worker, 20)) << "usable at once when the disk is well again";
      kill(worker);
    }
    EXPECT_GT(extents().size(), 0U) << "the storm left something to look at";
    expect_order();
  }

  DiskFaults* faults_ = nullptr;
  std::uint64_t weather_ = 0;
  std::string last_damage_;
};

// HEADRACE_STORM_KILLS: 10,000 in the long set.
TEST_F(Storm, KillsAndFaultsLeaveNothingWrong) {
  storm(kProcesses, test_number("HEADRACE_STORM_KILLS", 300));
}

// A process that has the directory to itself writes when nobody waits for a read, and from the
// memory that was read into.
TEST_F(Storm, SoDoThoseOfAProcessThatIsAlone) {
  storm(1, test_number("HEADRACE_STORM_KILLS", 300));
}

}  // namespace
}  // namespace headrace
