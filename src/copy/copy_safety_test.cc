/// What must not be lost or take forever, whatever is asked for and whatever the stores answer.
#include <algorithm>
#include <atomic>
#include <span>
#include <string>
#include <vector>

#include "copy/copy_job_fixture.h"
#include "copy/odd_store.h"
#include "store/fault/fault_store.h"

namespace headrace {
namespace {

class CopySafetyTest : public CopyJobTest {
 protected:
  /// Runs a job that should fail with `code`.
  void expect_failure(Store& from, Store& to, const CopyOptions& options, Code code) {
    auto job = CopyJob::create(from, to, options);
    if (!job) {
      EXPECT_EQ(job.error().code(), code) << job.error().message();
      return;
    }
    const Status status = (*job)->run();
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_EQ((*job)->progress().deleted_count, 0U);
  }
  static CopyOptions tree(const std::string& from, const std::string& to) {
    CopyOptions options = everything();
    options.tasks = {{.from = from, .to = to, .is_tree = true, .strip_bytes = from.size()}};
    return options;
  }
  static CopyOptions mirror(const std::string& from, const std::string& to) {
    CopyOptions options = tree(from, to);
    options.rule = CopyRule::kIfSizeDiffers;
    options.deletes_extra = true;
    return options;
  }
  /// A store that lists its objects in two pages, those of the second before those of the first.
  static std::unique_ptr<Store> misordered(Store& inner, bool says_so) {
    OddStore::Hooks hooks;
    hooks.traits.lists_in_order = !says_so;
    hooks.list = [&inner](const ListRequest& request) -> Result<ListPage> {
      ListRequest all;
      all.prefix = request.prefix;
      HEADRACE_TRY_ASSIGN(ListPage page, inner.list(all));
      const auto half = page.objects.begin() + static_cast<std::ptrdiff_t>(page.objects.size() / 2);
      ListPage out;
      if (request.continuation.empty()) {
        out.continuation = "second";
        out.objects.assign(half, page.objects.end());
      } else {
        out.objects.assign(page.objects.begin(), half);
      }
      return out;
    };
    return std::make_unique<OddStore>(*inner.new_handle(), std::move(hooks));
  }
};

TEST_F(CopySafetyTest, APatternDeletesOnlyWhatItNames) {
  const auto from = open("memory://from");
  const auto to = files("to");
  fill(*from, {{"run/a.tar", "1"}, {"run/log", "1"}});
  const Tree before = {{"a.tar", "22"}, {"b.tar", "1"}, {"c.txt", "1"}, {"log", "333"}};
  fill(*to, before);
  CopyOptions options = mirror("run/", "");
  options.tasks[0].pattern = "run/*.zip";
  expect_failure(*from, *to, options, Code::kNotFound);
  EXPECT_EQ(contents(*to), before) << "a pattern that names nothing deletes nothing";
  options.tasks[0].pattern = "run/*.tar";
  EXPECT_EQ(copy(*from, *to, options).deleted_count, 1U);
  EXPECT_EQ(contents(*to), (Tree{{"a.tar", "1"}, {"c.txt", "1"}, {"log", "333"}}));
}

TEST_F(CopySafetyTest, AnErrorOfListingAfterTheFirstObjectsEndsTheRun) {
  const auto from = open("memory://from"), to = open("memory://to");
  fill(*from, {{"a", "1"}, {"t/b", "1"}});
  CopyOptions options = everything();
  options.tasks = {{.from = "a", .to = "a"}, {.from = "typo", .to = "typo"}};
  expect_failure(*from, *to, options, Code::kNotFound);
  EXPECT_EQ(contents(*to), (Tree{{"a", "1"}})) << "what was found is copied";
}

TEST_F(CopySafetyTest, AnErrorOfALaterPageDeletesNothingAndEndsTheRun) {
  const auto from = open("memory://from"), to = open("memory://to");
  fill(*from, {{"a", "1"}, {"b", "1"}});
  fill(*to, {{"a", "1"}, {"z", "1"}});
  OddStore::Hooks hooks;
  hooks.list = [&](const ListRequest& request) -> Result<ListPage> {
    if (!request.continuation.empty()) return Status(Code::kUnavailable, "later");
    HEADRACE_TRY_ASSIGN(ListPage page, from->list(request));
    page.continuation = "second";
    return page;
  };
  OddStore odd(*from->new_handle(), std::move(hooks));
  expect_failure(odd, *to, mirror("", ""), Code::kUnavailable);
  // Pages are read ahead: whether "b" was copied before the error depends on timing.
  Tree after = contents(*to);
  after.erase("b");
  EXPECT_EQ(after, (Tree{{"a", "1"}, {"z", "1"}}));
}

TEST_F(CopySafetyTest, AListingOutOfOrderDeletesNothing) {
  const auto from = open("memory://from"), to = open("memory://to");
  Tree tree;
  for (int i = 0; i < 20; ++i) tree["k" + std::to_string(100 + i)] = "x";
  fill(*from, tree);
  Tree more = tree;
  more["extra"] = "x";
  fill(*to, more);
  const auto liar = misordered(*from, false), other_liar = misordered(*to, false);
  expect_failure(*liar, *to, mirror("", ""), Code::kCorrupt);
  expect_failure(*from, *other_liar, mirror("", ""), Code::kCorrupt);
  EXPECT_EQ(contents(*to), more);
  const auto honest = misordered(*from, true);
  const CopyProgress progress = copy(*honest, *to, mirror("", ""));
  EXPECT_EQ(progress.deleted_count, 1U);
  EXPECT_EQ(progress.skipped_count, 20U);
  EXPECT_EQ(contents(*to), tree);
}

TEST_F(CopySafetyTest, AListingThatLeadsBackToItselfEnds) {
  const auto from = open("memory://from"), to = open("memory://to");
  OddStore::Hooks hooks;
  hooks.traits.lists_in_order = false;
  hooks.list = [](const ListRequest&) -> Result<ListPage> {
    ListPage page;
    page.continuation = "again";
    return page;
  };
  OddStore odd(*from->new_handle(), std::move(hooks));
  expect_failure(odd, *to, everything(), Code::kCorrupt);
}

TEST_F(CopySafetyTest, ATreeIsNotCopiedIntoItself) {
  const auto store = open("memory://one");
  fill(*store, {{"a/x", "1"}, {"a/sub/y", "1"}});
  const Tree before = contents(*store);
  expect_failure(*store, *store, tree("a/", "a/copy/"), Code::kInvalidArgument);
  expect_failure(*store, *store, tree("", "copy/"), Code::kInvalidArgument);
  CopyOptions options = tree("a/", "a/sub/");
  options.tasks[0].pattern = "a/**";
  expect_failure(*store, *store, options, Code::kInvalidArgument);
  EXPECT_EQ(contents(*store), before);

  options.tasks[0].pattern = "a/*";
  EXPECT_EQ(copy(*store, *store, options).done_count, 1U) << "the copies are not what it names";
  options = tree("a/", "a/copy/");
  options.filter.exclude.push_back(*Glob::parse("copy/**"));
  EXPECT_EQ(copy(*store, *store, options).done_count, 3U);
}

TEST_F(CopySafetyTest, ADirectoryIsNotCopiedIntoItselfUnderAnyName) {
  const auto whole = files("dir"), below = files("dir/sub");
  fill(*whole, {{"x", "1"}, {"sub/y", "1"}});
  std::filesystem::create_directory_symlink("dir/sub", directory_.path() + "/link");
  const Tree before = contents(*whole);
  const auto link = files("link"), fresh = files("dir/new/deep");
  for (Store* to : {below.get(), link.get(), fresh.get()})
    expect_failure(*whole, *to, tree("", ""), Code::kInvalidArgument);
  EXPECT_EQ(contents(*whole), before);
  EXPECT_EQ(copy(*below, *whole, tree("", "")).done_count, 1U) << "out of a directory is fine";
}

TEST_F(CopySafetyTest, ATargetAroundItsSourceDoesNotDeleteIt) {
  const auto store = open("memory://one");
  fill(*store, {{"a/x", "1"}, {"a/sub/y", "1"}});
  expect_failure(*store, *store, mirror("a/sub/", "a/"), Code::kInvalidArgument);
  const auto whole = files("dir"), below = files("dir/sub");
  fill(*whole, {{"x", "1"}, {"sub/y", "1"}});
  expect_failure(*below, *whole, mirror("", ""), Code::kInvalidArgument);
  EXPECT_EQ(contents(*below), (Tree{{"y", "1"}}));
  EXPECT_EQ(contents(*store), (Tree{{"a/x", "1"}, {"a/sub/y", "1"}}));
}

TEST_F(CopySafetyTest, NothingIsDeletedThroughALink) {
  const auto from = open("memory://from");
  const auto to = files("to"), elsewhere = files("elsewhere");
  fill(*from, {{"a", "1"}});
  fill(*elsewhere, {{"x", "1"}, {"deep/y", "1"}});
  fill(*to, {{"a", "1"}, {"extra", "1"}});
  std::filesystem::create_directory_symlink("../elsewhere", directory_.path() + "/to/link");
  EXPECT_EQ(copy(*from, *to, mirror("", "")).deleted_count, 1U);
  EXPECT_THAT(failures_, ::testing::IsEmpty());
  EXPECT_EQ(contents(*elsewhere), (Tree{{"x", "1"}, {"deep/y", "1"}}));
}

TEST_F(CopySafetyTest, AFileThatCannotBeLookedAtDeletesNoCopy) {
  const auto from = files("from"), to = open("memory://to");
  fill(*from, {{"a", "1"}});
  const Tree before = {{"a", "1"}, {"unknown", "the good copy"}};
  fill(*to, before);
  std::filesystem::create_symlink(std::string(300, 'n'), directory_.path() + "/from/unknown");
  expect_failure(*from, *to, mirror("", ""), Code::kInvalidArgument);
  EXPECT_EQ(contents(*to), before);
}

TEST_F(CopySafetyTest, PartsThatExceedTheMemoryAreRefused) {
  const auto from = open("memory://from"), to = open("memory://to");
  fill(*from, {{"large", random_text(3 * kMiB, 1)}, {"small", "1"}});
  OddStore::Hooks hooks;
  hooks.traits.min_part_bytes = 4 * kMiB;
  OddStore picky(*to->new_handle(), std::move(hooks));
  CopyOptions options = everything();
  options.memory_bytes = kMiB;
  EXPECT_EQ(copy(*from, picky, options).done_count, 1U);
  ASSERT_THAT(failures_, ::testing::SizeIs(1));
  EXPECT_EQ(failures_[0].status.code(), Code::kInvalidArgument);
  EXPECT_EQ(contents(*to), (Tree{{"small", "1"}}));
}

/// Copies `text` to a store in which somebody has an upload of the same key with `parts`.
class UploadsOfOthersTest : public CopySafetyTest {
 protected:
  void copy_beside(Store& from, const std::string& text, std::vector<UploadedPart> parts) {
    const auto to = open("memory://uploads" + std::to_string(++count_));
    fill(from, {{"x", text}});
    OddStore::Hooks hooks;
    hooks.traits = to->traits();
    hooks.uploads = [] { return std::vector<PendingUpload>{{"x", "foreign", 0}}; };
    hooks.parts = [parts] { return parts; };
    hooks.on_abort = [this](const std::string& id) { aborted_.push_back(id); };
    OddStore target(*to->new_handle(), hooks);
    progress_ = copy(from, target, everything());
    EXPECT_THAT(failures_, ::testing::IsEmpty());
    EXPECT_EQ(contents(*to), (Tree{{"x", text}}));
  }
  CopyProgress progress_;
  std::vector<std::string> aborted_;
  int count_ = 0;
};

TEST_F(UploadsOfOthersTest, WithoutAnyPartAreAborted) {
  const std::string text = random_text(3 * kMiB, 5);
  const auto memory = open("memory://from"), local = files("from");
  copy_beside(*memory, text, {});
  EXPECT_THAT(aborted_, ::testing::ElementsAre("foreign"));
  copy_beside(*local, text, {});
  EXPECT_THAT(aborted_, ::testing::ElementsAre("foreign", "foreign"));
}

TEST_F(UploadsOfOthersTest, AreLeftAloneUnlessTheyHoldPartsOfTheSameFile) {
  const std::string text = random_text(3 * kMiB, 5);
  const std::string other = random_text(kMiB, 6);
  const auto memory = open("memory://from"), local = files("from");
  const std::vector<UploadedPart> theirs = {{1, "\"1\"", other.size(), checksum_of(other)}};
  copy_beside(*memory, text, theirs);
  copy_beside(*local, text, theirs);
  EXPECT_EQ(progress_.resumed_bytes, 0U);
  EXPECT_THAT(aborted_, ::testing::IsEmpty());
}

TEST_F(UploadsOfOthersTest, OneOfOursThatSomebodyAbortsIsBegunAnew) {
  const std::string text = random_text(3 * kMiB, 5);
  const auto local = files("from"), to = open("memory://to");
  fill(*local, {{"x", text}});
  OddStore::Hooks hooks;
  hooks.traits = to->traits();
  int creates = 0;
  hooks.on_create = [&](const std::string& id) {
    if (++creates > 1) return;
    EXPECT_TRUE(to->abort_upload("x", id).ok());
  };
  OddStore target(*to->new_handle(), hooks);
  copy(*local, target, everything());
  EXPECT_THAT(failures_, ::testing::IsEmpty());
  EXPECT_EQ(contents(*to), (Tree{{"x", text}}));
  EXPECT_EQ(creates, 2);
}

TEST_F(UploadsOfOthersTest, AnAdoptedOneThatIsGoneIsBegunAfresh) {
  const std::string text = random_text(3 * kMiB, 5);
  const std::string first = text.substr(0, everything().part_bytes);
  const auto local = files("from");
  copy_beside(*local, text, {{1, "\"1\"", first.size(), checksum_of(first)}});
  EXPECT_EQ(progress_.resumed_bytes, first.size()) << "it was adopted first";
  EXPECT_THAT(aborted_, ::testing::IsEmpty());
}

/// A server whose versions are all the same.
class VagueStore final : public ForwardingStore {
 public:
  VagueStore(std::unique_ptr<Store> inner, std::string version)
      : ForwardingStore(std::move(inner)), version_(std::move(version)) {}

  std::size_t submit(std::span<Request> requests) override {
    for (Request& request : requests) request.etag = {};
    return ForwardingStore::submit(requests);
  }
  Result<ListPage> list(const ListRequest& request, const CallOptions& call) override {
    HEADRACE_TRY_ASSIGN(ListPage page, inner().list(request, call));
    for (ObjectInfo& info : page.objects) info.etag = version_;
    return page;
  }

 private:
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(std::make_unique<VagueStore>(std::move(handle), version_));
  }

  const std::string version_;
};

TEST_F(CopySafetyTest, PartsOfAnotherSourceAreNotTaken) {
  // Equal sizes and versions: what a store's versions count from is its own affair.
  const auto one = open("memory://one"), two = open("memory://two");
  fill(*one, {{"x", random_text(kMiB, 1)}});
  fill(*two, {{"x", random_text(kMiB, 2)}});
  const auto first_version = [](Store& store) {
    return std::make_unique<VagueStore>(*store.new_handle(), "\"1\"");
  };
  const auto to = files("to");
  const auto bad = FaultStore::create(first_version(*one), {.seed = 4, .error_share = 0.3});
  copy(*bad, *to, everything());
  ASSERT_THAT(failures_, ::testing::SizeIs(1));
  ASSERT_THAT(hidden_names(), ::testing::SizeIs(1)) << "parts are kept";
  EXPECT_EQ(copy(*first_version(*two), *to, everything()).resumed_bytes, 0U);
  EXPECT_EQ(contents(*to), contents(*two));
}

TEST_F(CopySafetyTest, PartsAreNotTakenByAVersionThatTwoContentsMayShare) {
  int round = 0;
  for (const char* version : {"", "W/\"1\"", "Sun, 22 Nov 2026 10:00:00 GMT"}) {
    SCOPED_TRACE(version);
    const std::string number = std::to_string(round++);
    const auto from = open("memory://vague" + number);
    const auto to = files("to" + number);
    fill(*from, {{"x", random_text(kMiB, 1)}});
    const auto vague = [&] { return std::make_unique<VagueStore>(*from->new_handle(), version); };
    const auto bad = FaultStore::create(vague(), {.seed = 4, .error_share = 0.3});
    copy(*bad, *to, everything());
    ASSERT_THAT(failures_, ::testing::SizeIs(1));
    fill(*from, {{"x", random_text(kMiB, 2)}});
    EXPECT_EQ(copy(*vague(), *to, everything()).resumed_bytes, 0U);
    EXPECT_EQ(contents(*to), contents(*from));
  }
}

TEST_F(CopySafetyTest, WhatChangedSinceItWasListedIsCopiedAsItIsNow) {
  const auto from = open("memory://from"), to = open("memory://to");
  fill(*from, {{"small", "new"}, {"too", random_text(1000, 1)}});
  OddStore::Hooks hooks;
  hooks.list = [&](const ListRequest& request) -> Result<ListPage> {
    HEADRACE_TRY_ASSIGN(ListPage page, from->list(request));
    for (ObjectInfo& info : page.objects) info.etag = "\"of yesterday\"";
    return page;
  };
  OddStore odd(*from->new_handle(), std::move(hooks));
  EXPECT_EQ(copy(odd, *to, everything()).done_count, 2U);
  EXPECT_THAT(failures_, ::testing::IsEmpty());
  EXPECT_EQ(contents(*to), contents(*from));
}

TEST_F(CopySafetyTest, WhatComesWhileItRunsIsNotReplaced) {
  const auto from = open("memory://from");
  fill(*from, tree_);
  const Tree theirs = {{"a", "theirs"}, {"large", "theirs"}, {"empty", "theirs"}};
  // What lies there came after the listing of the target.
  OddStore::Hooks hooks;
  hooks.traits.lists_in_order = true;
  hooks.traits.can_write = true;
  hooks.list = [](const ListRequest&) -> Result<ListPage> { return ListPage(); };
  CopyOptions options = everything();
  options.rule = CopyRule::kIfAbsent;
  const auto check = [&](Store& real, const std::string& local_directory) {
    fill(real, theirs);
    hooks.local_directory = local_directory;
    OddStore to(*real.new_handle(), hooks);
    const CopyProgress progress = copy(*from, to, options);
    EXPECT_EQ(progress.skipped_count, theirs.size());
    EXPECT_EQ(progress.done_count, tree_.size() - theirs.size());
    EXPECT_EQ(progress.found_count, progress.done_count);
    EXPECT_EQ(progress.failed_count, 0U);
    Tree expected = tree_;
    for (const auto& [key, text] : theirs) expected[key] = text;
    EXPECT_EQ(contents(real), expected);
  };
  const auto store = open("memory://to"), directory = files("to");
  check(*store, "");
  check(*directory, directory->local_directory());
  EXPECT_THAT(hidden_names(), testing::IsEmpty());
  // A store that refuses the condition is asked before.
  const auto simple = files("simple");
  ObjectSettings unknown;
  unknown.storage_class = "none here";
  std::atomic<int> unconditional_count{0};
  hooks.on_submit = [&](Request& request) {
    if (request.if_absent) request.settings = &unknown;
    unconditional_count += request.op == Op::kPut && !request.if_absent;
  };
  check(*simple, "");
  EXPECT_GT(unconditional_count, 0);
}

TEST_F(CopySafetyTest, OnlyTheVersionThatWasCopiedIsRemoved) {
  const auto from = open("memory://from"), to = open("memory://to");
  fill(*from, {{"changed", "1"}, {"gone", "2"}, {"same", "3"}});
  CopyOptions options = everything();
  options.keeps_events = true;
  copy(*from, *to, options);
  std::vector<std::string> keys, etags;
  for (const CopyEvent& event : events_) {
    keys.push_back(event.from_key);
    etags.push_back(event.from_etag);
  }
  ASSERT_EQ(keys.size(), 3U);
  fill(*from, {{"changed", "newer"}});
  ASSERT_TRUE(from->remove("gone").ok());
  const std::vector<Status> results = remove_copied(*from, keys, etags);
  for (std::size_t i = 0; i < keys.size(); ++i)
    EXPECT_EQ(results[i].code(), keys[i] == "changed" ? Code::kChanged : Code::kOk) << keys[i];
  EXPECT_EQ(contents(*from), (Tree{{"changed", "newer"}}));
}

TEST_F(CopySafetyTest, ADryRunTellsWhatNamesAloneForbid) {
  const auto from = open("memory://from"), to = files("to");
  fill(*from, {{"a", "1"}, {"a/b", "2"}, {"up/../x", "3"}, {"fine", "4"}});
  CopyOptions options = tree("", "");
  options.is_dry_run = true;
  const CopyProgress dry = copy(*from, *to, options);
  EXPECT_EQ(dry.found_count, 2U);
  EXPECT_EQ(dry.failed_count, 2U);
  EXPECT_EQ(failures_[0].key, "a/b");
  EXPECT_EQ(failures_[1].key, "up/../x");
  options.is_dry_run = false;
  EXPECT_EQ(copy(*from, *to, options).failed_count, 2U) << "as it said";
}

TEST_F(CopySafetyTest, SeveralTasksDoNotDeleteEachOthersCopies) {
  const auto from = open("memory://from"), to = open("memory://to");
  fill(*from, {{"a/x", "1"}, {"b/y", "1"}});
  CopyOptions options = mirror("a/", "t/");
  options.tasks.push_back({.from = "b/", .to = "t/deep/", .is_tree = true, .strip_bytes = 2});
  expect_failure(*from, *to, options, Code::kInvalidArgument);
  options.tasks[1] = {.from = "b/y", .to = "t/y"};
  expect_failure(*from, *to, options, Code::kInvalidArgument);
  options.tasks[1] = {.from = "b/", .to = "u/", .is_tree = true, .strip_bytes = 2};
  EXPECT_EQ(copy(*from, *to, options).done_count, 2U);
}

}  // namespace
}  // namespace headrace
