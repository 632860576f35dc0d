#include "headrace/order_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "base/fd.h"
#include "base/temporary_directory.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<const MosaicEpoch> epoch_of(std::uint64_t number, std::size_t shards = 30) {
  MosaicSpec spec;
  spec.shuffle = true;
  MosaicStream stream;
  stream.shard_samples.assign(shards, 100);
  MosaicState state;
  state.epoch = number;
  auto epoch = MosaicEpoch::create(spec, std::span(&stream, 1), {1, 1, 1, 10}, state);
  EXPECT_TRUE(epoch.has_value());
  return *epoch;
}

std::vector<std::int64_t> slots(const SampleList& list) {
  std::vector<std::int64_t> out(list.size());
  list.read(0, out);
  return out;
}

class OrderTable : public ::testing::Test {
 protected:
  OrderTableOptions options() const {
    OrderTableOptions out;
    out.directory = directory_.path();
    out.least_bytes = 0;
    out.kept_tables = 2;
    return out;
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    for (const auto& entry : fs::directory_iterator(directory_.path())) out.push_back(entry.path());
    return out;
  }
  void expect_right(std::uint64_t number, const OrderTableOptions& options) {
    const auto epoch = epoch_of(number);
    auto list = open_mosaic_list(*epoch, options);
    ASSERT_TRUE(list.has_value()) << list.error().message();
    EXPECT_EQ(slots(**list), slots(**make_mosaic_list(*epoch)));
  }
  struct LockedTable {
    fs::path table, lock_path;
    Fd lock;
  };
  /// Table 0, which is not there, locked as by a process that makes it and is stopped.
  LockedTable lock_table() {
    expect_right(0, options());
    LockedTable locked{.table = files()[0], .lock_path = files()[0], .lock = {}};
    fs::remove(locked.table);
    locked.lock_path.replace_extension(".lock");
    locked.lock = Fd(::open(locked.lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    EXPECT_EQ(::flock(locked.lock.get(), LOCK_EX | LOCK_NB), 0);
    return locked;
  }
  TemporaryDirectory directory_;
};

TEST_F(OrderTable, IsMadeOnceAndFoundAgain) {
  expect_right(0, options());
  ASSERT_EQ(files().size(), 1U);
  const auto path = files()[0];
  EXPECT_EQ(fs::file_size(path), 128U + 3000 * 4);
  struct stat made {};
  struct stat found {};
  ASSERT_EQ(::stat(path.c_str(), &made), 0);
  // Kept open, so that a new file could not have the same number.
  const Fd keeper(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  expect_right(0, options());
  ASSERT_EQ(::stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_ino, made.st_ino);
}

TEST_F(OrderTable, IsNotWaitedForLongerThanAsked) {
  const auto [table, lock_path, lock] = lock_table();
  OrderTableOptions impatient = options();
  impatient.longest_wait = std::chrono::milliseconds(0);
  expect_right(0, impatient);
  EXPECT_FALSE(fs::exists(table));
  // Only this table is locked, and its lock is not taken for a stale one.
  expect_right(1, impatient);
  EXPECT_EQ(files().size(), 2U);
  EXPECT_TRUE(fs::exists(lock_path));
  ASSERT_EQ(::flock(lock.get(), LOCK_UN), 0);
  expect_right(0, impatient);
  EXPECT_TRUE(fs::exists(table));
  EXPECT_FALSE(fs::exists(lock_path));
}

TEST_F(OrderTable, WaitingForItCanBeCancelled) {
  const auto [table, lock_path, lock] = lock_table();
  OrderTableOptions patient = options();
  patient.longest_wait = std::chrono::hours(24);
  const auto epoch = epoch_of(0);
  std::stop_source source;
  std::thread canceller([&] { source.request_stop(); });
  const auto list = open_mosaic_list(*epoch, patient, source.get_token());
  canceller.join();
  ASSERT_FALSE(list.has_value());
  EXPECT_EQ(list.error().code(), Code::kCancelled);
  EXPECT_TRUE(fs::exists(lock_path));
  EXPECT_FALSE(fs::exists(table));
}

TEST_F(OrderTable, RemovesLocksOfTheDead) {
  std::ofstream(fs::path(directory_.path()) / "0123.lock");
  expect_right(0, options());
  ASSERT_EQ(files().size(), 1U);
  EXPECT_EQ(files()[0].extension(), ".order");
}

TEST_F(OrderTable, IsMadeAnewWhenItIsNotWhatItShouldBe) {
  expect_right(0, options());
  const auto path = files()[0];
  for (const auto& spoil : std::vector<std::function<void()>>{
           [&] { fs::resize_file(path, 200); },
           [&] {
             std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
             file.seekp(60);  // the boot
             file.write("another", 7);
           },
           [&] {
             std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
             file.seekp(128 + 400);  // an entry, now far behind the last sample
             file.write("\xff\xff\xff\x7f", 4);
           },
           [&] { fs::remove(path); }}) {
    spoil();
    expect_right(0, options());
    EXPECT_EQ(files().size(), 1U);
  }
}

TEST_F(OrderTable, KeepsTheNewest) {
  for (std::uint64_t number = 0; number < 5; ++number) expect_right(number, options());
  EXPECT_EQ(files().size(), 2U);
}

TEST_F(OrderTable, StaysInMemoryWhereThereIsNoDirectory) {
  OrderTableOptions gone = options();
  gone.directory += "/none";
  expect_right(0, gone);
  gone.directory.clear();
  expect_right(0, gone);
  OrderTableOptions small = options();
  small.least_bytes = 1 << 20;
  expect_right(0, small);
  EXPECT_TRUE(files().empty());
}

TEST_F(OrderTable, IsMadeByOneOfMany) {
  std::vector<std::thread> ranks;
  for (int i = 0; i < 4; ++i) ranks.emplace_back([&] { expect_right(3, options()); });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(files().size(), 1U);
}

TEST_F(OrderTable, DamageIsNoticedAndTheTableMadeAnew) {
  expect_right(0, options());
  const fs::path path = files()[0];
  const auto content = [&] {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string good = content();
  std::vector<std::string> damaged = {"", good.substr(0, good.size() / 2), good + "x"};
  for (const std::size_t at : {0U, 20U, 70U, 104U, 120U, 128U, 5000U}) {
    damaged.push_back(good);
    damaged.back()[at] = static_cast<char>(damaged.back()[at] ^ 4);
  }
  damaged.push_back(good);
  damaged.back().replace(good.size() / 2, 64, std::string(64, '\xff'));  // Ids out of range.
  for (const std::string& bad : damaged) {
    for (const std::uint64_t most : {std::uint64_t{1} << 20, std::uint64_t{0}}) {
      fs::remove(path);
      std::ofstream(path, std::ios::binary) << bad;
      OrderTableOptions both = options();
      both.most_copied_bytes = most;
      expect_right(0, both);
      EXPECT_EQ(content(), good);
    }
  }
}

TEST_F(OrderTable, WhatHappensToTheFileLaterDoesNotMatter) {
  const auto epoch = epoch_of(0);
  const auto made = open_mosaic_list(*epoch, options());
  const auto found = open_mosaic_list(*epoch, options());
  ASSERT_TRUE(made.has_value() && found.has_value());
  struct stat info {};
  ASSERT_EQ(::stat(files()[0].c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  fs::resize_file(files()[0], 0);  // SIGBUS, were it mapped.
  const auto right = slots(**make_mosaic_list(*epoch));
  EXPECT_EQ(slots(**made), right);
  EXPECT_EQ(slots(**found), right);
}

/// In a process of its own, as a clumsy clean-up would.
void cut_off(const fs::path& path, off_t size_bytes) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::truncate(path.c_str(), size_bytes) == 0 ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
}

/// What this thread has read from files so far.
std::uint64_t bytes_read_by_thread() {
  std::ifstream file("/proc/thread-self/io");
  std::string name;
  std::uint64_t value = 0;
  file >> name >> value;
  return name == "rchar:" ? value : 0;
}

TEST_F(OrderTable, ALargeOneStaysInItsFile) {
  if (bytes_read_by_thread() == 0) GTEST_SKIP() << "the kernel does not count what threads read";
  OrderTableOptions paged = options();
  paged.most_copied_bytes = 0;
  const auto epoch = epoch_of(0, 3000);
  const auto list = open_mosaic_list(*epoch, paged);
  ASSERT_TRUE(list.has_value());
  const std::uint64_t before = bytes_read_by_thread();
  const auto got = slots(**list);
  EXPECT_GE(bytes_read_by_thread() - before, epoch->table_bytes());
  EXPECT_EQ(got, slots(**make_mosaic_list(*epoch)));
}

TEST_F(OrderTable, ALargeOneIsReadInPages) {
  OrderTableOptions paged = options();
  paged.most_copied_bytes = 0;
  const auto epoch = epoch_of(0, 3000);  // 19 pages.
  const auto right = slots(**make_mosaic_list(*epoch));
  const auto made = open_mosaic_list(*epoch, paged);
  const auto found = open_mosaic_list(*epoch, paged);
  ASSERT_TRUE(made.has_value() && found.has_value());
  ASSERT_EQ(files().size(), 1U);
  EXPECT_EQ(slots(**made), right);
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; ++i) readers.emplace_back([&] { EXPECT_EQ(slots(**found), right); });
  for (std::thread& reader : readers) reader.join();
}

TEST_F(OrderTable, OneInPagesThatIsCutOffOrChangedIsMadeInMemory) {
  OrderTableOptions paged = options();
  paged.most_copied_bytes = 0;
  const auto epoch = epoch_of(0, 3000);
  const auto right = slots(**make_mosaic_list(*epoch));
  const auto change = [&](off_t at) {
    const Fd fd(::open(files()[0].c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_EQ(::pwrite(fd.get(), "\xff\xff", 2, at), 2);
  };
  for (const auto& spoil : std::vector<std::function<void()>>{[&] { cut_off(files()[0], 0); },
                                                              [&] { cut_off(files()[0], 700'000); },
                                                              [&] { change(1'000'000); }}) {
    for (const auto& file : files()) fs::remove(file);
    const auto list = open_mosaic_list(*epoch, paged);
    ASSERT_TRUE(list.has_value());
    std::vector<std::int64_t> got(right.size());
    const std::size_t half = got.size() / 2;
    (*list)->read(0, std::span(got).first(half / 10));
    spoil();  // SIGBUS, were it mapped.
    (*list)->read(half / 10, std::span(got).subspan(half / 10, half));
    (*list)->read(half / 10 + half, std::span(got).subspan(half / 10 + half));
    EXPECT_EQ(got, right);
  }
}

}  // namespace
}  // namespace headrace
