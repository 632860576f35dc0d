#pragma once
/// \file
/// Running a program for its output: credential_process.
///
/// Threads: run() from any thread; it blocks.
#include <chrono>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/environment.h"
#include "headrace/status.h"

namespace headrace::auth {

struct ProcessLimits {
  std::chrono::milliseconds timeout{60'000};  ///< Single sign-on tools may ask the user.
  std::size_t output_bytes = 64 << 10;
};

struct ProcessAnswer {
  int exit_code = 0;   ///< 128 + signal when one ended it.
  std::string output;  ///< Its stdout.
  std::string errors;  ///< Its stderr, as far as output_bytes.
};

class ProcessRunner {
 public:
  virtual ~ProcessRunner() = default;
  /// Runs arguments[0], found by PATH, with stdin empty. No shell. Kills it, and what it started
  /// in its process group, at the stop, after the timeout and when it writes too much. Errors:
  /// kDenied (cannot be started, too much output), kUnavailable (timeout), kCancelled.
  virtual Result<ProcessAnswer> run(const std::vector<std::string>& arguments,
                                    const ProcessLimits& limits, std::stop_token stop) = 0;
};

/// Runs on this machine with the variables of `environment`.
std::shared_ptr<ProcessRunner> local_process_runner(const Environment& environment);

/// Splits a command as a POSIX shell does, without expanding anything: white space, quotes,
/// backslashes (Python's shlex.split). Errors: kInvalidArgument, an open quote or a last backslash;
/// nothing at all.
Result<std::vector<std::string>> split_command(std::string_view command);

}  // namespace headrace::auth
