#include "auth/process_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace headrace::auth {
namespace {

using testing::ElementsAre;

class LocalProcess : public testing::Test {
 protected:
  Result<ProcessAnswer> sh(const std::string& script, ProcessLimits limits = {},
                           std::stop_token stop = {}) {
    return runner_->run({"sh", "-c", script}, limits, std::move(stop));
  }
  Environment environment_{{{"PATH", "/usr/bin:/bin"}, {"COLOUR", "blue"}}};
  std::shared_ptr<ProcessRunner> runner_ = local_process_runner(environment_);
};

TEST_F(LocalProcess, GivesOutputErrorsAndExitCode) {
  auto answer = sh("echo out; echo err >&2; exit 3");
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->output, "out\n");
  EXPECT_EQ(answer->errors, "err\n");
  EXPECT_EQ(answer->exit_code, 3);
}

TEST_F(LocalProcess, HasTheVariablesOfTheEnvironmentAndNoInput) {
  auto answer = sh("cat; echo $COLOUR$HOME");
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->output, "blue\n");
}

TEST_F(LocalProcess, NoShellReadsTheArguments) {
  auto answer = runner_->run({"echo", "$COLOUR;", "`id`"}, {}, {});
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->output, "$COLOUR; `id`\n");
}

TEST_F(LocalProcess, ASignalIsAnExitCode) { EXPECT_EQ(sh("kill -9 $$")->exit_code, 128 + 9); }

TEST_F(LocalProcess, AMissingProgramIsDenied) {
  EXPECT_EQ(runner_->run({"no-such-tool"}, {}, {}).error().code(), Code::kDenied);
  EXPECT_EQ(runner_->run({"/no/such/tool"}, {}, {}).error().code(), Code::kDenied);
}

TEST_F(LocalProcess, TooMuchOutputIsDenied) {
  auto answer = sh("while :; do echo 0123456789; done", {.output_bytes = 1000});
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code(), Code::kDenied);
}

TEST_F(LocalProcess, ATimeoutKillsTheGroup) {
  auto answer = sh("sleep 1000 & wait", {.timeout = std::chrono::milliseconds(30)});
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code(), Code::kUnavailable);
}

TEST_F(LocalProcess, OneThatClosesItsOutputsAndStaysIsKilled) {
  auto answer = sh("exec >&- 2>&-; sleep 1000", {.timeout = std::chrono::milliseconds(30)});
  EXPECT_EQ(answer.error().code(), Code::kUnavailable);
}

TEST_F(LocalProcess, AStopEndsItAtOnce) {
  std::stop_source stop;
  std::jthread stopper([&] { stop.request_stop(); });
  auto answer = sh("sleep 1000", {}, stop.get_token());
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code(), Code::kCancelled);
}

TEST(Commands, AreSplitAsAShellDoes) {
  EXPECT_THAT(*split_command("  a\tb  "), ElementsAre("a", "b"));
  EXPECT_THAT(*split_command(R"("a b" 'c "d"' e\ f)"), ElementsAre("a b", "c \"d\"", "e f"));
  EXPECT_THAT(*split_command(R"(a"b"'c'"")"), ElementsAre("abc"));
  EXPECT_THAT(*split_command(R"(x "" '')"), ElementsAre("x", "", ""));
  EXPECT_THAT(*split_command(R"("a\"b\\c\d")"), ElementsAre(R"(a"b\c\d)"));
  EXPECT_THAT(*split_command(R"('a\b')"), ElementsAre(R"(a\b)"));
  EXPECT_THAT(*split_command("$HOME;x|y"), ElementsAre("$HOME;x|y"));
  for (const char* text : {"", "  ", "\"open", "'open", "end\\"})
    EXPECT_EQ(split_command(text).error().code(), Code::kInvalidArgument) << text;
}

}  // namespace
}  // namespace headrace::auth
