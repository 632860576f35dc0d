#include "headrace/access_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/manual_clock.h"
#include "base/temporary_directory.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::hours kNever{24};

class AccessLogTest : public ::testing::Test {
 protected:
  AccessLogOptions options(std::string path = {}) {
    AccessLogOptions options;
    options.path = path.empty() ? path_ : std::move(path);
    options.write_interval = kNever;
    options.clock = &clock_;
    options.wall_clock = [this] {
      return std::chrono::sys_time<Microseconds>(Microseconds(0)) +
             std::chrono::floor<Microseconds>(clock_.now().time_since_epoch());
    };
    return options;
  }
  static std::shared_ptr<AccessLog> create(const AccessLogOptions& options) {
    auto log = AccessLog::create(options);
    EXPECT_TRUE(log) << log.error().message();
    return log ? *std::move(log) : nullptr;
  }
  AccessRecord record(std::string_view key) {
    return {.operation = "get",
            .root = "m",
            .key = key,
            .started = clock_.now(),
            .finished = clock_.now()};
  }
  std::string text() const {
    std::ostringstream out;
    out << std::ifstream(path_).rdbuf();
    return out.str();
  }
  std::vector<std::string> objects() const {
    std::vector<std::string> found;
    std::istringstream lines(text());
    for (std::string line; std::getline(lines, line);)
      found.push_back(nlohmann::json::parse(line)["object"]);
    return found;
  }

  TemporaryDirectory directory_;
  ManualClock clock_;
  const std::string path_ = directory_.path() + "/log.jsonl";
};

TEST_F(AccessLogTest, KeepsLinesUntilTheyAreManyOrItEnds) {
  auto log = create(options());
  log->add(record("a"));
  EXPECT_EQ(text(), "");
  log.reset();
  EXPECT_THAT(objects(), ::testing::ElementsAre("m/a"));
}

TEST_F(AccessLogTest, FlushWritesWhatWasAdded) {
  const auto log = create(options());
  EXPECT_TRUE(log->flush().ok()) << "nothing to write";
  log->add(record("a"));
  log->add(record("b"));
  EXPECT_TRUE(log->flush().ok());
  EXPECT_THAT(objects(), ::testing::ElementsAre("m/a", "m/b"));
}

/// Reads a pipe that a log writes to: waits for lines without a clock.
class Pipe {
 public:
  explicit Pipe(const std::string& path) {
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    fd_ = Fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  }
  std::string read_line() {
    std::string line;
    for (char c = 0; c != '\n' && ::read(fd_.get(), &c, 1) == 1;) line += c;
    return line;
  }
  /// Reads to the first line that ends in `end`.
  void drain(std::string_view end) {
    std::string chunk(1 << 16, '\0'), rest;
    while (!rest.ends_with(end)) {
      const ssize_t count = ::read(fd_.get(), chunk.data(), chunk.size());
      ASSERT_GT(count, 0);
      rest.append(chunk, 0, static_cast<std::size_t>(count));
      rest.erase(0, rest.size() - std::min(rest.size(), end.size()));
    }
  }

 private:
  Fd fd_;
};

TEST_F(AccessLogTest, WritesAfterAnInterval) {
  Pipe pipe(path_);
  AccessLogOptions soon = options();
  soon.write_interval = std::chrono::milliseconds(1);
  const auto log = create(soon);
  for (const std::string key : {"a", "b"}) {
    log->add(record(key));
    EXPECT_THAT(pipe.read_line(), HasSubstr("\"m/" + key + "\""));
  }
}

TEST_F(AccessLogTest, WritesWhenThereAreManyLines) {
  Pipe pipe(path_);
  AccessLogOptions small = options();
  small.write_bytes = 300;
  const auto log = create(small);
  for (const std::string key : {"a", "b", "c"}) log->add(record(key));
  EXPECT_THAT(pipe.read_line(), HasSubstr("\"m/a\""));
}

TEST_F(AccessLogTest, WritesSoonWhenAsked) {
  Pipe pipe(path_);
  const auto log = create(options());
  log->add(record("a"));
  log->hurry();
  EXPECT_THAT(pipe.read_line(), HasSubstr("\"m/a\""));
}

TEST_F(AccessLogTest, TellsWhenTheFileIsTooSlow) {
  Pipe pipe(path_);
  AccessLogOptions small = options();
  small.write_bytes = small.buffer_bytes = 64;
  const auto log = create(small);
  EXPECT_TRUE(log->wait_for_room());
  // A pipe takes 64 KiB; what is more waits for its reader.
  const std::string key(1 << 18, 'k');
  log->add(record(key));
  while (log->wait_for_room()) log->add(record(key));
  AccessRecord last = record("last");
  last.outcome = Code::kNotFound;
  std::thread reader([&] { pipe.drain("\"not_found\",\"duration_us\":0}\n"); });
  while (!log->wait_for_room()) {
  }
  log->add(last);
  EXPECT_TRUE(log->flush().ok());
  reader.join();
}

TEST_F(AccessLogTest, GivesTheTimeWhenARequestFinished) {
  {
    const auto log = create(options());
    const AccessRecord early = record("a");
    clock_.advance(std::chrono::seconds(90));
    log->add(early);
  }
  EXPECT_THAT(text(), HasSubstr("{\"time\":\"1970-01-01T01:00:00.000000Z\""));
}

TEST_F(AccessLogTest, NamesProcessAndRank) {
  AccessLogOptions ranked = options();
  ranked.rank = 5;
  const auto log = create(ranked);
  log->add(record("a"));
  log->set_rank(6);
  log->add(record("b"));
  EXPECT_TRUE(log->flush().ok());
  const std::string pid = "\"pid\":" + std::to_string(::getpid());
  EXPECT_THAT(text(), ::testing::AllOf(HasSubstr(pid + ",\"rank\":5"), HasSubstr(",\"rank\":6")));
}

TEST_F(AccessLogTest, MayShareAFile) {
  constexpr int kLines = 2000;
  std::vector<std::thread> threads;
  for (const std::string name : {"x", "y", "z"}) {
    threads.emplace_back([this, name] {
      AccessLogOptions small = options();
      small.write_bytes = 500;
      const auto log = create(small);
      for (int i = 0; i < kLines; ++i) log->add(record(name + std::to_string(i)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto found = objects();
  EXPECT_EQ(found.size(), 3U * kLines);
  EXPECT_EQ(std::set(found.begin(), found.end()).size(), 3U * kLines);
}

TEST_F(AccessLogTest, EndsALineThatSomebodyLeftBroken) {
  std::ofstream(path_) << "{\"time\":\"20";
  create(options())->add(record("a"));
  EXPECT_THAT(text(), HasSubstr("{\"time\":\"20\n{\"time\":\"1970"));
  create(options())->add(record("b"));
  EXPECT_THAT(text(), ::testing::Not(HasSubstr("\n\n")));
}

TEST_F(AccessLogTest, FailsForGoodWhenTheFileDoes) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  const auto log = create(options("/dev/full"));
  EXPECT_TRUE(log->status().ok());
  log->add(record("a"));
  const Status failure = log->flush();
  EXPECT_EQ(failure.code(), Code::kExhausted);
  EXPECT_THAT(std::string(failure.message()), HasSubstr("access log /dev/full"));
  EXPECT_THAT(std::string(failure.message()), HasSubstr("ENOSPC"));
  EXPECT_EQ(log->status().message(), failure.message());
  log->add(record("b"));
  EXPECT_FALSE(log->flush().ok());
  EXPECT_TRUE(log->wait_for_room()) << "nothing is kept any more";
}

TEST_F(AccessLogTest, RefusesWhatCannotBe) {
  EXPECT_EQ(AccessLog::create({}).error().code(), Code::kInvalidArgument);
  const auto missing = AccessLog::create(options(directory_.path() + "/no/log"));
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
  EXPECT_THAT(std::string(missing.error().message()), HasSubstr("/no/log"));
  AccessLogOptions wrong = options();
  wrong.buffer_bytes = wrong.write_bytes - 1;
  EXPECT_EQ(AccessLog::create(wrong).error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace headrace
