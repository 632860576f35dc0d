// Everything is bound and checked by open(), before a thread runs: start() either fails or returns
// a server that answers. The first loop accepts for all of them.
//
// Changes from outside (behaviour, addresses, clock) are stored first and then poked: a loop that
// sleeps until a time it worked out from the old values would otherwise sleep on. stop() may be
// called from several threads, and again by the destructor; stop_mutex_ makes the later calls wait
// and find nothing left to do.
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <optional>
#include <thread>

#include "headrace/sim.h"
#include "sim/server_loop.h"

namespace headrace {
namespace sim {
namespace {

constexpr std::uint32_t kMaxThreads = 64;
constexpr std::uint32_t kMaxAddresses = 64;

/// Host number `index` after an IPv4 host; nullopt when it is none.
std::optional<std::string> next_host(const std::string& host, std::uint32_t index) {
  in_addr address{};
  if (::inet_pton(AF_INET, host.c_str(), &address) != 1) return std::nullopt;
  address.s_addr = htonl(ntohl(address.s_addr) + index);
  char text[INET_ADDRSTRLEN] = {};
  ::inet_ntop(AF_INET, &address, text, sizeof text);
  return text;
}

/// All addresses on one port. A port that the system picked for the first may be taken on another:
/// tried again.
Result<std::vector<Address>> listen_on(const SimOptions& options) {
  constexpr int kAttempts = 20;
  for (int attempt = 1;; ++attempt) {
    std::vector<Address> addresses;
    std::uint16_t port = options.port;
    Status failure;
    for (std::uint32_t i = 0; i < options.address_count; ++i) {
      // 127.0.0.2 and so on need no set-up on Linux: all of 127/8 is this machine.
      const auto host = i == 0 ? options.host : next_host(options.host, i);
      if (!host) {
        return Status(Code::kInvalidArgument,
                      "simulator: several addresses need an IPv4 address as host");
      }
      auto address = Address::listen(*host, port);
      if (!address) {
        failure = std::move(address).error();
        break;
      }
      port = address->port();
      addresses.push_back(*std::move(address));
    }
    if (failure.ok()) return addresses;
    if (options.port != 0 || addresses.empty() || attempt == kAttempts) return failure;
  }
}

Status check_directory(const std::string& directory) {
  struct stat st;
  if (directory.empty() || ::stat(directory.c_str(), &st) != 0 || !S_ISDIR(st.st_mode)) {
    return Status(Code::kInvalidArgument,
                  "simulator: \"" + directory + "\" is not an existing directory");
  }
  return {};
}

class Server final : public SimServer, public Control {
 public:
  explicit Server(const SimOptions& options) : shared_(options) {}
  ~Server() override { stop(); }

  Status open() {
    shared_.control = this;
    HEADRACE_TRY(shared_.open());
    HEADRACE_TRY_ASSIGN(std::vector<Address> addresses, listen_on(shared_.options));
    port_ = addresses.front().port();
    shared_.behaviour.set_address_count(addresses.size());
    addresses_ = std::make_unique<AddressBook>(std::move(addresses));
    shared_.address_names = addresses_->names();
    std::vector<ServerLoop*> loops;
    for (std::uint32_t i = 0; i < shared_.options.thread_count; ++i) {
      shared_.stats.push_back(std::make_unique<ThreadStats>());
      HEADRACE_TRY_ASSIGN(auto loop, ServerLoop::create(shared_, *shared_.stats.back()));
      loops.push_back(loop.get());
      loops_.push_back(std::move(loop));
    }
    loops_.front()->accept_from(*addresses_, loops);
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
    return (shared_.options.tls ? "https://" : "http://") + name + ":" + std::to_string(port_);
  }

  std::vector<std::string> addresses() const override { return shared_.address_names; }
  std::string ca_path() const override {
    return shared_.tls ? shared_.tls->ca_path() : std::string();
  }
  std::string stats_json() const override { return shared_.stats_json(); }

  Status set_behaviour(const SimBehaviour& behaviour) override {
    HEADRACE_TRY(validate(behaviour));
    shared_.behaviour.set(behaviour, shared_.behaviour.get().seed);
    poke();
    return {};
  }
  SimBehaviour behaviour() const override { return shared_.behaviour.get().behaviour; }

  Status set_address(std::size_t index, const SimAddress& address) override {
    if (index >= shared_.options.address_count) {
      return Status(Code::kInvalidArgument, "simulator: no such address");
    }
    if (!(address.delay_ms >= 0 && address.delay_ms <= 8.64e7 && address.slow_factor >= 1e-3 &&
          address.slow_factor <= 1e6 && address.connection_bytes_per_s >= 0)) {
      return Status(Code::kInvalidArgument,
                    "simulator: delay_ms, slow_factor or connection_bytes_per_s out of range");
    }
    shared_.behaviour.set_address(index, address);
    HEADRACE_TRY(addresses_->set_state(index, address.state));
    poke();
    return {};
  }

  void advance(std::chrono::milliseconds by) override {
    shared_.clock.advance(by);
    poke();
  }
  void expire_credentials() override { shared_.expire_credentials(); }
  Status touch(std::string_view bucket, std::string_view key) override {
    if (shared_.storage.touch(bucket, key)) return {};
    return Status(Code::kNotFound,
                  "simulator: no object " + std::string(bucket) + "/" + std::string(key));
  }

  void stop() noexcept override {
    const MutexLock lock(stop_mutex_);
    for (const auto& loop : loops_) loop->request_stop();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    if (addresses_) addresses_->close();
  }

  SharedState& shared() noexcept { return shared_; }

 private:
  void poke() {
    for (const auto& loop : loops_) loop->poke();
  }

  SharedState shared_;
  std::uint16_t port_ = 0;
  std::unique_ptr<AddressBook> addresses_;
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
  if (options.address_count < 1 || options.address_count > sim::kMaxAddresses) {
    return Status(Code::kInvalidArgument, "simulator: address_count must be 1 .. 64");
  }
  if (options.certificate_path.empty() && !options.private_key_path.empty()) {
    return Status(Code::kInvalidArgument,
                  "simulator: private_key_path is of no use without certificate_path");
  }
  if (options.redirect_reads && options.address_count < 2) {
    return Status(Code::kInvalidArgument, "simulator: redirect_reads needs address_count >= 2");
  }
  HEADRACE_TRY_ASSIGN(SimBehaviour behaviour, sim::profile_behaviour(options.profile));
  if (options.behaviour) behaviour = *options.behaviour;
  HEADRACE_TRY(sim::validate(behaviour));
  SimOptions served = options;
  served.tls |= !options.certificate_path.empty();
  auto server = std::make_unique<sim::Server>(served);
  server->shared().behaviour.set(behaviour, options.seed);
  HEADRACE_TRY(server->open());
  server->launch();
  return std::unique_ptr<SimServer>(std::move(server));
}

}  // namespace headrace
