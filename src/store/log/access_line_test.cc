#include "store/log/access_line.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace headrace {
namespace {

using Wall = std::chrono::sys_time<Microseconds>;

std::string line(const AccessRecord& record, const AccessWriter& writer = {.process_id = 7},
                 Wall time = Wall(Microseconds(1'440'938'160'000'042))) {
  std::string out;
  append_access_line(out, writer, record, time);
  return out;
}

TEST(AccessLine, HasWhatIsKnownOfATransfer) {
  AccessRecord record{.operation = "get", .root = "s3://b/p", .key = "a/k", .version = "\"v1\""};
  record.is_transfer = true;
  record.offset_bytes = 65536;
  record.length_bytes = 1000;
  record.moved_bytes = 999;
  record.started = TimePoint(std::chrono::seconds(5));
  record.finished = record.started + Microseconds(1234);
  EXPECT_EQ(line(record, {.process_id = 7, .rank = 3}),
            R"({"time":"2015-08-30T12:36:00.000042Z","pid":7,"rank":3,"operation":"get",)"
            R"("object":"s3://b/p/a/k","version":"\"v1\"","offset":65536,"length":1000,)"
            R"("bytes":999,"outcome":"ok","duration_us":1234})"
            "\n");
}

TEST(AccessLine, LeavesOutWhatIsNot) {
  EXPECT_EQ(line({.operation = "head", .root = "/d", .key = "k", .outcome = Code::kNotFound}),
            R"({"time":"2015-08-30T12:36:00.000042Z","pid":7,"operation":"head","object":"/d/k",)"
            R"("outcome":"not_found","duration_us":0})"
            "\n");
}

TEST(AccessLine, NamesBothEndsOfACopy) {
  const auto json = nlohmann::json::parse(
      line({.operation = "copy", .root = "memory://m", .key = "from", .to_key = "to"}));
  EXPECT_EQ(json["object"], "memory://m/from");
  EXPECT_EQ(json["target"], "memory://m/to");
}

TEST(AccessLine, WritesTimesOfEveryLength) {
  const auto time_of = [](std::int64_t us) {
    return line({.operation = "get"}, {}, Wall(Microseconds(us))).substr(9, 27);
  };
  EXPECT_EQ(time_of(0), "1970-01-01T00:00:00.000000Z");
  EXPECT_EQ(time_of(951'782'399'999'999), "2000-02-28T23:59:59.999999Z");
  EXPECT_EQ(time_of(951'782'400'000'000), "2000-02-29T00:00:00.000000Z");
}

TEST(AccessLine, StaysOneLineOfJsonWhateverTheKey) {
  std::string all;
  for (int c = 0; c < 128; ++c) all += static_cast<char>(c);
  all += "\u00e9\u20ac\U0001f600";
  const std::string text = line({.operation = "get", .root = "r", .key = all});
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  EXPECT_EQ(nlohmann::json::parse(text)["object"], "r/" + all);
}

TEST(AccessLine, ReplacesBytesThatAreNoText) {
  for (const std::string bad : {"\x80", "\xc1\x80", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf5\x80",
                                "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xe2\x82"}) {
    const auto json = nlohmann::json::parse(line({.operation = "get", .root = "r", .key = bad}));
    std::string expected = "r/";
    for (std::size_t i = 0; i < bad.size(); ++i) expected += "\ufffd";
    EXPECT_EQ(json["object"], expected);
  }
}

}  // namespace
}  // namespace headrace
