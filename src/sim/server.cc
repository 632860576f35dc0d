#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "headrace/sim.h"
#include "sim/server_loop.h"

namespace headrace {
namespace sim {
namespace {

constexpr std::uint32_t kMaxThreads = 64;
constexpr int kBacklog = 1024;

Status unavailable(const SimOptions& options, const std::string& reason) {
  return Status(Code::kUnavailable, "simulator: cannot listen on " + options.host + ":" +
                                        std::to_string(options.port) + ": " + reason);
}

struct AddressList {
  addrinfo* first = nullptr;
  ~AddressList() {
    if (first != nullptr) ::freeaddrinfo(first);
  }
};

Result<Fd> listen_on(const SimOptions& options) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  AddressList addresses;
  const int error = ::getaddrinfo(options.host.c_str(), std::to_string(options.port).c_str(),
                                  &hints, &addresses.first);
  if (error != 0) return unavailable(options, ::gai_strerror(error));
  const addrinfo& address = *addresses.first;
  Fd fd(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (!fd || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(fd.get(), address.ai_addr, address.ai_addrlen) != 0 ||
      ::listen(fd.get(), kBacklog) != 0) {
    return unavailable(options, std::strerror(errno));
  }
  return fd;
}

std::uint16_t port_of(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  char service[16] = {};
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, nullptr, 0, service,
                sizeof service, NI_NUMERICSERV);
  return static_cast<std::uint16_t>(std::strtoul(service, nullptr, 10));
}

Status check_directory(const std::string& directory) {
  struct stat st;
  if (directory.empty() || ::stat(directory.c_str(), &st) != 0 || !S_ISDIR(st.st_mode)) {
    return Status(Code::kInvalidArgument,
                  "simulator: \"" + directory + "\" is not an existing directory");
  }
  return {};
}

class Server final : public SimServer {
 public:
  explicit Server(const SimOptions& options) : shared_(options) {}
  ~Server() override { stop(); }

  Status open() {
    HEADRACE_TRY(shared_.open());
    HEADRACE_TRY_ASSIGN(Fd listener, listen_on(shared_.options));
    port_ = port_of(listener.get());
    std::vector<ServerLoop*> loops;
    for (std::uint32_t i = 0; i < shared_.options.thread_count; ++i) {
      shared_.stats.push_back(std::make_unique<ThreadStats>());
      HEADRACE_TRY_ASSIGN(auto loop, ServerLoop::create(shared_, *shared_.stats.back()));
      loops.push_back(loop.get());
      loops_.push_back(std::move(loop));
    }
    loops_.front()->accept_from(std::move(listener), loops);
    return {};
  }

  void launch() {
    // Threads inherit the mask: signals are the program's, and sendfile() to a closed socket would
    // raise SIGPIPE.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    for (const auto& loop : loops_) threads_.emplace_back(&ServerLoop::run, loop.get());
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  std::uint16_t port() const noexcept override { return port_; }

  std::string endpoint() const override {
    const std::string& host = shared_.options.host;
    const bool is_v6 = host.find(':') != std::string::npos;
    // A wildcard is no address to connect to.
    const std::string name = host == "0.0.0.0" ? "127.0.0.1"
                             : host == "::"    ? "[::1]"
                             : is_v6           ? "[" + host + "]"
                                               : host;
    return "http://" + name + ":" + std::to_string(port_);
  }

  std::string stats_json() const override { return shared_.stats_json(); }

  void stop() noexcept override {
    const MutexLock lock(stop_mutex_);
    for (const auto& loop : loops_) loop->request_stop();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    loops_.clear();
  }

  SharedState& shared() noexcept { return shared_; }

 private:
  SharedState shared_;
  std::uint16_t port_ = 0;
  std::vector<std::unique_ptr<ServerLoop>> loops_;
  std::vector<std::thread> threads_;
  Mutex stop_mutex_;
};

}  // namespace
}  // namespace sim

Result<std::unique_ptr<SimServer>> SimServer::start(const SimOptions& options) {
  HEADRACE_TRY(sim::check_directory(options.directory));
  if (options.thread_count < 1 || options.thread_count > sim::kMaxThreads) {
    return Status(Code::kInvalidArgument, "simulator: thread_count must be 1 .. 64");
  }
  HEADRACE_TRY_ASSIGN(SimBehaviour behaviour, sim::profile_behaviour(options.profile));
  if (options.behaviour) behaviour = *options.behaviour;
  HEADRACE_TRY(sim::validate(behaviour));
  auto server = std::make_unique<sim::Server>(options);
  server->shared().behaviour.set(behaviour, options.seed);
  HEADRACE_TRY(server->open());
  server->launch();
  return std::unique_ptr<SimServer>(std::move(server));
}

}  // namespace headrace
