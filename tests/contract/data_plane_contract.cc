// What every store does with transfers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "base/random.h"
#include "contract/store_contract.h"

namespace headrace::contract {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

TEST_P(StoreContract, AnObjectThatWasWrittenReadsBackTheSame) {
  const std::string bytes = pattern(100'001);
  Completion written = run_one(put_request("dir/object", bytes));
  ASSERT_TRUE(written.status.ok()) << written.status.message();
  EXPECT_EQ(written.length_bytes, bytes.size());
  EXPECT_FALSE(written.etag.empty());
  const Completion read = run_one(get_request("dir/object", 0, bytes.size()));
  ASSERT_TRUE(read.status.ok()) << read.status.message();
  EXPECT_EQ(text_of(read), bytes);
  EXPECT_EQ(read.etag, written.etag);
  EXPECT_EQ(read.object_size_bytes, bytes.size());
  EXPECT_GE(read.attempts, 1U);
  EXPECT_LE(read.submitted, read.sent);
  EXPECT_LE(read.sent, read.first_byte);
  EXPECT_LE(read.first_byte, read.finished);
}

TEST_P(StoreContract, WritingAgainReplacesTheWholeObject) {
  const std::string first = put("x", pattern(1000, 1));
  const std::string second = put("x", pattern(10, 2));
  EXPECT_NE(first, second);
  EXPECT_EQ(get("x", 0, 10), pattern(10, 2));
  auto info = store().head("x");
  ASSERT_TRUE(info) << info.error().message();
  EXPECT_EQ(info->size_bytes, 10U);
  EXPECT_EQ(info->etag, second);
}

TEST_P(StoreContract, ReadsExactlyTheRangeAskedFor) {
  const std::string bytes = pattern(10'000);
  put("x", bytes);
  const std::pair<std::uint64_t, std::uint64_t> ranges[] = {
      {0, 1}, {9'999, 1}, {0, 10'000}, {1, 9'998}, {4'095, 2}, {4'096, 4'096}, {5'000, 5'000}};
  for (const auto& [offset, length] : ranges)
    EXPECT_EQ(get("x", offset, length), bytes.substr(offset, length));
}

TEST_P(StoreContract, BytesLandAtTheSlabOffset) {
  put("x", "0123456789");
  Request request = get_request("x", 2, 100);
  request.length_bytes = 5;
  request.slab_offset_bytes = 95;
  const Completion done = run_one(std::move(request));
  ASSERT_TRUE(done.status.ok()) << done.status.message();
  EXPECT_EQ(text_of(done, 95), "23456");
}

TEST_P(StoreContract, WritesFromTheSlabOffset) {
  Request request = put_request("x", "0123456789");
  request.slab_offset_bytes = 3;
  request.length_bytes = 4;
  ASSERT_TRUE(run_one(std::move(request)).status.ok());
  EXPECT_EQ(get("x", 0, 4), "3456");
}

TEST_P(StoreContract, AShorterObjectIsCorruptUnlessAllowed) {
  put("x", "0123456789");
  for (const std::uint64_t offset : {5U, 10U, 50U}) {
    const Completion strict = run_one(get_request("x", offset, 20));
    EXPECT_EQ(strict.status.code(), Code::kCorrupt) << offset << " " << strict.status.message();
    if (offset == 10 && !world().answers_range_at_end()) continue;
    Request request = get_request("x", offset, 20);
    request.allow_short = true;
    const Completion allowed = run_one(std::move(request));
    ASSERT_TRUE(allowed.status.ok()) << offset << " " << allowed.status.message();
    EXPECT_EQ(text_of(allowed), offset == 5 ? "56789" : "") << offset;
  }
}

TEST_P(StoreContract, AnObjectMayBeEmpty) {
  put("empty", "");
  auto info = store().head("empty");
  ASSERT_TRUE(info) << info.error().message();
  EXPECT_EQ(info->size_bytes, 0U);
  EXPECT_EQ(run_one(get_request("empty", 0, 1)).status.code(), Code::kCorrupt);
  Request request = get_request("empty", 0, 100);
  request.allow_short = true;
  const Completion done = run_one(std::move(request));
  ASSERT_TRUE(done.status.ok()) << done.status.message();
  EXPECT_EQ(done.length_bytes, 0U);
}

TEST_P(StoreContract, ABigObjectArrivesWholeInManyRanges) {
  const std::string bytes = pattern(6 * kMiB + 12'345);
  const std::string etag = put("big", bytes);
  constexpr std::uint64_t kPiece = 101'111;
  std::vector<Request> requests;
  for (std::uint64_t offset = 0; offset < bytes.size(); offset += kPiece) {
    requests.push_back(
        get_request("big", offset, std::min<std::uint64_t>(kPiece, bytes.size() - offset)));
    requests.back().tag = offset;
    requests.back().etag = etag;
  }
  Random random(5);
  for (std::size_t i = requests.size(); i > 1; --i)
    std::swap(requests[i - 1], requests[random.below(i)]);
  for (const Completion& done : run(store(), std::move(requests))) {
    ASSERT_TRUE(done.status.ok()) << done.status.message();
    ASSERT_EQ(text_of(done), std::string_view(bytes).substr(done.tag, kPiece)) << "at " << done.tag;
  }
}

TEST_P(StoreContract, KeysAreBytesNotUrls) {
  std::vector<std::string> keys = {"with space",
                                   "plus+plus",
                                   "percent%20not-escaped",
                                   "a=b&c=d",
                                   "question?mark#",
                                   "tilde~'()!*",
                                   "\xc3\xa4\xe2\x82\xac\xf0\x9f\x9a\x80",
                                   "semi;colon:at@",
                                   "a,b$c",
                                   "back\\slash|pipe<>\"",
                                   ".hidden",
                                   "-dash",
                                   "deep/er/and/deeper/still"};
  std::erase_if(keys, [&](const std::string& key) { return !world().takes_key(key); });
  for (const std::string& key : keys) put(key, "content of " + key);
  for (const std::string& key : keys) {
    EXPECT_EQ(get(key, 0, 11 + key.size()), "content of " + key);
    auto info = store().head(key);
    ASSERT_TRUE(info) << key << ": " << info.error().message();
    EXPECT_EQ(info->key, key);
  }
  std::vector<std::string> sorted = keys;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(keys_below(""), sorted);
  for (const std::string& key : keys) EXPECT_TRUE(store().remove(key).ok()) << key;
  EXPECT_TRUE(keys_below("").empty());
}

TEST_P(StoreContract, KeysMayBeLong) {
  std::string key;
  for (int i = 0; i < 4; ++i) key += std::string(180, static_cast<char>('a' + i)) + "/";
  key += "end";
  put(key, "x");
  EXPECT_EQ(get(key, 0, 1), "x");
}

TEST_P(StoreContract, AnotherVersionThanTheOneNamedIsChanged) {
  const std::string old_etag = put("x", "version one");
  Request match = get_request("x", 0, 11);
  match.etag = old_etag;
  const Completion matched = run_one(std::move(match));
  ASSERT_TRUE(matched.status.ok()) << matched.status.message();
  EXPECT_TRUE(matched.etag.empty());
  put("x", "version two!");
  Request stale = get_request("x", 0, 11);
  stale.etag = old_etag;
  const Completion late = run_one(std::move(stale));
  if (late.status.ok()) {
    EXPECT_TRUE(world().keeps_old_versions());
    EXPECT_EQ(text_of(late), "version one");
  } else {
    EXPECT_EQ(late.status.code(), Code::kChanged) << late.status.message();
  }
}

// What is read in ranges is compared with this.
TEST_P(StoreContract, TheSumOfAWholeObjectIsToldWhereTheTraitsSaySo) {
  const std::string bytes = pattern(100'001);
  const std::string etag = put("x", bytes);
  const ObjectSums sums = store().traits().object_sums;
  Request request;
  request.op = Op::kHead;
  request.key = "x";
  const Completion head = run_one(std::move(request));
  if (sums == ObjectSums::kHead) {
    ASSERT_TRUE(head.status.ok()) << head.status.message();
    EXPECT_EQ(head.etag, etag);
    EXPECT_EQ(head.object_size_bytes, bytes.size());
    EXPECT_EQ(head.length_bytes, 0U);
    Request stale;
    stale.op = Op::kHead;
    stale.key = "x";
    stale.etag = "\"another\"";
    EXPECT_EQ(run_one(std::move(stale)).status.code(), Code::kChanged);
    Request missing;
    missing.op = Op::kHead;
    missing.key = "no/such/object";
    EXPECT_EQ(run_one(std::move(missing)).status.code(), Code::kNotFound);
  } else {
    EXPECT_EQ(head.status.code(), Code::kUnsupported);
  }
  const Completion range = run_one(get_request("x", 10, 100));
  ASSERT_TRUE(range.status.ok()) << range.status.message();
  const Checksum& told = sums == ObjectSums::kHead ? head.object_checksum : range.object_checksum;
  if (told.kind == ChecksumKind::kNone) return;  // A server that keeps none.
  EXPECT_EQ(told.kind, ChecksumKind::kCrc32c);
  EXPECT_EQ(told.value, crc32c(std::as_bytes(std::span(bytes))));
}

TEST_P(StoreContract, AMissingObjectIsNotFoundAndTheSlabComesBack) {
  const Completion done = run_one(get_request("no/such/object", 0, 10));
  EXPECT_EQ(done.status.code(), Code::kNotFound);
  EXPECT_THAT(std::string(done.status.message()), HasSubstr("no/such/object"));
  EXPECT_EQ(done.slab.bytes().size(), 10U);
}

TEST_P(StoreContract, PutIfAbsentNeverReplaces) {
  const auto put_if_absent = [&](const char* text) {
    Request request = put_request("x", text);
    request.if_absent = true;
    return run_one(std::move(request)).status;
  };
  const Status created = put_if_absent("first");
  ASSERT_TRUE(created.ok()) << created.message();
  EXPECT_EQ(put_if_absent("second").code(), Code::kChanged);
  EXPECT_EQ(get("x", 0, 5), "first");
}

TEST_P(StoreContract, PutIfMatchReplacesTheNamedVersionOnly) {
  const std::string first_etag = put("x", "first");
  const auto put_if_first = [&](const char* text) {
    Request request = put_request("x", text);
    request.etag = first_etag;
    return run_one(std::move(request)).status;
  };
  const Status replaced = put_if_first("second");
  ASSERT_TRUE(replaced.ok()) << replaced.message();
  EXPECT_EQ(put_if_first("third").code(), Code::kChanged);
  EXPECT_EQ(get("x", 0, 6), "second");
}

TEST_P(StoreContract, MalformedRequestsCompleteAsInvalidArguments) {
  put("x", "0123456789");
  std::vector<Request> requests;
  requests.push_back(get_request("", 0, 10));
  requests.push_back(get_request("x", 0, 10));
  requests.back().length_bytes = 0;
  requests.push_back(get_request("x", 0, 10));
  requests.back().length_bytes = 11;  // more than the slab
  requests.push_back(get_request("x", 0, 10));
  requests.back().slab_offset_bytes = 1;
  requests.push_back(get_request("x", UINT64_MAX - 2, 10));
  requests.push_back(put_request("x", "part"));
  requests.back().op = Op::kPutPart;
  requests.back().upload_id = "id";
  requests.push_back(put_request("x", "part"));
  requests.back().op = Op::kPutPart;
  requests.back().part_number = 1;  // but no upload
  for (std::size_t i = 0; i < requests.size(); ++i) requests[i].tag = i;
  const std::size_t count = requests.size();
  const std::vector<Completion> done = run(store(), std::move(requests));
  EXPECT_EQ(done.size(), count);
  for (const Completion& completion : done) {
    EXPECT_EQ(completion.status.code(), Code::kInvalidArgument)
        << completion.tag << completion.status.message();
    EXPECT_TRUE(completion.slab) << completion.tag;
  }
}

TEST_P(StoreContract, PartsMakeTheObjectInOrderOfTheirNumbers) {
  const std::string bytes = pattern(2 * world().least_part_bytes() + 1000);
  const std::uint64_t part_bytes = world().least_part_bytes();
  auto upload_id = store().create_upload("dir/multi");
  ASSERT_TRUE(upload_id) << upload_id.error().message();
  std::vector<Request> requests;
  for (const std::uint32_t part : {3U, 1U, 2U}) {
    requests.push_back(put_request(
        "dir/multi",
        std::string_view(bytes).substr((part - 1) * part_bytes, part == 3 ? 1000 : part_bytes)));
    requests.back().op = Op::kPutPart;
    requests.back().part_number = part;
    requests.back().upload_id = *upload_id;
    requests.back().tag = part;
  }
  std::vector<UploadedPart> parts(3);
  for (Completion& done : run(store(), std::move(requests))) {
    ASSERT_TRUE(done.status.ok()) << done.status.message();
    parts[done.tag - 1] = {static_cast<std::uint32_t>(done.tag), done.etag};
  }
  EXPECT_EQ(store().head("dir/multi").error().code(), Code::kNotFound)
      << "nothing is visible before complete";
  EXPECT_TRUE(keys_below("").empty());
  auto info = store().complete_upload("dir/multi", *upload_id, parts);
  ASSERT_TRUE(info) << info.error().message();
  EXPECT_EQ(get("dir/multi", 0, bytes.size()), bytes);
  EXPECT_EQ(keys_below(""), std::vector<std::string>{"dir/multi"});
}

TEST_P(StoreContract, AnAbortedUploadLeavesNothing) {
  auto upload_id = store().create_upload("x");
  ASSERT_TRUE(upload_id) << upload_id.error().message();
  Request part = put_request("x", "some bytes");
  part.op = Op::kPutPart;
  part.part_number = 1;
  part.upload_id = *upload_id;
  const Completion done = run_one(std::move(part));
  ASSERT_TRUE(done.status.ok()) << done.status.message();
  ASSERT_TRUE(store().abort_upload("x", *upload_id).ok());
  EXPECT_EQ(store().head("x").error().code(), Code::kNotFound);
  const UploadedPart parts[] = {{1, done.etag}};
  EXPECT_EQ(store().complete_upload("x", *upload_id, parts).error().code(), Code::kNotFound);
}

TEST_P(StoreContract, PartsThatWereNotUploadedAreRefused) {
  auto upload_id = store().create_upload("x");
  ASSERT_TRUE(upload_id) << upload_id.error().message();
  const UploadedPart missing[] = {{1, "\"0123456789abcdef0123456789abcdef\""}};
  EXPECT_EQ(store().complete_upload("x", *upload_id, missing).error().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(store().complete_upload("x", *upload_id, {}).error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(store().abort_upload("x", *upload_id).ok());
  Request part = put_request("x", "bytes");
  part.op = Op::kPutPart;
  part.part_number = 1;
  part.upload_id = *upload_id;
  EXPECT_EQ(run_one(std::move(part)).status.code(), Code::kNotFound);
}

}  // namespace
}  // namespace headrace::contract
