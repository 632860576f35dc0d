// Objects that would get one name: told before anything is copied, and never one over the other.
#include "copy/names.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "copy/copy_job_fixture.h"
#include "copy/odd_store.h"
#include "headrace/forwarding_store.h"

namespace headrace {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;

CopyTask tree(const std::string& from, const std::string& to) {
  return {.from = from, .to = to, .is_tree = true, .strip_bytes = from.size()};
}

TEST(MayMeet, IsAsWrongAsComparingAllPairs) {
  const std::vector<CopyTask> tasks = {
      tree("", ""),
      tree("x/", "a/"),
      tree("y/", "a/b/"),
      {.from = "1", .to = "a/b/c"},
      {.from = "2", .to = "a/b"},
      {.from = "3", .to = "a/b/c"},
      tree("z", "a0/"),
      {.from = "pre", .to = "q/", .is_tree = true, .strip_bytes = 1},
      {.from = "4", .to = "q/re"},
      {.from = "5", .to = "q/x"}};
  const auto target = [](const CopyTask& task) {
    return task.is_tree ? task.to + task.from.substr(task.strip_bytes) : task.to;
  };
  const auto meet = [&](const CopyTask& a, const CopyTask& b) {
    return a.is_tree ? target(b).starts_with(target(a)) : target(a) == target(b);
  };
  for (std::size_t chosen = 0; chosen < std::size_t{1} << tasks.size(); ++chosen) {
    std::vector<CopyTask> some;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      if ((chosen >> i & 1) != 0) some.push_back(tasks[i]);
    }
    bool any = false;
    for (std::size_t i = 0; i < some.size(); ++i) {
      for (std::size_t j = 0; j < some.size(); ++j) any |= i != j && meet(some[i], some[j]);
    }
    ASSERT_EQ(may_meet(some, false), any) << chosen;
    EXPECT_TRUE(may_meet(some, true));
  }
}

TEST_F(CopyJobTest, APatternOfOneDirectoryLooksIntoNoOther) {
  std::vector<std::string> delimiters;
  const auto watched = [&](const std::string& name, const Tree& tree) {
    const std::shared_ptr<Store> inner = files(name);
    fill(*inner, tree);
    OddStore::Hooks hooks;
    hooks.local_directory = inner->local_directory();
    hooks.list = [&delimiters, inner](const ListRequest& request) {
      delimiters.push_back(request.delimiter);
      return inner->list(request, {});
    };
    return std::make_unique<OddStore>(*inner->new_handle(), hooks);
  };
  const Tree tree = {{"a.txt", "1"}, {"d/b.txt", "2"}, {"d/e/c.txt", "3"}, {"z.txt", "4"}};
  const auto from = watched("from", tree), to = watched("to", {{"d/b.txt", "2"}, {"z.txt", "4"}});
  CopyOptions options = everything();
  options.rule = CopyRule::kIfAbsent;
  const auto copied = [&](const std::string& prefix, const std::string& pattern) {
    options.tasks = {{.from = prefix, .to = "", .is_tree = true, .pattern = pattern}};
    return copy(*from, *to, options).done_count;
  };
  EXPECT_EQ(copied("", "*.txt"), 1U);
  EXPECT_EQ(copied("d/b", "d/b*"), 0U);
  EXPECT_THAT(delimiters, AllOf(SizeIs(4), Each("/")));
  delimiters.clear();
  EXPECT_EQ(copied("", "**.txt"), 1U);
  EXPECT_EQ(copied("", "*/b.txt"), 0U);
  EXPECT_EQ(copied("d/", "d/*{,/**}"), 0U);
  EXPECT_THAT(delimiters, AllOf(SizeIs(6), Each("")));
}

class CopyNamesTest : public CopyJobTest {
 protected:
  static Status run(Store& from, Store& to, const CopyOptions& options) {
    auto job = CopyJob::create(from, to, options);
    EXPECT_TRUE(job);
    return job ? (*job)->run() : Status();
  }
};

TEST(FileNames, NoFileIsADirectoryToo) {
  copy_detail::FileNames names;
  for (const char* const key : {"a", "a-b", "d/e/f", "d/e/g", "d/x"})
    EXPECT_TRUE(names.take(key).ok()) << key;
  for (const char* const key : {"a/b", "a/b/c", "d", "d/e"})
    EXPECT_EQ(names.take(key).code(), Code::kUnsupported) << key;
  for (const char* const key : {"../up", "x//y", "x/"})
    EXPECT_EQ(names.take(key).code(), Code::kInvalidArgument) << key;
}

TEST_F(CopyNamesTest, TasksThatMeetGiveNoNameTwice) {
  const auto from = open("memory://from"), to = open("memory://to");
  fill(*from, {{"a/x", "1"}, {"b/x", "2"}, {"b/y", "3"}});
  CopyOptions options;
  options.tasks = {tree("b/", ""), tree("b/", ""), {.from = "b/y", .to = "y"}};
  EXPECT_EQ(copy(*from, *to, options).done_count, 2U);
  for (const CopyTask& other : {tree("a/", ""), CopyTask{.from = "a/x", .to = "x"}}) {
    options.tasks = {tree("b/", ""), other};
    fill(*to, {{"x", "before"}, {"y", "before"}});
    const Status status = run(*from, *to, options);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("memory://from/b/x would both become memory://to/x"));
    EXPECT_EQ(contents(*to), (Tree{{"x", "before"}, {"y", "before"}}));
  }
}

TEST_F(CopyNamesTest, JobsOfOneTargetShareThem) {
  const auto one = open("memory://one"), two = open("memory://two"), to = open("memory://to");
  fill(*one, {{"x", "1"}, {"sub/", ""}});
  fill(*two, {{"y", "2"}, {"sub/", ""}});
  CopyOptions options = everything();
  const auto take = [&](Store& from) { return take_copy_names(from, *to, options); };
  options.names = std::make_shared<CopyNames>();
  ASSERT_TRUE(take(*one).ok());
  ASSERT_TRUE(take(*two).ok());  // marks of directories are all the same
  EXPECT_TRUE(run(*one, *to, options).ok());
  // What comes after its store was listed is refused instead of copied.
  fill(*two, {{"x", "2"}});
  const Status late = run(*two, *to, options);
  EXPECT_EQ(late.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(late.message()),
              HasSubstr("memory://two/x and memory://one/x would both become memory://to/x"));
  EXPECT_EQ(contents(*to)["x"], "1");

  options.names = std::make_shared<CopyNames>();
  ASSERT_TRUE(take(*one).ok());
  EXPECT_EQ(take(*two).code(), Code::kInvalidArgument);
  // What a filter or a pattern leaves out takes no name.
  options.names = std::make_shared<CopyNames>();
  options.filter.exclude.push_back(*Glob::parse("x"));
  ASSERT_TRUE(take(*one).ok());
  options.filter = {};
  options.tasks[0].pattern = "{x,nothing}";
  EXPECT_TRUE(take(*two).ok());
  options.tasks[0].pattern = "[";
  EXPECT_EQ(take(*two).code(), Code::kInvalidArgument);
  std::stop_source stop;
  stop.request_stop();
  options.tasks[0].pattern = "";
  EXPECT_EQ(take_copy_names(*two, *to, options, stop.get_token()).code(), Code::kCancelled);
}

/// A store to which an object comes after its first listing.
class GrowingStore final : public ForwardingStore {
 public:
  GrowingStore(std::unique_ptr<Store> inner, std::function<void()> grow)
      : ForwardingStore(std::move(inner)), grow_(std::move(grow)) {}
  Result<ListPage> list(const ListRequest& request, const CallOptions& call) override {
    auto page = ForwardingStore::list(request, call);
    if (grow_) std::exchange(grow_, nullptr)();
    return page;
  }

 private:
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override { return handle; }

  std::function<void()> grow_;
};

TEST_F(CopyNamesTest, WhatComesWhileItCopiesReplacesNothing) {
  const auto inner = open("memory://from"), to = open("memory://to");
  fill(*inner, {{"a/x", "1"}});
  auto handle = inner->new_handle();
  ASSERT_TRUE(handle);
  GrowingStore from(*std::move(handle), [&] { fill(*inner, {{"b/x", "2"}}); });
  CopyOptions options = everything();
  options.flattens = true;
  const Status status = run(from, *to, options);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(contents(*to), (Tree{{"x", "1"}}));
}

}  // namespace
}  // namespace headrace
