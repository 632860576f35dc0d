#pragma once
/// \file
/// FakeMemcached: a server for tests that knows the meta commands of memcached_connection.h, and
/// can misbehave.
///
/// Threads: any; each connection has one of the server's own.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/fd.h"
#include "base/mutex.h"

namespace headrace::tier {

class FakeMemcached {
 public:
  enum class Manner {
    kGood,
    kWrongBytes,   ///< One byte of each value is another.
    kWrongHeader,  ///< One byte of each value's beginning is.
    kLongerValue,  ///< Values have a byte more than they should.
    kCutOff,       ///< Half a value, then the end.
    kNoLineEnd,    ///< Behind a value comes something else.
    kSilent,       ///< No answers.
    kCloses,       ///< Hangs up after the first command.
    kOutOfOrder,   ///< Answers carry the number of another command.
    kGarbage,      ///< No protocol at all.
    kEndlessLine,  ///< A line that does not end.
    kServerError,  ///< Says that it cannot.
    kUnasked,      ///< Two answers to each command.
    kHugeSize,     ///< Announces more than can be.
  };

  FakeMemcached() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    HEADRACE_CHECK(::bind(listener_.get(), any, size) == 0);
    HEADRACE_CHECK(::listen(listener_.get(), 64) == 0);
    HEADRACE_CHECK(::getsockname(listener_.get(), any, &size) == 0);
    name_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~FakeMemcached() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    acceptor_.join();
    hang_up();
    for (std::thread& thread : servers_) thread.join();
  }
  FakeMemcached(const FakeMemcached&) = delete;
  FakeMemcached& operator=(const FakeMemcached&) = delete;

  /// "127.0.0.1:<port>".
  const std::string& name() const noexcept { return name_; }
  void behave(Manner manner) noexcept { manner_.store(manner); }
  /// Closes all connections.
  void hang_up() {
    MutexLock lock(mutex_);
    for (const auto& socket : sockets_) ::shutdown(socket->get(), SHUT_RDWR);
  }
  std::size_t item_count() {
    MutexLock lock(mutex_);
    return items_.size();
  }
  std::size_t largest_item_bytes() {
    MutexLock lock(mutex_);
    std::size_t most = 0;
    for (const auto& [key, value] : items_) most = std::max(most, value.size());
    return most;
  }
  /// Items that were claimed and have not come.
  std::size_t claim_count() {
    MutexLock lock(mutex_);
    return claims_.size();
  }
  /// A claim ends when it has been looked at so often. Default: never.
  void claims_last(int looks) noexcept { claim_looks_.store(looks); }
  /// Gets so far.
  std::uint64_t get_count() const noexcept { return gets_.load(); }
  std::uint64_t connection_count() {
    MutexLock lock(mutex_);
    return sockets_.size();
  }
  /// Gives each key the value of the next one.
  void swap_values() {
    MutexLock lock(mutex_);
    if (items_.empty()) return;
    std::string first = items_.begin()->second;
    for (auto it = items_.begin(); it != items_.end(); ++it) {
      const auto next = std::next(it);
      it->second = next != items_.end() ? next->second : first;
    }
  }

 private:
  void accept_all() {
    while (true) {
      const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      MutexLock lock(mutex_);
      sockets_.push_back(std::make_unique<Fd>(fd));
      servers_.emplace_back([this, fd] { serve(fd); });
    }
  }

  static bool send_all(int fd, const std::string& bytes) {
    std::size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t n = ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += static_cast<std::size_t>(n);
    }
    return true;
  }

  void serve(int fd) {
    std::string in;
    const auto fill = [&](std::size_t bytes) {
      char buffer[65536];
      while (in.size() < bytes) {
        const ssize_t n = ::recv(fd, buffer, sizeof(buffer), 0);
        if (n <= 0) return false;
        in.append(buffer, static_cast<std::size_t>(n));
      }
      return true;
    };
    while (true) {
      while (in.find("\r\n") == std::string::npos) {
        if (!fill(in.size() + 1)) return;
      }
      const std::size_t end = in.find("\r\n");
      std::istringstream line(in.substr(0, end));
      in.erase(0, end + 2);
      std::string word, key, number;
      std::size_t size = 0;
      line >> word >> key;
      std::optional<std::string> stored;
      if (word == "ms") {
        line >> size;
        if (!fill(size + 2)) return;
        HEADRACE_CHECK(in.substr(size, 2) == "\r\n");
        stored = in.substr(0, size);
        in.erase(0, size + 2);
      }
      bool claims = false;
      for (std::string flag; line >> flag;) {
        if (flag.front() == 'O') number = flag;
        claims = claims || flag.front() == 'N';
      }
      const bool goes_on = word == "md" ? release(fd, key, number)
                                        : answer(fd, key, number, claims, std::move(stored));
      if (!goes_on) {
        ::shutdown(fd, SHUT_RDWR);
        return;
      }
    }
  }

  bool release(int fd, const std::string& key, const std::string& number) {
    bool was_there = false;
    {
      MutexLock lock(mutex_);
      was_there = claims_.erase(key) + items_.erase(key) > 0;
    }
    return send_all(fd, (was_there ? "HD " : "NF ") + number + "\r\n");
  }

  bool answer(int fd, const std::string& key, std::string number, bool claims,
              std::optional<std::string> stored) {
    const Manner manner = manner_.load();
    if (manner == Manner::kOutOfOrder) number = "O12345";
    const int times = manner == Manner::kUnasked ? 2 : 1;
    switch (manner) {
      case Manner::kSilent:
        return true;
      case Manner::kCloses:
        return false;
      case Manner::kGarbage:
        return send_all(fd, "HTTP/1.1 400 Bad Request\r\n\r\n");
      case Manner::kEndlessLine:
        return send_all(fd, std::string(100'000, 'x'));
      case Manner::kServerError:
        return send_all(fd, "SERVER_ERROR object too large for cache\r\n");
      case Manner::kHugeSize:
        return send_all(fd, "VA 99999999999 " + number + "\r\n");
      default:
        break;
    }
    std::string out;
    const bool is_put = stored.has_value();
    if (is_put) {
      MutexLock lock(mutex_);
      items_[key] = *std::move(stored);
      claims_.erase(key);
      out = "HD " + number + "\r\n";
    } else {
      gets_.fetch_add(1);
      out = value_of(key, number, claims, manner);
    }
    for (int i = 0; i < times; ++i) {
      if (!send_all(fd, out)) return false;
    }
    return is_put || manner != Manner::kCutOff;
  }

  std::string value_of(const std::string& key, const std::string& number, bool claims,
                       Manner manner) {
    MutexLock lock(mutex_);
    const auto found = items_.find(key);
    if (found == items_.end()) {
      if (const auto claim = claims_.find(key); claim != claims_.end()) {
        if (++claim->second >= claim_looks_.load()) claims_.erase(claim);
        return "VA 0 " + number + " Z\r\n\r\n";
      }
      if (!claims) return "EN\r\n";
      claims_[key] = 0;
      return "VA 0 " + number + " W\r\n\r\n";
    }
    std::string value = found->second;
    if (manner == Manner::kWrongBytes) value.back() = static_cast<char>(value.back() + 1);
    if (manner == Manner::kWrongHeader) value[20] = static_cast<char>(value[20] + 1);
    if (manner == Manner::kLongerValue) value += 'x';
    const std::string head = "VA " + std::to_string(value.size()) + " " + number + "\r\n";
    if (manner == Manner::kCutOff) return head + value.substr(0, value.size() / 2);
    return head + value + (manner == Manner::kNoLineEnd ? "xx" : "\r\n");
  }

  const Fd listener_;
  std::string name_;
  std::atomic<Manner> manner_{Manner::kGood};
  std::atomic<std::uint64_t> gets_{0};
  std::atomic<int> claim_looks_{INT_MAX};
  Mutex mutex_;
  std::map<std::string, std::string> items_ HEADRACE_GUARDED_BY(mutex_);
  std::map<std::string, int> claims_ HEADRACE_GUARDED_BY(mutex_);  // How often looked at.
  std::vector<std::unique_ptr<Fd>> sockets_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<std::thread> servers_;  // Of acceptor_, until that has ended.
  std::thread acceptor_;
};

}  // namespace headrace::tier
