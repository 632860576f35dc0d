#include "headrace/pack.h"

#include <zstd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/temporary_directory.h"
#include "pack/digest.h"
#include "pack/json_text.h"
#include "pack/pack_test_util.h"
#include "store/fault/fault_store.h"
#include "store/file/file_store.h"

namespace headrace {
namespace {

using nlohmann::json;
using pack_test::contents;
using pack_test::Files;
using pack_test::make_store;
using pack_test::mds_samples;
using pack_test::random_files;
using pack_test::tar_members;
using pack_test::u32_at;
using pack_test::WatchedStore;

PackOptions small_options() {
  PackOptions options;
  options.shard_bytes = 8 << 10;
  options.memory_bytes = 4 << 20;
  options.worker_count = 3;
  return options;
}

PackResult must_pack(Store& source, Store& target, const PackOptions& options) {
  auto result = pack(source, target, options);
  EXPECT_TRUE(result) << result.error().message();
  return result ? *result : PackResult{};
}

Code pack_code(Store& source, Store& target, const PackOptions& options) {
  auto result = pack(source, target, options);
  return result ? Code::kOk : result.error().code();
}

/// Contents of the target of a new pack.
Files packed(const Files& files, const PackOptions& options) {
  const auto source = make_store("source", files);
  const auto target = make_store("target");
  must_pack(*source, *target, options);
  return contents(*target);
}

std::string unzip(const std::string& zip, std::uint64_t size) {
  std::string raw(size, '\0');
  EXPECT_EQ(ZSTD_decompress(raw.data(), raw.size(), zip.data(), zip.size()), size);
  return raw;
}

/// Files of a dataset with columns "data" and "key", in order.
std::vector<std::pair<std::string, std::string>> mds_files(const Files& dataset) {
  std::vector<std::pair<std::string, std::string>> out;
  const json index = json::parse(dataset.at("index.json"));
  for (const json& shard : index["shards"]) {
    const bool is_zipped = !shard["zip_data"].is_null();
    std::string raw = dataset.at(shard[is_zipped ? "zip_data" : "raw_data"]["basename"]);
    if (is_zipped) raw = unzip(raw, shard["raw_data"]["bytes"]);
    EXPECT_EQ(raw.size(), shard["raw_data"]["bytes"]);
    const auto samples = mds_samples(raw);
    EXPECT_EQ(samples.size(), shard["samples"]);
    for (const std::string& sample : samples) {
      const std::uint32_t size = u32_at(sample, 0);
      EXPECT_EQ(sample.size(), 8 + size + u32_at(sample, 4));
      out.emplace_back(sample.substr(8 + size), sample.substr(8, size));
    }
  }
  return out;
}

TEST(PackMds, KeepsEveryFileInOrder) {
  const Files files = random_files(test_seed(), 60);
  const auto source = make_store("source", files);
  const auto target = make_store("target");
  const PackResult result = must_pack(*source, *target, small_options());
  const Files dataset = contents(*target);
  EXPECT_EQ(mds_files(dataset),
            (std::vector<std::pair<std::string, std::string>>(files.begin(), files.end())));
  EXPECT_EQ(result.file_count, 60U);
  EXPECT_EQ(result.sample_count, 60U);
  EXPECT_EQ(result.shard_count + 1, dataset.size());
  EXPECT_GT(result.shard_count, 5U);
  EXPECT_EQ(result.resumed_shard_count, 0U);
  std::uint64_t read = 0;
  std::uint64_t written = 0;
  for (const auto& [key, text] : files) read += text.size();
  for (const auto& [key, text] : dataset) written += key == "index.json" ? 0 : text.size();
  EXPECT_EQ(result.read_bytes, read);
  EXPECT_EQ(result.written_bytes, written);
}

TEST(PackMds, ShardsStayWithinTheirSize) {
  for (const auto& [key, text] : packed(random_files(test_seed(), 60), small_options())) {
    EXPECT_TRUE(key == "index.json" || text.size() <= 8U << 10) << key;
  }
}

// Bytes as mosaicml-streaming 0.13 writes them: MDSWriter(columns={"data": "bytes", "key": "str"},
// hashes=["sha1"]).
TEST(PackMds, WritesTheBytesOfTheReferenceWriter) {
  PackOptions options;
  options.hash = "sha1";
  const Files dataset = packed({{"a.txt", "hi"}, {"b", ""}}, options);
  const std::string config =
      R"({"column_encodings": ["bytes", "str"], "column_names": ["data", "key"], "column_sizes": [null, null], )"
      R"("compression": null, "format": "mds", "hashes": ["sha1"], "size_limit": 67108864, "version": 2})";
  const std::string& shard = dataset.at("shard.00000.mds");
  EXPECT_EQ(u32_at(shard, 0), 2U);
  EXPECT_EQ(shard.substr(16, config.size()), config);
  EXPECT_EQ(u32_at(shard, 4), 16 + config.size());
  auto sha1 = pack_detail::Digest::create("sha1");
  sha1->update(std::as_bytes(std::span(shard)));
  EXPECT_EQ(
      dataset.at("index.json"),
      R"({"shards": [{"column_encodings": ["bytes", "str"], "column_names": ["data", "key"], "column_sizes": [null, null], )"
      R"("compression": null, "format": "mds", "hashes": ["sha1"], "raw_data": {"basename": "shard.00000.mds", "bytes": )" +
          std::to_string(shard.size()) + R"(, "hashes": {"sha1": ")" + sha1->finish() +
          R"("}}, "samples": 2, "size_limit": 67108864, "version": 2, "zip_data": null}], "version": 2})");
}

TEST(PackMds, CompressesWholeShards) {
  const Files files = random_files(test_seed(), 40);
  PackOptions options = small_options();
  options.compression = "zstd:7";
  options.hash = "xxh64";
  const Files dataset = packed(files, options);
  EXPECT_EQ(mds_files(dataset),
            (std::vector<std::pair<std::string, std::string>>(files.begin(), files.end())));
  const json first = json::parse(dataset.at("index.json"))["shards"][0];
  EXPECT_EQ(first["compression"], "zstd:7");
  EXPECT_EQ(first["zip_data"]["basename"], "shard.00000.mds.zstd");
  auto hash = pack_detail::Digest::create("xxh64");
  hash->update(std::as_bytes(std::span(dataset.at("shard.00000.mds.zstd"))));
  EXPECT_EQ(first["zip_data"]["hashes"]["xxh64"], hash->finish());
}

TEST(PackMds, CutsTokensFromTheJoinedFiles) {
  const Files files = {{"a", "abc"}, {"b", ""}, {"c", "\xff"}, {"d", std::string(3000, 'd')}};
  std::vector<std::uint16_t> stream;
  for (const auto& [key, text] : files) {
    for (const char c : text) stream.push_back(static_cast<unsigned char>(c));
    stream.push_back(256);
  }
  for (const std::uint32_t length : {1U, 2U, 7U, 1000U, 3008U}) {
    PackOptions options = small_options();
    options.shard_bytes = 2048;
    options.tokens_per_sample = length;
    const Files dataset = packed(files, options);
    std::vector<std::uint16_t> out;
    const json index = json::parse(dataset.at("index.json"));
    for (const json& shard : index["shards"]) {
      EXPECT_EQ(shard["column_encodings"][0], "ndarray:uint16:" + std::to_string(length));
      EXPECT_EQ(shard["column_sizes"][0], 2 * length);
      for (const std::string& sample : mds_samples(dataset.at(shard["raw_data"]["basename"]))) {
        EXPECT_EQ(sample.size(), 2 * length);
        const auto* bytes = reinterpret_cast<const std::byte*>(sample.data());
        for (std::uint32_t i = 0; i < length; ++i)
          out.push_back(load_le<std::uint16_t>(bytes + 2 * i));
      }
    }
    EXPECT_EQ(out.size(), stream.size() / length * length);
    EXPECT_TRUE(std::equal(out.begin(), out.end(), stream.begin())) << length;
  }
}

TEST(PackWebDataset, KeepsNamesThatGroupOneToOne) {
  const Files files = {
      {"a/1.JPG", "one"}, {"a/2.jpg", std::string(600, 'x')}, {"b.c/3.seg.png", ""}};
  PackOptions options = small_options();
  options.format = "webdataset";
  const Files dataset = packed(files, options);
  ASSERT_EQ(dataset.size(), 1U);
  EXPECT_EQ(tar_members(dataset.at("shard-000000.tar")),
            (std::vector<std::pair<std::string, std::string>>(files.begin(), files.end())));
}

TEST(PackWebDataset, NumbersMembersWhereNamesWouldMergeOrVanish) {
  PackOptions options = small_options();
  options.format = "webdataset";
  const std::vector<Files> cases = {{{"a.1.jpg", "1"}, {"a.2.jpg", "2"}},
                                    {{"a.JPG", "1"}, {"a.jpg", "2"}},
                                    {{"Makefile", "1"}, {"x.c", "2"}},
                                    {{"/etc/evil.txt", "1"}, {"x.c", "2"}}};
  for (const Files& files : cases) {
    const auto members = tar_members(packed(files, options).at("shard-000000.tar"));
    ASSERT_EQ(members.size(), 4U);
    EXPECT_EQ(members[0], (std::pair<std::string, std::string>("000000000.data", "1")));
    EXPECT_EQ(members[1].first, "000000000.key.txt");
    EXPECT_EQ(members[1].second, files.begin()->first);
    EXPECT_EQ(members[2].first, "000000001.data");
    EXPECT_EQ(members[3].second, files.rbegin()->first);
  }
}

TEST(PackWebDataset, MakesOneSampleOfFilesThatAreCalledAlike) {
  Files files;
  for (int i = 0; i < 30; ++i) {
    const std::string name = "d/" + std::to_string(i);
    files[name + ".jpg"] = std::string(700, 'j');
    files[name + ".json"] = "{}";
    if (i % 3 == 0) files[name + ".seg.png"] = "p";
  }
  PackOptions options = small_options();
  options.format = "webdataset";
  std::vector<std::pair<std::string, std::string>> members;
  for (const auto& [key, tar] : packed(files, options)) {
    auto found = tar_members(tar);
    EXPECT_TRUE(found.front().first.ends_with(".jpg"));  // No sample is cut in two.
    EXPECT_FALSE(found.back().first.ends_with(".jpg"));
    for (auto& member : found) members.push_back(std::move(member));
  }
  EXPECT_EQ(members,
            (std::vector<std::pair<std::string, std::string>>(files.begin(), files.end())));
}

TEST(PackWebDataset, KeepsEveryFileOverManyShards) {
  const Files files = random_files(test_seed(), 80);
  PackOptions options = small_options();
  options.format = "webdataset";
  std::vector<std::pair<std::string, std::string>> members;
  for (const auto& [key, tar] : packed(files, options)) {
    EXPECT_LE(tar.size(), 8U << 10);
    for (auto& member : tar_members(tar)) members.push_back(std::move(member));
  }
  EXPECT_EQ(members,
            (std::vector<std::pair<std::string, std::string>>(files.begin(), files.end())));
}

TEST(Pack, BytesDoNotDependOnWorkersOrMemory) {
  const Files files = random_files(test_seed(), 50);
  for (const char* kind : {"files", "tokens", "zstd", "webdataset"}) {
    PackOptions options = small_options();
    if (kind == std::string("tokens")) options.tokens_per_sample = 100;
    if (kind == std::string("zstd")) options.compression = "zstd";
    if (kind == std::string("webdataset")) options.format = "webdataset";
    options.worker_count = 1;
    const Files expected = packed(files, options);
    for (const std::uint32_t workers : {2U, 7U}) {
      options.worker_count = workers;
      options.memory_bytes = workers << 20;
      EXPECT_EQ(packed(files, options), expected) << kind << " " << workers;
    }
  }
}

TEST(Pack, WritesAFileLargerThanMemoryInParts) {
  Files files = random_files(test_seed(), 10);
  files["d2/large.bin"] = random_files(7, 1, 6 << 20).begin()->second + std::string(5 << 20, 'z');
  PackOptions options = small_options();
  options.hash = "sha256";
  options.memory_bytes = 1 << 20;
  const Files in_parts = packed(files, options);
  EXPECT_EQ(mds_files(in_parts),
            (std::vector<std::pair<std::string, std::string>>(files.begin(), files.end())));
  options.memory_bytes = 256 << 20;
  EXPECT_EQ(packed(files, options), in_parts);
  options.hash.clear();
  options.format = "webdataset";
  options.memory_bytes = 1 << 20;
  const Files tars = packed(files, options);
  options.memory_bytes = 256 << 20;
  EXPECT_EQ(packed(files, options), tars);
}

/// Runs packs that stop at random puts until one ends. Returns how many shards that one found
/// complete.
std::uint64_t pack_with_stops(Store& source, Store& target, PackOptions options, Random& random) {
  for (std::uint64_t runs = 0; runs < 100; ++runs) {
    auto watch = std::make_shared<WatchedStore::Watch>();
    watch->stop_at_put = 1 + random.below(12);
    auto handle = target.new_handle();
    WatchedStore watched(*std::move(handle), watch);
    options.worker_count = static_cast<std::uint32_t>(1 + random.below(4));
    auto result = pack(source, watched, options, watch->stop.get_token());
    if (result) return result->resumed_shard_count;
    EXPECT_EQ(result.error().code(), Code::kCancelled);
  }
  ADD_FAILURE() << "no progress in 100 runs";
  return 0;
}

TEST(Pack, GoesOnAfterBeingStoppedAnywhere) {
  const Files files = random_files(test_seed(), 60);
  for (const char* compression : {"", "zstd"}) {
    PackOptions options = small_options();
    options.compression = compression;
    const Files expected = packed(files, options);
    std::uint64_t resumed = 0;
    for (std::uint64_t seed = test_seed(); seed < test_seed() + 12; ++seed) {
      SCOPED_TRACE("HEADRACE_TEST_SEED=" + std::to_string(seed));
      Random random(seed);
      const auto source = make_store("source", files);
      const auto target = make_store("target");
      resumed += pack_with_stops(*source, *target, options, random);
      EXPECT_EQ(contents(*target), expected);
    }
    EXPECT_GT(resumed, 12U) << "runs went on where others stood";
  }
}

TEST(Pack, FinishedPackIsRecognisedAndKept) {
  const auto source = make_store("source", random_files(test_seed(), 30));
  for (const char* compression : {"", "zstd"}) {
    PackOptions options = small_options();
    options.compression = compression;
    options.hash = "xxh3_64";
    const auto target = make_store("target");
    const PackResult first = must_pack(*source, *target, options);
    const Files all = contents(*target, true);
    EXPECT_EQ(
        std::count_if(all.begin(), all.end(), [](const auto& o) { return o.first[0] == '.'; }), 2)
        << "of records, the plan and the word that all is there stay";
    const PackResult second = must_pack(*source, *target, options);
    EXPECT_EQ(second.resumed_shard_count, first.shard_count);
    EXPECT_EQ(second.read_bytes, 0U);
    EXPECT_EQ(second.written_bytes, 0U);
    EXPECT_EQ(contents(*target, true), all);
  }
}

TEST(Pack, RemovesTheRecordsThatAreThere) {
  const auto source = make_store("source", random_files(test_seed(), 60));
  PackOptions options = small_options();
  options.hash = "xxh3_64";
  const auto target = make_store("target");
  auto watch = std::make_shared<WatchedStore::Watch>();
  auto handle = target->new_handle();
  WatchedStore watched(*std::move(handle), watch);
  const PackResult first = must_pack(*source, watched, options);
  EXPECT_EQ(watch->removes.exchange(0), first.shard_count);
  const auto pool = pack_test::make_pool();
  EXPECT_TRUE(write_object(*target, *pool, ".hrpack/done/000001.json", "{}"));
  EXPECT_TRUE(write_object(*target, *pool, ".hrpack.note.json", "{}"));
  must_pack(*source, watched, options);
  EXPECT_EQ(watch->removes, 1U);
  EXPECT_EQ(contents(*target, true).count(".hrpack.note.json"), 1U);
}

TEST(Pack, RecordsOfOtherShardsOrPlansAreNotBelieved) {
  const auto source = make_store("source", random_files(test_seed(), 60));
  PackOptions options = small_options();
  options.hash = "xxh3_64";
  const auto target = make_store("target");
  const PackResult first = must_pack(*source, *target, options);
  const Files all = contents(*target, true);
  const auto pool = pack_test::make_pool();
  for (const char* text : {"", "no JSON", "{}", R"({"digest": "x", "facts": {"bytes": 7}})"}) {
    for (const char* name : {"index.json", ".hrpack.done.json"})
      EXPECT_TRUE(target->remove(name).ok());
    EXPECT_TRUE(write_object(*target, *pool, ".hrpack/done/000000.json", text));
    EXPECT_TRUE(write_object(*target, *pool, ".hrpack/done/999999.json", text));
    EXPECT_EQ(must_pack(*source, *target, options).resumed_shard_count, 0U);
    EXPECT_EQ(contents(*target, true), all);
  }
  EXPECT_GT(first.shard_count, 2U);
}

TEST(Pack, FindsItsShardsInListingsWithoutOrder) {
  const auto source = make_store("source", random_files(test_seed(), 60));
  const auto target = make_store("target");
  const PackResult first = must_pack(*source, *target, small_options());
  ASSERT_GT(first.shard_count, 3U);
  EXPECT_TRUE(target->remove("index.json").ok());
  auto watch = std::make_shared<WatchedStore::Watch>();
  watch->lists_in_no_order = true;
  auto handle = target->new_handle();
  WatchedStore watched(*std::move(handle), watch);
  EXPECT_EQ(must_pack(*source, watched, small_options()).resumed_shard_count, first.shard_count);
}

/// A finished pack that loses something is the same again after another run.
void expect_repaired(const std::function<void(Store& target)>& harm) {
  const auto source = make_store("source", random_files(test_seed(), 30));
  PackOptions options = small_options();
  options.compression = "zstd";
  const auto target = make_store("target");
  must_pack(*source, *target, options);
  const Files all = contents(*target);
  harm(*target);
  must_pack(*source, *target, options);
  EXPECT_EQ(contents(*target), all);
}

TEST(Pack, MissingShardOfAFinishedPackIsMadeAgain) {
  expect_repaired([](Store& target) { EXPECT_TRUE(target.remove("shard.00001.mds.zstd").ok()); });
}

TEST(Pack, AnIndexThatNamesFewerShardsIsMadeWhole) {
  expect_repaired([](Store& target) {
    json index = json::parse(contents(target).at("index.json"));
    ASSERT_GT(index["shards"].size(), 2U);
    index["shards"].erase(1);
    while (index["shards"].size() > 1) index["shards"].erase(index["shards"].size() - 1);
    auto pool = *SlabPool::create({});
    ASSERT_TRUE(write_object(target, *pool, "index.json", index.dump()));
  });
}

TEST(Pack, DifferentPackLeavesTheTargetAlone) {
  const auto source = make_store("source", random_files(test_seed(), 30));
  const auto target = make_store("target");
  must_pack(*source, *target, small_options());
  const Files before = contents(*target, true);
  PackOptions options = small_options();
  options.shard_bytes += 1;
  EXPECT_EQ(pack_code(*source, *target, options), Code::kInvalidArgument);
  const auto other = make_store("other", random_files(test_seed() + 1, 30));
  EXPECT_EQ(pack_code(*other, *target, small_options()), Code::kInvalidArgument);
  EXPECT_EQ(contents(*target, true), before);
  const auto foreign = make_store("foreign", {{"index.json", "{}"}});
  EXPECT_EQ(pack_code(*source, *foreign, small_options()), Code::kInvalidArgument);
  EXPECT_EQ(contents(*foreign, true).size(), 1U);
}

// Version 1 had no records of plain shards, and those of others where nobody looks any more.
TEST(Pack, GoesOnWithPlainShardsOfEarlierVersionsAndRefusesOthers) {
  const auto source = make_store("source", random_files(test_seed(), 30));
  for (const char* compression : {"", "zstd"}) {
    PackOptions options = small_options();
    options.compression = compression;
    const auto target = make_store("target");
    must_pack(*source, *target, options);
    const Files all = contents(*target, true);
    json plan = json::parse(all.at(".hrpack.json"));
    plan["version"] = 1;
    const auto pool = pack_test::make_pool();
    EXPECT_TRUE(write_object(*target, *pool, ".hrpack.json", pack_detail::python_json(plan)));
    EXPECT_TRUE(target->remove(".hrpack.done.json").ok());
    EXPECT_TRUE(target->remove("index.json").ok());
    const Files before = contents(*target, true);
    auto result = pack(*source, *target, options);
    if (options.compression.empty()) {
      ASSERT_TRUE(result);
      EXPECT_EQ(result->resumed_shard_count, result->shard_count);
      EXPECT_EQ(contents(*target, true), all);
    } else {
      ASSERT_FALSE(result);
      EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
      EXPECT_NE(result.error().message().find("another version"), std::string::npos);
      EXPECT_EQ(contents(*target, true), before);
    }
  }
}

TEST(Pack, OfTwoThatBeginAtOnceOneOrBothOfTheSamePackGoOn) {
  const auto source = make_store("source", random_files(test_seed(), 30));
  const auto other = make_store("other", random_files(test_seed() + 1, 30));
  for (const bool is_same : {true, false}) {
    const auto target = make_store("target");
    auto watch = std::make_shared<WatchedStore::Watch>();
    watch->before_first_put = [&] { must_pack(*source, *target, small_options()); };
    auto handle = target->new_handle();
    WatchedStore watched(*std::move(handle), watch);
    EXPECT_EQ(pack_code(is_same ? *source : *other, watched, small_options()),
              is_same ? Code::kOk : Code::kInvalidArgument);
    const auto expected = make_store("expected");
    must_pack(*source, *expected, small_options());
    EXPECT_EQ(contents(*target, true), contents(*expected, true));
  }
}

TEST(Pack, TheOneThatBeganFirstEndsWhereAnotherTookTheTarget) {
  const auto source = make_store("source", random_files(test_seed(), 30));
  const auto other = make_store("other", random_files(test_seed() + 1, 30));
  const auto target = make_store("target");
  auto watch = std::make_shared<WatchedStore::Watch>();
  bool is_taken = false;
  watch->after_list = [&] {
    if (is_taken || !contents(*target, true).contains(".hrpack.json")) return;
    is_taken = true;
    must_pack(*other, *target, small_options());
  };
  WatchedStore watched(*target->new_handle(), watch);
  EXPECT_EQ(pack_code(*source, watched, small_options()), Code::kChanged);
  const auto expected = make_store("expected");
  must_pack(*other, *expected, small_options());
  EXPECT_EQ(contents(*target, true), contents(*expected, true));
}

// Making a shard takes long: who has lost the target meanwhile must not write it there.
TEST(Pack, TheOneThatLostTheTargetWhileItMadeAShardWritesNothing) {
  const auto source = make_store("source", random_files(test_seed(), 30));
  for (const bool is_compressed : {false, true}) {
    const auto target = make_store("target");
    PackOptions winning = small_options();
    winning.shard_bytes *= 2;
    auto watch = std::make_shared<WatchedStore::Watch>();
    watch->before_first_get = [&] { must_pack(*source, *target, winning); };
    WatchedStore read(*source->new_handle(), watch);
    PackOptions losing = small_options();
    losing.worker_count = 1;  // Another one could have put a shard, and then nobody else begins.
    if (is_compressed) losing.compression = "zstd";
    EXPECT_EQ(pack_code(read, *target, losing), Code::kChanged);
    const auto expected = make_store("expected");
    must_pack(*source, *expected, winning);
    EXPECT_EQ(contents(*target, true), contents(*expected, true));
  }
}

TEST(Pack, TakesWhatADatasetOfFilesHas) {
  const Files samples = {{"a.jpg", "a"}, {"d/b.jpg", "b"}, {"d/index.hri", "c"}};
  Files files = samples;
  for (const char* name : {".DS_Store", ".git/x.jpg", "d/.b.jpg", "d/.e/x.jpg", "index.hri",
                           "MANIFEST.sha256", "e/", "../../evil.txt"})
    files[name] = "never a sample";
  for (const char* format : {"mds", "webdataset"}) {
    PackOptions options = small_options();
    options.format = format;
    EXPECT_EQ(packed(files, options), packed(samples, options)) << format;
  }
  const auto hidden = make_store("hidden", {{".DS_Store", "x"}});
  EXPECT_EQ(pack_code(*hidden, *make_store("target"), small_options()), Code::kNotFound);
}

TEST(Pack, TellsProgressUpToTheEnd) {
  const auto source = make_store("source", random_files(test_seed(), 30));
  const auto target = make_store("target");
  PackOptions options = small_options();
  std::uint64_t last = 0;
  options.progress = [&](std::uint64_t done, std::uint64_t total, std::uint64_t) {
    EXPECT_GE(done, last);
    EXPECT_EQ(total, 30U);
    last = done;
  };
  must_pack(*source, *target, options);
  EXPECT_EQ(last, 30U);
}

TEST(Pack, RefusesWrongOptions) {
  const auto source = make_store("source", {{"a", "b"}});
  const auto target = make_store("target");
  const auto code = [&](auto change) {
    PackOptions options = small_options();
    change(options);
    return pack_code(*source, *target, options);
  };
  EXPECT_EQ(code([](PackOptions& o) { o.format = "zip"; }), Code::kUnsupported);
  EXPECT_EQ(code([](PackOptions& o) { o.compression = "gz"; }), Code::kUnsupported);
  EXPECT_EQ(code([](PackOptions& o) { o.compression = "zstdx"; }), Code::kUnsupported);
  EXPECT_EQ(code([](PackOptions& o) { o.compression = "zstd:99"; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](PackOptions& o) { o.hash = "md4"; }), Code::kUnsupported);
  EXPECT_EQ(code([](PackOptions& o) { o.shard_bytes = 0; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](PackOptions& o) { o.shard_bytes = std::uint64_t{5} << 30; }),
            Code::kInvalidArgument);
  EXPECT_EQ(code([](PackOptions& o) { o.memory_bytes = 1000; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](PackOptions& o) { o.tokens_per_sample = 100; }), Code::kNotFound)
      << "too few tokens";
  const auto tar_code = [&](auto change) {
    return code([&](PackOptions& o) {
      o.format = "webdataset";
      change(o);
    });
  };
  EXPECT_EQ(tar_code([](PackOptions& o) { o.compression = "zstd"; }), Code::kUnsupported);
  EXPECT_EQ(tar_code([](PackOptions& o) { o.hash = "sha1"; }), Code::kUnsupported);
  EXPECT_EQ(tar_code([](PackOptions& o) { o.tokens_per_sample = 10; }), Code::kUnsupported);
  EXPECT_TRUE(contents(*target, true).empty());
}

TEST(Pack, NeedsFilesAndAnotherPlace) {
  const auto empty = make_store("empty");
  const auto source = make_store("source", {{"a", "b"}});
  const auto inside = make_store("source/out");
  EXPECT_EQ(pack_code(*empty, *inside, small_options()), Code::kNotFound);
  EXPECT_EQ(pack_code(*source, *inside, small_options()), Code::kInvalidArgument);
  EXPECT_EQ(pack_code(*source, *source, small_options()), Code::kInvalidArgument);
}

TEST(Pack, FileNamesAreText) {
  const auto source = make_store("source", {{"d/\xc3\xa4.txt", "good"}, {"d/\xff.txt", "bad"}});
  for (const char* format : {"mds", "webdataset"}) {
    const auto target = make_store("target");
    PackOptions options = small_options();
    options.format = format;
    const auto result = pack(*source, *target, options);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
    EXPECT_NE(result.error().message().find(R"(d/\xff.txt)"), std::string::npos)
        << result.error().message();
    EXPECT_TRUE(contents(*target, true).empty());
  }
  const auto target = make_store("target");
  PackOptions options = small_options();
  options.tokens_per_sample = 2;
  EXPECT_EQ(pack_code(*source, *target, options), Code::kOk) << "tokens carry no names";
}

TEST(Pack, SaysHowMuchMemoryAWholeShardNeeds) {
  const auto source = make_store("source", {{"a", std::string(3 << 20, 'x')}});
  const auto target = make_store("target");
  PackOptions options = small_options();
  options.compression = "zstd";
  options.memory_bytes = 4 << 20;
  auto result = pack(*source, *target, options);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), Code::kExhausted);
  EXPECT_NE(result.error().message().find("4194304"), std::string_view::npos);
}

TEST(Pack, FileThatChangesDuringTheRunIsAnError) {
  auto inner = make_store("source", random_files(test_seed(), 10));
  auto writer = inner->new_handle();
  auto watch = std::make_shared<WatchedStore::Watch>();
  watch->after_list = [&] {
    const auto pool = pack_test::make_pool();
    EXPECT_TRUE(write_object(**writer, *pool, "d0/new", "0"));
    EXPECT_TRUE(write_object(**writer, *pool, "zz", "1"))
        << "the page that was returned has the old version";
  };
  EXPECT_TRUE(write_object(*inner, *pack_test::make_pool(), "zz", "0"));
  WatchedStore source(std::move(inner), watch);
  const auto target = make_store("target");
  EXPECT_EQ(pack_code(source, *target, small_options()), Code::kChanged);
}

TEST(Pack, SurvivesAStoreThatMisbehaves) {
  const Files files = random_files(test_seed(), 60);
  const Files expected = packed(files, small_options());
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const auto source =
        FaultStore::create(make_store("source", files),
                           {.seed = seed, .short_accept_share = 0.3, .hold_back_count = 5});
    const auto target =
        FaultStore::create(make_store("target"), {.seed = seed, .hold_back_count = 0});
    must_pack(*source, *target, small_options());
    EXPECT_EQ(contents(*target), expected);
  }
}

TEST(Pack, ErrorsOfStoresEndTheRunAndTheNextOneGoesOn) {
  const Files files = random_files(test_seed(), 60);
  const Files expected = packed(files, small_options());
  const auto target = make_store("target");
  const auto flaky = FaultStore::create(
      make_store("source", files), {.seed = 3, .error_share = 0.05, .error_code = Code::kDenied});
  EXPECT_EQ(pack_code(*flaky, *target, small_options()), Code::kDenied);
  EXPECT_EQ(contents(*target).count("index.json"), 0U);
}

TEST(Pack, CancelledBeforeItBegins) {
  const auto source = make_store("source", {{"a", "b"}});
  const auto target = make_store("target");
  std::stop_source stop;
  stop.request_stop();
  auto result = pack(*source, *target, small_options(), stop.get_token());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), Code::kCancelled);
}

TEST(Pack, WorksFromDirectoryToDirectory) {
  const TemporaryDirectory directory;
  const Files files = random_files(test_seed(), 40);
  auto source = open_file_store(pack_test::at_url(directory.path() + "/source"));
  auto target = open_file_store(pack_test::at_url(directory.path() + "/target/deep"));
  ASSERT_TRUE(source && target);
  for (const auto& [key, text] : files)
    ASSERT_TRUE(write_object(**source, *pack_test::make_pool(), key, text));
  must_pack(**source, **target, small_options());
  EXPECT_EQ(contents(**target), packed(files, small_options()));
  EXPECT_EQ(must_pack(**source, **target, small_options()).written_bytes, 0U);
}

/// Packs a directory in which `change` happens after the listing.
Code pack_changing_directory(const std::function<void(const std::string& root)>& change,
                             bool to_directory = true) {
  const TemporaryDirectory directory;
  const std::string root = directory.path() + "/source";
  auto inner = open_file_store(pack_test::at_url(root));
  auto target = to_directory ? *open_file_store(pack_test::at_url(directory.path() + "/target"))
                             : make_store("target");
  for (const auto& [key, text] : random_files(test_seed(), 20))
    EXPECT_TRUE(write_object(**inner, *pack_test::make_pool(), key, text));
  for (const char* key : {"d0/zz", "gone/zz"})
    EXPECT_TRUE(write_object(**inner, *pack_test::make_pool(), key, std::string(20'000, 'x')));
  EXPECT_TRUE(write_object(**inner, *pack_test::make_pool(), "d0/empty", ""));
  auto watch = std::make_shared<WatchedStore::Watch>();
  watch->local_directory = root;
  watch->after_list = [&] { change(root); };
  WatchedStore source(*std::move(inner), watch);
  const Code code = pack_code(source, *target, small_options());
  EXPECT_EQ(contents(*target).count("index.json"), code == Code::kOk ? 1U : 0U);
  return code;
}

TEST(PackDirectory, FileThatChangesDuringTheRunIsAnError) {
  namespace fs = std::filesystem;
  for (const bool to_directory : {true, false}) {
    const auto code = [&](const auto& change) {
      return pack_changing_directory(change, to_directory);
    };
    EXPECT_EQ(code([](const std::string&) {}), Code::kOk);
    EXPECT_EQ(code([](const std::string& root) { fs::resize_file(root + "/d0/zz", 19'999); }),
              Code::kChanged);
    EXPECT_EQ(code([](const std::string& root) { fs::resize_file(root + "/d0/zz", 20'001); }),
              Code::kChanged);
    EXPECT_EQ(code([](const std::string& root) { fs::remove(root + "/d0/zz"); }), Code::kChanged);
    EXPECT_EQ(code([](const std::string& root) { fs::resize_file(root + "/d0/empty", 1); }),
              Code::kChanged);
    EXPECT_EQ(code([](const std::string& root) { fs::remove(root + "/d0/empty"); }),
              Code::kChanged);
    EXPECT_EQ(code([](const std::string& root) { fs::remove_all(root + "/gone"); }),
              Code::kChanged);
    EXPECT_EQ(code([](const std::string& root) {
                fs::last_write_time(root + "/d0/zz",
                                    fs::file_time_type::clock::now() + std::chrono::hours(1));
              }),
              Code::kChanged);
  }
}

TEST(PackDirectory, RemovesWhatKilledRunsLeft) {
  const TemporaryDirectory directory;
  auto source = open_file_store(pack_test::at_url(directory.path() + "/source"));
  auto target = open_file_store(pack_test::at_url(directory.path() + "/target"));
  ASSERT_TRUE(source && target);
  for (const auto& [key, text] : random_files(test_seed(), 20))
    ASSERT_TRUE(write_object(**source, *pack_test::make_pool(), key, text));
  PackOptions options = small_options();
  options.format = "webdataset";
  must_pack(**source, **target, options);
  // The plan is there and tars have no index: the store of the target puts nothing itself.
  const std::string left = directory.path() + "/target/.headrace-abcdefghij.tmp";
  std::ofstream(left) << "half a shard";
  std::filesystem::remove(directory.path() + "/target/shard-000000.tar");
  auto again = open_file_store(pack_test::at_url(directory.path() + "/target"));
  EXPECT_GT(must_pack(**source, **again, options).written_bytes, 0U);
  EXPECT_FALSE(std::filesystem::exists(left));
}

TEST(PackDirectory, MakesTheBytesOfEveryOtherWay) {
  const TemporaryDirectory directory;
  Files files = random_files(test_seed(), 40, 30'000);
  files["d1/large"] = std::string(3 << 20, 'l');
  auto source = open_file_store(pack_test::at_url(directory.path() + "/source"));
  for (const auto& [key, text] : files)
    ASSERT_TRUE(write_object(**source, *pack_test::make_pool(), key, text));
  int number = 0;
  for (const char* kind : {"mds", "hash", "zstd", "tokens", "webdataset"}) {
    PackOptions options = small_options();
    options.memory_bytes = 32 << 20;
    options.shard_bytes = 100'000;
    if (kind == std::string("hash")) options.hash = "sha256";
    if (kind == std::string("zstd")) options.compression = "zstd";
    if (kind == std::string("tokens")) options.tokens_per_sample = 33;
    if (kind == std::string("webdataset")) options.format = "webdataset";
    const Files expected = packed(files, options);
    const std::string path = directory.path() + "/target" + std::to_string(number++);
    auto target = open_file_store(pack_test::at_url(path));
    must_pack(**source, **target, options);
    EXPECT_EQ(contents(**target), expected) << kind;
    const auto in_memory = make_store("target");
    must_pack(**source, *in_memory, options);
    EXPECT_EQ(contents(*in_memory), expected) << kind;
  }
}

}  // namespace
}  // namespace headrace
