#pragma once
/// \file
/// Fakes of files, web services and programs, for tests of credentials.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "auth/aws_fetch.h"
#include "base/manual_clock.h"

namespace headrace::auth {

/// Answers by "METHOD url" and keeps the requests. Not thread-safe: for fetches in the test's own
/// thread.
class FakeWeb final : public WebClient {
 public:
  Result<WebAnswer> fetch(const WebRequest& request, std::stop_token stop) override {
    if (stop.stop_requested()) return Status(Code::kCancelled, "stopped");
    requests.push_back(request);
    const auto it = answers.find(request.method + " " + request.url);
    if (it == answers.end())
      return Status(Code::kUnavailable, "connect to " + request.url + ": timed out");
    return it->second;
  }

  std::map<std::string, WebAnswer> answers;
  std::vector<WebRequest> requests;
};

inline std::string header_of(const WebRequest& request, std::string_view name) {
  for (const auto& [key, value] : request.headers) {
    if (key == name) return value;
  }
  return {};
}

class FakeProcesses final : public ProcessRunner {
 public:
  Result<ProcessAnswer> run(const std::vector<std::string>& arguments, const ProcessLimits&,
                            std::stop_token) override {
    started.push_back(arguments);
    return answer;
  }

  ProcessAnswer answer;
  std::vector<std::vector<std::string>> started;
};

/// An environment, files and services; time stands at 2026-11-21T12:00:00Z.
class FakeWorld {
 public:
  static constexpr std::int64_t kNow = 1'795'262'400;

  FileReader reader() {
    return [this](const std::string& path) -> std::optional<std::string> {
      const auto it = files.find(path);
      if (it == files.end()) return std::nullopt;
      return it->second;
    };
  }
  AwsWorld world() {
    return {web, processes, reader(),
            [this](const std::string& path, std::string_view text) {
              files[path] = text;
              return Status();
            },
            &clock};
  }
  Result<AwsSettings> resolve() { return resolve_aws_settings(environment, reader()); }
  /// One round of fetching by what resolve() gives.
  Result<Credentials> fetch() {
    HEADRACE_TRY_ASSIGN(const AwsSettings settings, resolve());
    return fetch_credentials(settings.plan, settings.services, world(), {});
  }

  Environment environment{{{"HOME", "/home/u"}}};
  std::map<std::string, std::string> files;
  std::shared_ptr<FakeWeb> web = std::make_shared<FakeWeb>();
  std::shared_ptr<FakeProcesses> processes = std::make_shared<FakeProcesses>();
  ManualClock clock{WallTime(std::chrono::seconds(kNow))};
};

}  // namespace headrace::auth
