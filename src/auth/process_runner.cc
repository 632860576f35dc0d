// credential_process without a shell: words are split as Python's shlex does it, and the program
// is started by posix_spawn(), since fork() in a process of many threads may not do much else.
//
// - The program has a process group of its own and is killed with it, whatever the way out of
//   run(): Child does that when it goes.
// - Time and output are bounded; stdin is /dev/null, so that nothing waits for an answer.
// - Pipes are close-on-exec, and our ends for writing are closed at once: else the end of the
//   output would never come.
#include "auth/process_runner.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include "base/errno_status.h"
#include "base/event_fd.h"
#include "base/fd.h"
#include "headrace/clock.h"

namespace headrace::auth {
namespace {

using std::chrono::milliseconds;

/// Path of `program` by PATH; itself when it has a slash; empty when there is none.
std::string find_program(const std::string& program, const std::string& path) {
  if (program.find('/') != std::string::npos) return program;
  for (std::string_view rest = path; !rest.empty();) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    const std::string candidate = std::string(rest.substr(0, end)) + "/" + program;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return {};
}

struct Pipe {
  Fd read, write;
};
Result<Pipe> make_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return errno_status(errno, "pipe");
  return Pipe{Fd(fds[0]), Fd(fds[1])};
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

/// A started program; killed with its group and reaped when destroyed.
class Child {
 public:
  Child() = default;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ > 0) {
      ::kill(-pid_, SIGKILL);
      while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
  }

  /// In a process group of its own, with stdout and stderr into the pipes.
  Status start(const std::string& program, std::vector<std::string> arguments,
               std::vector<std::string> variables, const Fd& out, const Fd& err) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out.get(), 1);
    posix_spawn_file_actions_adddup2(&actions, err.get(), 2);
    sigset_t none, pipe_signal;
    sigemptyset(&none);
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &pipe_signal);
    posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    const int error = ::posix_spawn(&pid_, program.c_str(), &actions, &attributes,
                                    pointers(arguments).data(), pointers(variables).data());
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (error == 0) return {};
    pid_ = 0;
    return errno_status(error, "cannot be started");
  }

  /// Its exit code, or nullopt while it runs.
  std::optional<int> poll_end() {
    int state = 0;
    const pid_t ended = ::waitpid(pid_, &state, WNOHANG);
    if (ended == 0 || (ended < 0 && errno == EINTR)) return std::nullopt;
    pid_ = 0;
    // ECHILD: the program around us ignores SIGCHLD, or reaps all children itself.
    if (ended < 0) return 0;
    return WIFSIGNALED(state) ? 128 + WTERMSIG(state) : WEXITSTATUS(state);
  }

 private:
  pid_t pid_ = 0;
};

/// Appends what can be read now. False at the end of the stream.
bool read_some(const Fd& fd, std::string& out) {
  std::array<char, 4096> block;
  const ssize_t count = ::read(fd.get(), block.data(), block.size());
  if (count > 0) out.append(block.data(), static_cast<std::size_t>(count));
  return count > 0 || (count < 0 && (errno == EINTR || errno == EAGAIN));
}

class LocalRunner final : public ProcessRunner {
 public:
  explicit LocalRunner(const Environment& environment) : path_(environment.get("PATH")) {
    for (const auto& [name, value] : environment.variables)
      variables_.push_back(name + "=" + value);
  }

  Result<ProcessAnswer> run(const std::vector<std::string>& arguments, const ProcessLimits& limits,
                            std::stop_token stop) override {
    const std::string program = find_program(arguments.front(), path_);
    if (program.empty())
      return Status(Code::kDenied, "there is no program \"" + arguments.front() + "\" in PATH");
    HEADRACE_TRY_ASSIGN(Pipe out, make_pipe());
    HEADRACE_TRY_ASSIGN(Pipe err, make_pipe());
    const EventFd woken;
    if (!woken) return errno_status(errno, "eventfd");
    Child child;
    if (Status s = child.start(program, arguments, variables_, out.write, err.write); !s.ok())
      return Status(Code::kDenied, "\"" + program + "\" " + std::string(s.message()));
    out.write = Fd();
    err.write = Fd();
    const std::stop_callback wake(stop, [&woken] { woken.signal(); });
    ProcessAnswer answer;
    const TimePoint until = system_clock().now() + limits.timeout;
    HEADRACE_TRY(read_all(out.read, err.read, woken, {limits, until}, answer));
    // It has closed its outputs and so is about to end, or it is a daemon by mistake.
    for (pollfd fd{woken.get(), POLLIN, 0};;) {
      if (const auto code = child.poll_end()) {
        answer.exit_code = *code;
        return answer;
      }
      if (::poll(&fd, 1, 5) > 0) return Status(Code::kCancelled, "stopped");
      if (system_clock().now() >= until) return too_late(limits);
    }
  }

 private:
  struct Bounds {
    const ProcessLimits& limits;
    TimePoint until;
  };

  static Status too_late(const ProcessLimits& limits) {
    return Status(Code::kUnavailable,
                  "did not end within " + std::to_string(limits.timeout.count() / 1000) + " s");
  }

  /// Until both ends are closed.
  static Status read_all(const Fd& out, const Fd& err, const EventFd& woken, const Bounds& bounds,
                         ProcessAnswer& answer) {
    const ProcessLimits& limits = bounds.limits;
    std::array<pollfd, 3> fds{
        {{woken.get(), POLLIN, 0}, {out.get(), POLLIN, 0}, {err.get(), POLLIN, 0}}};
    while (fds[1].fd >= 0 || fds[2].fd >= 0) {
      const auto left = std::chrono::ceil<milliseconds>(bounds.until - system_clock().now());
      if (left.count() <= 0) return too_late(limits);
      if (::poll(fds.data(), fds.size(), static_cast<int>(left.count())) < 0 && errno != EINTR)
        return errno_status(errno, "poll");
      if (fds[0].revents != 0) return Status(Code::kCancelled, "stopped");
      if (fds[1].revents != 0 && !read_some(out, answer.output)) fds[1].fd = -1;
      if (fds[2].revents != 0 && !read_some(err, answer.errors)) fds[2].fd = -1;
      if (answer.errors.size() > limits.output_bytes) answer.errors.resize(limits.output_bytes);
      if (answer.output.size() > limits.output_bytes) {
        return Status(Code::kDenied, "writes more than " + std::to_string(limits.output_bytes) +
                                         " bytes to stdout");
      }
    }
    return {};
  }

  const std::string path_;
  std::vector<std::string> variables_;
};

}  // namespace

std::shared_ptr<ProcessRunner> local_process_runner(const Environment& environment) {
  return std::make_shared<LocalRunner>(environment);
}

Result<std::vector<std::string>> split_command(std::string_view command) {
  std::vector<std::string> words;
  bool is_in_word = false;
  char quote = 0;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    const bool is_space = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    if (quote == 0 && is_space) {
      is_in_word = false;
      continue;
    }
    if (!is_in_word) words.emplace_back();
    is_in_word = true;
    if (c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '"' || c == '\'')) {
      quote = c;
    } else if (c == '\\' && quote != '\'') {
      if (++i == command.size())
        return Status(Code::kInvalidArgument, "the command ends with a backslash");
      // Between double quotes a backslash is itself, except before the quote and a backslash.
      if (quote == '"' && command[i] != '"' && command[i] != '\\') words.back().push_back('\\');
      words.back().push_back(command[i]);
    } else {
      words.back().push_back(c);
    }
  }
  if (quote != 0) return Status(Code::kInvalidArgument, "the command has an open quote");
  if (words.empty()) return Status(Code::kInvalidArgument, "the command is empty");
  return words;
}

}  // namespace headrace::auth
