#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <thread>

#include "base/fd.h"
#include "copy/copy_job_fixture.h"
#include "copy/odd_store.h"
#include "store/fault/fault_store.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(CopyJobTest, TreesAreEqualAfterwardsBetweenAllKindsOfStores) {
  int number = 0;
  for (const char* from_kind : {"memory", "file"}) {
    for (const char* to_kind : {"memory", "file"}) {
      const auto make = [&](const char* kind) {
        const std::string name = "s" + std::to_string(number++);
        return kind == std::string("file") ? files(name) : open("memory://" + name);
      };
      const auto from = make(from_kind), to = make(to_kind);
      fill(*from, tree_);
      const CopyProgress progress = copy(*from, *to, everything());
      EXPECT_EQ(contents(*to), tree_) << from_kind << " to " << to_kind;
      EXPECT_EQ(progress.done_count, tree_.size());
      EXPECT_EQ(progress.done_bytes, progress.found_bytes);
      EXPECT_EQ(progress.failed_count, 0U);
      EXPECT_TRUE(progress.is_listing_done);
    }
  }
  EXPECT_THAT(hidden_names(), IsEmpty());
}

TEST_F(CopyJobTest, OneStoreCopiesByItself) {
  const auto store = open("memory://same");
  fill(*store, tree_);
  CopyOptions options = everything();
  options.tasks = {{.from = "deep/", .to = "copy/", .is_tree = true, .strip_bytes = 5},
                   {.from = "large", .to = "one"}};
  EXPECT_EQ(copy(*store, *store, options).done_count, 3U);
  const Tree found = contents(*store);
  EXPECT_EQ(found.at("copy/er/b c"), "23");
  EXPECT_EQ(found.at("one"), tree_.at("large"));
}

TEST_F(CopyJobTest, PatternsAndFiltersChoose) {
  const auto from = open("memory://from"), to = open("memory://to");
  fill(*from, tree_);
  CopyOptions options = everything();
  options.tasks[0].pattern = "deep/**";
  EXPECT_EQ(copy(*from, *to, options).done_count, 2U);
  options.tasks[0].pattern = "";
  options.filter.include.push_back(*Glob::parse("large*"));
  options.filter.exclude.push_back(*Glob::parse("*-too"));
  EXPECT_EQ(copy(*from, *to, options).done_count, 1U);
  EXPECT_EQ(contents(*to).count("large"), 1U);
  options.tasks[0].pattern = "[";
  auto job = CopyJob::create(*from, *to, options);
  ASSERT_TRUE(job);
  EXPECT_EQ((*job)->run().code(), Code::kInvalidArgument);
}

TEST_F(CopyJobTest, FiltersChooseAmongSingleObjectsToo) {
  const auto from = open("memory://from"), to = open("memory://to");
  fill(*from, {{"d/a.keep", "1"}, {"d/b", "2"}});
  CopyOptions options = everything();
  options.tasks = {{.from = "d/a.keep", .to = "a"}, {.from = "d/b", .to = "b"}};
  options.filter.exclude.push_back(*Glob::parse("*.keep"));
  EXPECT_EQ(copy(*from, *to, options).done_count, 1U);
  EXPECT_EQ(contents(*to), (Tree{{"b", "2"}}));
}

TEST_F(CopyJobTest, FilesThatHaveMoreThanTheySayAreNoEmptyObjects) {
  const auto from = open("/proc"), to = open("memory://to");
  CopyOptions options = everything();
  options.tasks = {{.from = "version", .to = "x"}};
  EXPECT_EQ(copy(*from, *to, options).failed_count, 1U);
  ASSERT_EQ(failures_.size(), 1U);
  EXPECT_EQ(failures_[0].status.code(), Code::kUnsupported) << failures_[0].status.message();
  EXPECT_THAT(contents(*to), IsEmpty());
}

TEST_F(CopyJobTest, FilesKeepThePermissionsOfTheirSources) {
  const auto from = files("from"), to = files("to");
  const std::string large = random_text(1'000'000, 4);
  fill(*from, {{"run.sh", "1"}, {"secret", "2"}, {"large", large}, {"replaced", "3"}});
  fill(*to, {{"replaced", "old"}});
  const auto path = [&](const std::string& name) { return directory_.path() + "/" + name; };
  const auto set = [&](const std::string& name, unsigned mode) {
    fs::permissions(path(name), static_cast<fs::perms>(mode));
  };
  const auto mode = [&](const std::string& name) {
    return static_cast<unsigned>(fs::status(path(name)).permissions());
  };
  set("from/run.sh", 0700);
  set("from/secret", 0600);
  set("from/large", 0400);
  set("from/replaced", 0644);
  set("to/replaced", 0640);
  copy(*from, *to, everything());
  EXPECT_EQ(mode("to/run.sh"), 0700U);
  EXPECT_EQ(mode("to/secret"), 0600U);
  EXPECT_EQ(mode("to/large"), 0400U);
  EXPECT_EQ(mode("to/replaced"), 0640U) << "its own";
  EXPECT_EQ(contents(*to).at("large"), large);
}

TEST_F(CopyJobTest, FlattenedTreesLieInOnePlaceAndNoNameTwice) {
  const auto from = open("memory://from"), to = open("memory://to");
  fill(*from, {{"a", "1"}, {"deep/b", "2"}, {"deep/er/c", "3"}});
  CopyOptions options = everything();
  options.tasks[0].to = "all/";
  options.flattens = true;
  EXPECT_EQ(copy(*from, *to, options).done_count, 3U);
  EXPECT_EQ(contents(*to), (Tree{{"all/a", "1"}, {"all/b", "2"}, {"all/c", "3"}}));
  options.rule = CopyRule::kIfAbsent;
  EXPECT_EQ(copy(*from, *to, options).skipped_count, 3U);
  fill(*from, {{"wide/c", "4"}});
  auto job = CopyJob::create(*from, *to, options);
  ASSERT_TRUE(job);
  const Status status = (*job)->run();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(testing::HasSubstr("memory://from/wide/c"),
                             testing::HasSubstr("memory://from/deep/er/c"),
                             testing::HasSubstr(" would both become memory://to/all/c")));
  options.deletes_extra = true;
  EXPECT_FALSE(CopyJob::create(*from, *to, options));
}

TEST_F(CopyJobTest, RulesSkipWhatIsCurrent) {
  const auto from = open("memory://from");
  const auto to = files("to");
  fill(*from, {{"same", "1"}, {"size", "12"}, {"new", "3"}});
  fill(*to, {{"same", "x"}, {"size", "2"}, {"zzz", ""}});
  CopyOptions options = everything();
  options.rule = CopyRule::kIfAbsent;
  EXPECT_EQ(copy(*from, *to, options).skipped_count, 2U);
  EXPECT_EQ(contents(*to), (Tree{{"same", "x"}, {"size", "2"}, {"new", "3"}, {"zzz", ""}}));
  options.rule = CopyRule::kIfSizeDiffers;
  EXPECT_EQ(copy(*from, *to, options).done_count, 1U);
  EXPECT_EQ(contents(*to).at("size"), "12");
  EXPECT_EQ(contents(*to).at("same"), "x");

  const auto touch = [&](std::chrono::seconds change, const char* name = "same") {
    const std::string path = directory_.path() + "/to/" + name;
    fs::last_write_time(path, fs::file_time_type::clock::now() + change);
  };
  options.rule = CopyRule::kIfNewer;
  for (const char* name : {"same", "size", "new"}) touch(std::chrono::hours(1), name);
  EXPECT_EQ(copy(*from, *to, options).done_count, 0U);
  touch(-std::chrono::hours(1));
  EXPECT_EQ(copy(*from, *to, options).done_count, 1U);
  EXPECT_EQ(contents(*to).at("same"), "1");

  touch(std::chrono::hours(1));
  options.rule = CopyRule::kIfDifferent;
  EXPECT_GE(copy(*from, *to, options).done_count, 1U);
  EXPECT_EQ(copy(*from, *to, options).done_count, 0U) << "copies have the source's time";
}

TEST_F(CopyJobTest, WhatChangedInTheSecondOfItsCopyIsCopiedAgain) {
  const auto from = files("from");
  CopyOptions options = everything();
  options.rule = CopyRule::kIfNewer;
  const auto touch = [&](const std::string& name, std::int64_t seconds) {
    const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT},
                               {.tv_sec = seconds, .tv_nsec = 0}};
    EXPECT_EQ(::utimensat(AT_FDCWD, (directory_.path() + name).c_str(), times, 0), 0);
  };
  for (const auto& to : {files("to"), open("memory://to")}) {
    fill(*from, {{"x", "1"}});
    ASSERT_EQ(copy(*from, *to, options).done_count, 1U);
    fill(*from, {{"x", "2"}});
    auto copied = to->head("x");
    ASSERT_TRUE(copied);
    touch("/from/x", copied->modified_unix_s);
    EXPECT_EQ(copy(*from, *to, options).done_count, 1U);
    EXPECT_EQ(contents(*to).at("x"), "2");
    touch("/from/x", copied->modified_unix_s - 1);
    EXPECT_EQ(copy(*from, *to, options).done_count, 0U);
  }
  // A copy that was given its source's time is current.
  touch("/from/x", 1'000'000'000);
  const auto to = files("kept");
  CopyOptions keeping = options;
  keeping.keeps_times = true;
  ASSERT_EQ(copy(*from, *to, keeping).done_count, 1U);
  EXPECT_EQ(copy(*from, *to, options).done_count, 0U);
}

TEST_F(CopyJobTest, ExtraObjectsAreDeletedAfterAWholeCopyOnly) {
  const auto from = open("memory://from");
  const auto to = files("to");
  fill(*from, {{"t/a", "1"}, {"t/keep.log", "1"}});
  fill(*to, {{"u/a", "1"}, {"u/b", "1"}, {"u/c.log", "1"}, {"other", "1"}});
  CopyOptions options = everything();
  options.tasks = {{.from = "t/", .to = "u/", .is_tree = true, .strip_bytes = 2}};
  options.deletes_extra = true;
  options.filter.exclude.push_back(*Glob::parse("*.log"));
  options.is_dry_run = true;
  EXPECT_EQ(copy(*from, *to, options).deleted_count, 1U);
  ASSERT_THAT(events_, SizeIs(2));
  EXPECT_EQ(events_[1].kind, CopyEvent::Kind::kDeleted);
  EXPECT_EQ(events_[1].to_key, "u/b");
  EXPECT_EQ(contents(*to).size(), 4U) << "a dry run changes nothing";
  options.is_dry_run = false;
  fill(*to, {{"u/a", "not a file"}});
  EXPECT_EQ(copy(*from, *to, options).deleted_count, 1U);
  EXPECT_EQ(contents(*to), (Tree{{"u/a", "1"}, {"u/c.log", "1"}, {"other", "1"}}));

  fill(*from, {{"t/../x", "cannot be a file"}});
  fill(*to, {{"u/b", "1"}});
  EXPECT_EQ(copy(*from, *to, options).deleted_count, 0U);
  EXPECT_THAT(failures_, SizeIs(1));
}

TEST_F(CopyJobTest, OneFailureDoesNotStopTheOthers) {
  const auto from = open("memory://from");
  const auto to = files("to");
  Tree tree = tree_;
  fill(*from, tree);
  fill(*from, {{"a/below", "x"}, {"../up", "x"}, {"deep/er", "x"}});
  const CopyProgress progress = copy(*from, *to, everything());
  std::vector<std::string> keys;
  for (const CopyFailure& failure : failures_) keys.push_back(failure.key);
  std::sort(keys.begin(), keys.end());
  // Of a file and a directory of one name, the one that comes second fails.
  ASSERT_THAT(keys, SizeIs(3));
  EXPECT_EQ(keys[0], "../up");
  EXPECT_EQ(progress.failed_count, 3U);
  EXPECT_EQ(progress.done_count, tree.size());
}

TEST_F(CopyJobTest, AHopelessTargetEndsTheRun) {
  const auto from = open("memory://from");
  Tree tree;
  for (int i = 0; i < 500; ++i) tree["k" + std::to_string(i)] = "x";
  fill(*from, tree);
  const auto to =
      FaultStore::create(open("memory://to"), {.error_share = 1, .error_code = Code::kDenied});
  CopyOptions options = everything();
  options.give_up_count = 10;
  options.max_in_flight = 64;  // What is under way fails as well.
  auto job = CopyJob::create(*from, *to, options);
  ASSERT_TRUE(job);
  EXPECT_EQ((*job)->run().code(), Code::kDenied);
  EXPECT_LT((*job)->progress().failed_count, 400U);
}

TEST_F(CopyJobTest, NothingThereIsNotFound) {
  const auto from = open("memory://from"), to = open("memory://to");
  CopyOptions options = everything();
  options.deletes_extra = true;
  fill(*to, {{"x", "1"}});
  for (const bool is_tree : {false, true}) {
    options.tasks = {{.from = "none", .to = "x", .is_tree = is_tree}};
    auto job = CopyJob::create(*from, *to, options);
    ASSERT_TRUE(job);
    EXPECT_EQ((*job)->run().code(), Code::kNotFound);
  }
  EXPECT_EQ(contents(*to).size(), 1U) << "an empty source deletes nothing";
}

TEST_F(CopyJobTest, OptionsAreChecked) {
  const auto from = open("memory://from"), to = open("memory://to");
  for (const auto& spoil : std::vector<std::function<void(CopyOptions&)>>{
           [](CopyOptions& o) { o.max_in_flight = 0; },
           [](CopyOptions& o) { o.memory_bytes = 1000; },
           [](CopyOptions& o) { o.tasks[0].strip_bytes = 1; },
           [](CopyOptions& o) { o.tasks = {{.from = "", .to = "x"}}; }}) {
    CopyOptions options = everything();
    spoil(options);
    auto job = CopyJob::create(*from, *to, options);
    ASSERT_FALSE(job);
    EXPECT_EQ(job.error().code(), Code::kInvalidArgument);
  }
}

TEST_F(CopyJobTest, FaultsOfBothEndsNeverMakeWrongBytes) {
  int successes = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const std::string name = std::to_string(seed);
    auto source = open("memory://from" + name), target = open("memory://to" + name);
    fill(*source, tree_);
    const FaultOptions faults{.seed = seed,
                              .error_share = 0.1,
                              .call_error_share = 0.1,
                              .short_accept_share = 0.3,
                              .hold_back_count = 5};
    const auto from = FaultStore::create(*source->new_handle(), faults);
    const auto to = FaultStore::create(*target->new_handle(), faults);
    auto job = CopyJob::create(*from, *to, everything());
    if (!job) continue;  // no handle, by a fault
    const Status status = (*job)->run();
    successes += status.ok() ? 1 : 0;
    const Tree found = contents(*target);
    for (const auto& [key, text] : found) EXPECT_EQ(text, tree_.at(key)) << key << " seed " << seed;
    const CopyProgress progress = (*job)->progress();
    // A write may have arrived although its answer was an error.
    EXPECT_LE(progress.done_count, found.size()) << "seed " << seed;
    if (status.ok()) {
      EXPECT_EQ(progress.done_count + progress.failed_count, tree_.size());
    }
  }
  EXPECT_GE(successes, 3) << "most seeds let a job end";
}

TEST_F(CopyJobTest, ACancelledRunIsContinued) {
  const auto source = open("memory://from");
  fill(*source, {{"x", random_text(8 * kMiB, 9)}});
  const auto to = files("to");
  CopyOptions options = everything();
  options.max_in_flight = 1;
  options.thread_count = 1;
  std::uint64_t resumed = 0;
  for (int run = 0; run < 1000; ++run) {
    auto job = CopyJob::create(*source, *to, options);
    ASSERT_TRUE(job);
    std::stop_source stop;
    const std::uint64_t goal = kMiB * static_cast<std::uint64_t>(run + 1);
    std::jthread canceller([&](std::stop_token ended) {
      while (!ended.stop_requested() && (*job)->progress().done_bytes < goal)
        std::this_thread::yield();
      stop.request_stop();
    });
    const Status status = (*job)->run(stop.get_token());
    canceller.request_stop();
    canceller.join();
    resumed = std::max(resumed, (*job)->progress().resumed_bytes);
    if (status.ok()) break;
    EXPECT_EQ(status.code(), Code::kCancelled);
    EXPECT_FALSE(fs::exists(directory_.path() + "/to/x"));
  }
  EXPECT_EQ(contents(*to), contents(*source));
  EXPECT_THAT(hidden_names(), IsEmpty());
}

TEST_F(CopyJobTest, PartsOfAnEarlierRunAreNotMovedAgain) {
  const auto inner = open("memory://from");
  fill(*inner, {{"x", random_text(kMiB, 9)}});
  const auto to = files("to");
  CopyOptions options = everything();
  const auto bad = FaultStore::create(*inner->new_handle(), {.seed = 4, .error_share = 0.3});
  copy(*bad, *to, options);
  ASSERT_THAT(failures_, SizeIs(1));
  const CopyProgress progress = copy(*inner, *to, options);
  EXPECT_GT(progress.resumed_bytes, 0U);
  EXPECT_EQ(progress.done_bytes, kMiB);
  EXPECT_EQ(contents(*to), contents(*inner));
}

/// A pipe, closed at both ends with the test.
struct Pipe {
  Pipe() { EXPECT_EQ(::pipe(ends), 0); }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  void close_end(int which) {
    if (ends[which] >= 0) ::close(ends[which]);
    ends[which] = -1;
  }
  int ends[2];
};

TEST_F(CopyJobTest, StreamsOfAnyLengthBecomeObjectsAndComeBack) {
  const auto store = open("memory://streams");
  StreamOptions options;
  options.part_bytes = 64 << 10;
  options.memory_bytes = kMiB;
  for (const std::size_t size : {0U, 10U, 64U << 10, (64U << 10) + 1, 700'000U}) {
    const std::string text = random_text(size, size);
    Pipe in;
    std::thread feeder([&] {
      std::size_t done = 0;
      while (done < size) {
        const ssize_t count = ::write(in.ends[1], text.data() + done, size - done);
        if (count <= 0) break;
        done += static_cast<std::size_t>(count);
      }
      in.close_end(1);
    });
    auto info = write_stream(in.ends[0], *store, "s", options);
    feeder.join();
    ASSERT_TRUE(info) << info.error().message();
    EXPECT_EQ(*read_object(*store, *pool_, "s", 1 << 30), text);

    Pipe out;
    std::string received;
    std::thread reader([&] {
      char buffer[4096];
      ssize_t count = 0;
      while ((count = ::read(out.ends[0], buffer, sizeof buffer)) > 0)
        received.append(buffer, static_cast<std::size_t>(count));
    });
    auto moved = read_stream(*store, "s", out.ends[1], size / 3, UINT64_MAX, options);
    out.close_end(1);
    reader.join();
    ASSERT_TRUE(moved);
    EXPECT_EQ(received, text.substr(size / 3));
  }
}

/// The descriptor of a file that has this text.
Fd input(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
  return Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

TEST_F(CopyJobTest, PartsOfAStreamGrowWithTheirNumber) {
  const auto inner = open("memory://streams");
  OddStore::Hooks hooks;
  hooks.traits.max_parts = 10;
  OddStore store(*inner->new_handle(), hooks);
  const std::string text = random_text(2 * kMiB + 1, 5);
  const Fd in = input(directory_.path() + "/in", text);
  auto info = write_stream(in.get(), store, "s",
                           {.part_bytes = 64 << 10, .memory_bytes = kMiB, .max_in_flight = 4});
  ASSERT_TRUE(info) << info.error().message();
  EXPECT_EQ(*read_object(*inner, *pool_, "s", 1 << 30), text);
}

TEST_F(CopyJobTest, AStreamWhoseLeastPartDoesNotFitIsRefusedBeforeItIsRead) {
  const auto inner = open("memory://streams");
  OddStore::Hooks hooks;
  hooks.traits.min_part_bytes = 5 * kMiB;
  OddStore store(*inner->new_handle(), hooks);
  const std::string text = random_text(11 * kMiB, 6);
  const Fd in = input(directory_.path() + "/in", text);
  const auto refused = write_stream(in.get(), store, "s", {.memory_bytes = 4 * kMiB});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(::lseek(in.get(), 0, SEEK_CUR), 0);
  ASSERT_TRUE(write_stream(in.get(), store, "s", {.memory_bytes = 6 * kMiB}));
  EXPECT_EQ(*read_object(*inner, *pool_, "s", 1 << 30), text);
}

TEST_F(CopyJobTest, AStreamMayTakeFreeNamesOnly) {
  const auto store = open("memory://streams");
  fill(*store, {{"s", "there"}});
  for (const std::size_t size : {10U, 200U << 10}) {
    const Fd in = input(directory_.path() + "/in", random_text(size, 7));
    const StreamOptions options{.part_bytes = 64 << 10, .if_absent = true};
    EXPECT_EQ(write_stream(in.get(), *store, "s", options).error().code(), Code::kChanged);
    ASSERT_EQ(::lseek(in.get(), 0, SEEK_SET), 0);
    EXPECT_TRUE(write_stream(in.get(), *store, std::to_string(size), options));
  }
  EXPECT_EQ(contents(*store).at("s"), "there");
}

TEST_F(CopyJobTest, AStreamWhoseReaderHasStalledCanBeStopped) {
  const auto store = open("memory://streams");
  fill(*store, {{"s", random_text(kMiB, 8)}});
  Pipe out;
  std::stop_source stop;
  Status status;
  std::thread copying([&] {
    auto moved = read_stream(*store, "s", out.ends[1], 0, kMiB, {}, stop.get_token());
    if (!moved) status = std::move(moved).error();
  });
  // As much as a pipe holds has come: the writer waits for somebody who reads.
  pollfd ready{.fd = out.ends[0], .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&ready, 1, -1), 1);
  stop.request_stop();
  copying.join();
  EXPECT_EQ(status.code(), Code::kCancelled) << status.message();
  EXPECT_EQ(::fcntl(out.ends[1], F_GETFL) & O_NONBLOCK, 0) << "the caller's";
}

TEST_F(CopyJobTest, StreamsReportWhatWasWrong) {
  const auto store = open("memory://streams");
  EXPECT_EQ(write_stream(0, *store, "x", {.max_in_flight = 0}).error().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(read_stream(*store, "none", 1, 0, 1).error().code(), Code::kNotFound);
  fill(*store, {{"x", "123"}});
  EXPECT_EQ(read_stream(*store, "x", 1, 4, 9).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(write_stream(-1, *store, "y").error().code(), Code::kInvalidArgument);
  EXPECT_FALSE(write_stream(1000, *store, "y")) << "no such descriptor";
  const auto bad = FaultStore::create(*store->new_handle(), {.error_share = 1});
  EXPECT_EQ(read_stream(*bad, "x", 1, 0, 3).error().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace headrace
