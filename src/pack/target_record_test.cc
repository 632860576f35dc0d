#include "headrace/target_record.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/temporary_directory.h"
#include "pack/pack_test_util.h"
#include "store/file/file_store.h"

namespace headrace {
namespace {

using pack_test::contents;
using pack_test::Files;
using pack_test::make_store;
using pack_test::WatchedStore;

const std::string kConfig = R"({"compression": null, "hashes": ["sha1"]})";
const std::string kPlan = R"({"digest": "d1", "version": 2})";
const PackId kId{.digest = "d1", .plan = kPlan};

/// Contents of the shards of two writes: those of each number have the same size.
const std::vector<std::string> kShards = {"aaaa", "bb", "cccccc", "d"};
const std::vector<std::string> kOthers = {"AAAA", "bb", "CCCCCC"};

/// Lets so many puts and removals through; then nothing changes any more, as after kill -9.
class MortalStore final : public ForwardingStore {
 public:
  MortalStore(Store& inner, std::shared_ptr<int> left)
      : ForwardingStore(inner), left_(std::move(left)) {}
  MortalStore(std::unique_ptr<Store> inner, std::shared_ptr<int> left)
      : ForwardingStore(std::move(inner)), left_(std::move(left)) {}

  std::size_t submit(std::span<Request> requests) override {
    for (Request& request : requests)
      if (request.op != Op::kGet && !lives()) request.key = {};  // Such a request fails.
    return inner().submit(requests);
  }
  std::vector<Status> remove_many(std::span<const std::string> keys,
                                  const CallOptions& call) override {
    std::vector<Status> out;
    for (const std::string& key : keys)
      out.push_back(lives() ? inner().remove(key, call) : Status(Code::kUnavailable, "killed"));
    return out;
  }

 private:
  bool lives() { return (*left_)-- > 0; }
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(std::make_unique<MortalStore>(std::move(handle), left_));
  }
  std::shared_ptr<int> left_;
};

class TargetRecordTest : public ::testing::Test {
 protected:
  TargetRecord record(Store& store) { return {store, *pool_, kId}; }
  TargetRecord record() { return record(*store_); }

  /// The hash is the content, so that a record tells whose it is.
  ShardFacts facts(const std::string& text, std::size_t shard) {
    return {.name = kId.name_of(shard),
            .sample_count = 1,
            .raw_bytes = text.size(),
            .stored_bytes = text.size(),
            .raw_hash = text,
            .zip_hash = {},
            .content = {}};
  }
  std::vector<ShardFacts> facts(const std::vector<std::string>& shards) {
    std::vector<ShardFacts> all;
    for (const std::string& text : shards) all.push_back(facts(text, all.size()));
    return all;
  }
  Status put_shard(Store& store, const std::vector<std::string>& shards, std::size_t shard) {
    const ShardFacts one = facts(shards[shard], shard);
    auto written = write_object(store, *pool_, one.name, shards[shard]);
    return written ? record(store).record(shard, one, {}) : std::move(written).error();
  }

  /// As pack() does it: what is done is kept.
  Status convert(Store& store, const std::vector<std::string>& shards) {
    const TargetRecord record = this->record(store);
    HEADRACE_TRY(record.load({}));
    HEADRACE_TRY_ASSIGN(const auto all, record.finished({}));
    if (all) return record.finish(*all, kConfig, {});
    HEADRACE_TRY_ASSIGN(TargetRecord::Facts done, record.reopen({}));
    for (std::size_t i = 0; i < shards.size(); ++i) {
      if (done.contains(i)) continue;
      HEADRACE_TRY(put_shard(store, shards, i));
      done[i] = facts(shards[i], i);
    }
    std::vector<ShardFacts> parts;
    for (const auto& [shard, one] : done) parts.push_back(one);
    return record.finish(parts, kConfig, {});
  }
  /// As writers do it: what differs is written over.
  Status write(Store& store, const std::string& run, const std::vector<std::string>& shards) {
    const TargetRecord record = this->record(store);
    HEADRACE_TRY_ASSIGN(const TargetRecord::Facts done, record.begin_write(run, {}));
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const auto found = done.find(i);
      if (found != done.end() && found->second == facts(shards[i], i)) continue;
      HEADRACE_TRY(record.check_run(run, {}));
      if (found != done.end()) HEADRACE_TRY(record.forget(i, {}));
      HEADRACE_TRY(put_shard(store, shards, i));
    }
    return record.finish_write(run, facts(shards), kConfig, {});
  }

  /// No record and no index vouches for what is not there.
  void check_truth() {
    const Files files = contents(*store_, true);
    const auto done = record().done({});
    ASSERT_TRUE(done);
    for (const auto& [shard, one] : *done) EXPECT_EQ(files.at(one.name), one.raw_hash);
    if (!files.contains("index.json")) return;
    const auto index = nlohmann::json::parse(files.at("index.json"));
    for (const auto& shard : index["shards"])
      EXPECT_EQ(files.at(shard["raw_data"]["basename"]), shard["raw_data"]["hashes"]["sha1"]);
  }
  /// Runs `work` so that it is killed at each of its puts and removals in turn, from the same
  /// beginning, and `after` each time.
  void kill_everywhere(const std::function<Status(Store&)>& work,
                       const std::function<void()>& after) {
    const Files before = contents(*store_, true);
    for (int count = 0;; ++count) {
      SCOPED_TRACE("killed after " + std::to_string(count));
      ASSERT_LT(count, 100);
      store_ = make_store("target", before);
      const auto left = std::make_shared<int>(count);
      MortalStore mortal(*store_, left);
      const Status status = work(mortal);
      check_truth();
      if (status.ok()) break;
      after();
    }
  }
  Files undisturbed(const std::vector<std::string>& shards) {
    const auto store = make_store("undisturbed");
    EXPECT_TRUE(convert(*store, shards).ok());
    return contents(*store, true);
  }
  Code code(Status status) { return status.code(); }

  std::unique_ptr<SlabPool> pool_ = pack_test::make_pool();
  std::unique_ptr<Store> store_ = make_store("target");
};

TEST_F(TargetRecordTest, LeavesTheKnownObjects) {
  EXPECT_TRUE(record().load({}).ok());
  EXPECT_TRUE(put_shard(*store_, kShards, 1).ok());
  EXPECT_EQ(contents(*store_, true),
            (Files{{".hrpack.json", kPlan},
                   {".hrpack/done/000001.json",
                    R"({"digest": "d1", "facts": {"bytes": 2, "content": "", "name": )"
                    R"("shard.00001.mds", "raw_bytes": 2, "raw_hash": "bb", "samples": 1, )"
                    R"("zip_hash": ""}})"},
                   {"shard.00001.mds", "bb"}}));
  EXPECT_EQ(*record().recorded({}), std::vector<std::uint64_t>{1});
  EXPECT_FALSE(*record().is_finished({}));
  EXPECT_TRUE(convert(*store_, kShards).ok());
  EXPECT_TRUE(*record().is_finished({}));
  EXPECT_EQ(**record().finished({}), facts(kShards));
  EXPECT_EQ(*record().recorded({}), std::vector<std::uint64_t>{});
  const Files all = contents(*store_, true);
  EXPECT_EQ(all.size(), kShards.size() + 3) << "plan, index, the word that all is there";
}

TEST_F(TargetRecordTest, AConversionKilledAnywhereGoesOn) {
  const Files expected = undisturbed(kShards);
  kill_everywhere([&](Store& store) { return convert(store, kShards); },
                  [&] {
                    EXPECT_TRUE(convert(*store_, kShards).ok());
                    EXPECT_EQ(contents(*store_, true), expected);
                  });
}

TEST_F(TargetRecordTest, AWriteKilledAnywhereGoesOnAlsoWithOtherSamples) {
  const Files expected = undisturbed(kShards);
  const Files others = undisturbed(kOthers);
  kill_everywhere([&](Store& store) { return write(store, "one", kShards); },
                  [&] {
                    const Files left = contents(*store_, true);
                    Status again = write(*store_, "two", kShards);
                    const bool is_finished = left.contains(".hrpack.done.json");
                    EXPECT_EQ(again.code(), is_finished ? Code::kInvalidArgument : Code::kOk);
                    if (is_finished) return;
                    EXPECT_EQ(contents(*store_, true), expected);
                    store_ = make_store("target", left);
                    kill_everywhere([&](Store& store) { return write(store, "three", kOthers); },
                                    [&] {
                                      if (contents(*store_, true).contains(".hrpack.done.json"))
                                        return;
                                      EXPECT_TRUE(write(*store_, "four", kOthers).ok());
                                      EXPECT_EQ(contents(*store_, true), others);
                                    });
                  });
}

TEST_F(TargetRecordTest, AShardLostAfterTheEndIsMadeAgainAndNothingElseBelieved) {
  EXPECT_TRUE(convert(*store_, kShards).ok());
  EXPECT_TRUE(store_->remove("shard.00002.mds").ok());
  EXPECT_TRUE(store_->remove("index.json").ok());
  EXPECT_EQ(record().done({})->size(), 3U);
  // Made again it may come out otherwise: compression has releases.
  const std::vector<std::string> remade = {"aaaa", "bb", "CCCCCC", "d"};
  const Files expected = undisturbed(remade);
  kill_everywhere([&](Store& store) { return convert(store, remade); },
                  [&] {
                    EXPECT_TRUE(convert(*store_, remade).ok());
                    EXPECT_EQ(contents(*store_, true), expected);
                  });
}

TEST_F(TargetRecordTest, AFinishedOneIsNotTouchedAgain) {
  EXPECT_TRUE(convert(*store_, kShards).ok());
  MortalStore nothing_goes(*store_, std::make_shared<int>(0));
  EXPECT_TRUE(record(nothing_goes).finish(facts(kShards), kConfig, {}).ok());
  EXPECT_EQ(code(write(*store_, "two", kOthers)), Code::kInvalidArgument);
  EXPECT_EQ(contents(*store_, true), undisturbed(kShards));
}

TEST_F(TargetRecordTest, RecordsOfOthersAreNotBelieved) {
  EXPECT_TRUE(record().load({}).ok());
  EXPECT_TRUE(put_shard(*store_, kShards, 0).ok());
  const std::string good = contents(*store_, true).at(".hrpack/done/000000.json");
  const auto replaced = [&](std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
  };
  for (const std::string& text :
       {std::string(), std::string("no JSON"), std::string("[]"), std::string("{}"),
        std::string(R"({"digest": "d1"})"), replaced(good, "d1", "d2"),
        replaced(good, ": 4", ": 5"), replaced(good, ": 4", ": \"4\""),
        good + std::string(1 << 20, ' ')}) {
    EXPECT_TRUE(write_object(*store_, *pool_, ".hrpack/done/000000.json", text));
    EXPECT_TRUE(write_object(*store_, *pool_, ".hrpack/done/000007.json", good));
    EXPECT_TRUE(record().done({})->empty()) << text.substr(0, 100);
    EXPECT_TRUE(record().reopen({})->empty());
    EXPECT_TRUE(record().recorded({})->empty());
  }
  EXPECT_TRUE(write_object(*store_, *pool_, ".hrpack.done.json", R"({"digest": "d2"})"));
  EXPECT_FALSE(record().finished({})->has_value());
}

TEST_F(TargetRecordTest, RecordsOfTheReleaseBeforeAreRead) {
  EXPECT_TRUE(record().load({}).ok());
  EXPECT_TRUE(put_shard(*store_, kShards, 0).ok());
  const std::string facts_then = R"({"bytes": 4, "name": "shard.00000.mds", "raw_bytes": 4, )"
                                 R"("raw_hash": "aaaa", "samples": 1, "zip_hash": ""})";
  EXPECT_TRUE(write_object(*store_, *pool_, ".hrpack/done/000000.json",
                           R"({"digest": "d1", "facts": )" + facts_then + "}"));
  EXPECT_EQ(record().done({})->at(0), facts("aaaa", 0));
  EXPECT_TRUE(write_object(*store_, *pool_, ".hrpack.done.json",
                           R"({"digest": "d1", "parts": [)" + facts_then + "]}"));
  EXPECT_EQ(**record().finished({}), facts({"aaaa"}));
}

TEST_F(TargetRecordTest, ForeignTargetsStayAsTheyAre) {
  for (const char* name :
       {"index.json", "shard.00000.mds", "shards/x", "chunk-0-0.bin", "part-00000.parquet"}) {
    store_ = make_store("target", {{name, R"({"digest": "other"})"}});
    const Status status = record().load({});
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << name;
    EXPECT_NE(status.message().find("choose another target or empty it"), std::string::npos);
    EXPECT_EQ(code(write(*store_, "run", kShards)), Code::kInvalidArgument) << name;
    EXPECT_EQ(contents(*store_, true).size(), 1U);
  }
  store_ = make_store("target", {{"readme", "of somebody"}});
  EXPECT_TRUE(record().load({}).ok());
}

TEST_F(TargetRecordTest, DatasetsOfAllFilesOfAFolderWantItForThemselves) {
  for (const char* format : {"webdataset", "tfrecord", "parquet"}) {
    const PackId id{.digest = "d1", .plan = kPlan, .format = format};
    for (const char* name : {"index.json", "train-000.tar", "sub/train-00000-of-00001.parquet",
                             "data.tfrecord", "data.tfrecord-00000-of-00002", "photo.jpg"}) {
      store_ = make_store("target", {{"README.md", "x"}, {name, "x"}});
      const Status status = TargetRecord(*store_, *pool_, id).load({});
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << format << " " << name;
      EXPECT_NE(status.message().find(name), std::string::npos) << status.message();
      EXPECT_EQ(contents(*store_, true).size(), 2U);
    }
    store_ = make_store("target", {{"README.md", "x"},
                                   {"index.hri", "x"},
                                   {"MANIFEST.sha256", "x"},
                                   {"train-000.tar.idx", "x"},
                                   {".cache/a.tar", "x"}});
    EXPECT_TRUE(TargetRecord(*store_, *pool_, id).load({}).ok()) << format;
  }
}

TEST_F(TargetRecordTest, APlanGivesWayUntilSomethingCameOfIt) {
  const PackId other{.digest = "d2", .plan = R"({"digest": "d2"})"};
  for (const char* name : {"index.json", "shard.00000.mds", "chunk-0-0.bin", "part-00000.parquet",
                           ".hrpack/done/000000.json", ".hrpack.done.json"}) {
    store_ = make_store("target", {{".hrpack.json", other.plan}, {name, "x"}});
    const Files before = contents(*store_, true);
    const Status status = record().load({});
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << name;
    EXPECT_NE(status.message().find(".hrpack.json"), std::string::npos);
    EXPECT_EQ(contents(*store_, true), before) << name;
  }
  store_ = make_store("target", {{".hrpack/run.json", "x"}, {".hrpack/claims/000000.0", "x"}});
  const TargetRecord first(*store_, *pool_, other);
  EXPECT_TRUE(first.load({}).ok());
  EXPECT_TRUE(first.check_plan({}).ok());
  EXPECT_TRUE(record().load({}).ok());
  EXPECT_EQ(contents(*store_, true), (Files{{".hrpack.json", kPlan}}));
  EXPECT_EQ(code(first.check_plan({})), Code::kChanged);
  EXPECT_TRUE(record().check_plan({}).ok());
}

TEST_F(TargetRecordTest, APlanDoesNotGiveWayToOneThatComesWhileItsFirstShardIsPut) {
  store_ = make_store("target", {{".hrpack.json", R"({"digest": "d2"})"}});
  auto watch = std::make_shared<WatchedStore::Watch>();
  watch->before_first_put = [&] {
    EXPECT_TRUE(write_object(*store_, *pool_, "shard.00000.mds", "of the first"));
  };
  WatchedStore watched(*store_->new_handle(), watch);
  EXPECT_EQ(code(record(watched).load({})), Code::kInvalidArgument);
}

TEST_F(TargetRecordTest, NoDatasetIsDoneWhoseShardsAreNotAsTheyWereWritten) {
  ASSERT_TRUE(record().load({}).ok());
  for (std::size_t i = 0; i < kShards.size(); ++i) ASSERT_TRUE(put_shard(*store_, kShards, i).ok());
  const std::string victim = kId.name_of(1);
  for (const bool is_removed : {false, true}) {
    if (is_removed) {
      ASSERT_TRUE(store_->remove(victim, {}).ok());
    } else {
      ASSERT_TRUE(write_object(*store_, *pool_, victim, kShards[1] + "of another pack"));
    }
    const Status status = record().finish(facts(kShards), kConfig, {});
    EXPECT_EQ(status.code(), Code::kChanged);
    EXPECT_NE(status.message().find(victim), std::string_view::npos) << status.message();
    EXPECT_FALSE(contents(*store_, true).contains("index.json"));
  }
  EXPECT_TRUE(convert(*store_, kShards).ok()) << "the next run makes it again";
}

TEST_F(TargetRecordTest, AShardWithoutSamplesIsNoObject) {
  EXPECT_TRUE(record().load({}).ok());
  EXPECT_TRUE(put_shard(*store_, kShards, 0).ok());
  ShardFacts nothing;
  nothing.name = kId.name_of(1);
  EXPECT_TRUE(record().record(1, nothing, {}).ok());
  const TargetRecord::Facts done{{0, facts("aaaa", 0)}, {1, nothing}};
  EXPECT_EQ(*record().done({}), done);
  EXPECT_EQ(*record().reopen({}), done) << "its record stays";
  EXPECT_TRUE(write_object(*store_, *pool_, nothing.name, "of a release before"));
  const std::vector<ShardFacts> all{done.at(0), nothing};
  EXPECT_TRUE(record().finish(all, kConfig, {}).ok());
  EXPECT_EQ(**record().finished({}), all);
  const Files files = contents(*store_, true);
  EXPECT_FALSE(files.contains(nothing.name));
  EXPECT_EQ(nlohmann::json::parse(files.at("index.json"))["shards"].size(), 1U);
}

TEST_F(TargetRecordTest, WhatAnotherVersionBeganIsRefusedWithAWord) {
  store_ = make_store("target", {{".hrpack.json", R"({"digest": "d1", "version": 1})"}});
  const Status status = record().load({});
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("another version of Headrace began; finish it with that version"),
            std::string::npos);
  EXPECT_EQ(contents(*store_, true).size(), 1U);
}

TEST_F(TargetRecordTest, OfTwoThatBeginAtOnceTheSameGoesOn) {
  for (const bool is_same : {true, false}) {
    store_ = make_store("target");
    const PackId other{.digest = "d2", .plan = R"({"digest": "d2"})"};
    auto watch = std::make_shared<WatchedStore::Watch>();
    watch->before_first_put = [&] {
      EXPECT_TRUE(TargetRecord(*store_, *pool_, is_same ? kId : other).load({}).ok());
    };
    WatchedStore watched(*store_->new_handle(), watch);
    EXPECT_EQ(code(record(watched).load({})), is_same ? Code::kOk : Code::kInvalidArgument);
    EXPECT_EQ(contents(*store_, true).at(".hrpack.json"), is_same ? kPlan : other.plan);
  }
}

TEST_F(TargetRecordTest, OfTwoWritersTheFirstEnds) {
  EXPECT_TRUE(record().begin_write("one", {}));
  EXPECT_TRUE(put_shard(*store_, kShards, 0).ok());
  EXPECT_TRUE(record().begin_write("two", {}));
  const Files before = contents(*store_, true);
  EXPECT_EQ(code(record().check_run("one", {})), Code::kChanged);
  EXPECT_EQ(code(record().finish_write("one", facts({kShards[0]}), kConfig, {})), Code::kChanged);
  EXPECT_TRUE(record().check_run("two", {}).ok());
  EXPECT_EQ(code(record().finish_write("two", facts({kOthers[0]}), kConfig, {})), Code::kChanged)
      << "a shard of the first";
  EXPECT_EQ(contents(*store_, true), before);
  EXPECT_TRUE(write(*store_, "two", kOthers).ok());
  EXPECT_EQ(code(record().finish_write("one", facts(kShards), kConfig, {})), Code::kChanged);
  EXPECT_TRUE(record().finish_write("two", facts(kOthers), kConfig, {}).ok()) << "may be repeated";
  EXPECT_EQ(contents(*store_, true), undisturbed(kOthers));
}

TEST_F(TargetRecordTest, TheEndRemovesShardsBeyondAndNothingElse) {
  EXPECT_TRUE(record().load({}).ok());
  for (std::size_t i = 0; i < kShards.size(); ++i) EXPECT_TRUE(put_shard(*store_, kShards, i).ok());
  for (const char* name : {"shard.note", "shard.00002.mds.zstd", ".hrpack/claims/000001.0"})
    EXPECT_TRUE(write_object(*store_, *pool_, name, "of somebody"));
  EXPECT_TRUE(record().finish(facts({kShards[0], kShards[1]}), kConfig, {}).ok());
  Files all = contents(*store_, true);
  EXPECT_EQ(all.erase("shard.note") + all.erase("shard.00002.mds.zstd"), 2U);
  EXPECT_EQ(all, undisturbed({kShards[0], kShards[1]}));
}

TEST_F(TargetRecordTest, LeavesNoFolders) {
  const TemporaryDirectory directory;
  auto store = open_file_store(pack_test::at_url("file://" + directory.path() + "/target"));
  ASSERT_TRUE(store);
  EXPECT_TRUE(record(**store).sizes({})->empty()) << "no directory yet";
  EXPECT_TRUE(record(**store).begin_write("run", {}));
  EXPECT_TRUE(put_shard(**store, kShards, 0).ok());
  EXPECT_TRUE(record(**store).finish_write("run", facts({kShards[0]}), kConfig, {}).ok());
  EXPECT_FALSE(std::filesystem::exists(directory.path() + "/target/.hrpack"));
  EXPECT_TRUE(std::filesystem::exists(directory.path() + "/target/.hrpack.done.json"));
}

TEST_F(TargetRecordTest, ErrorsOfTheStoreAreTold) {
  MortalStore nothing_goes(*store_, std::make_shared<int>(0));
  EXPECT_FALSE(record(nothing_goes).load({}).ok());
  EXPECT_FALSE(record(nothing_goes).record(0, facts("x", 0), {}).ok());
  EXPECT_EQ(code(record(nothing_goes).forget(0, {})), Code::kUnavailable);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(record().done({.stop = stop.get_token()}).error().code(), Code::kCancelled);
}

}  // namespace
}  // namespace headrace
