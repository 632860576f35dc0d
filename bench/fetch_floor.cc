/// \file
/// The floor under a range-GET client: one thread, N keep-alive connections, raw sockets by
/// io_uring or epoll, bodies straight into warm buffers, no error handling, no signatures. What a
/// client costs above it is the client's own. Prints one JSON line; CPU is user + system time of
/// this process.
///
/// Usage: fetch_floor --poller uring|epoll --part BYTES --in-flight N --total-mib M [--pattern
/// sequential|random]
///                    [--host 127.0.0.1] [--port 9100] [--path /bkt/obj%d.bin] [--objects 4]
///                    [--object-mib 256]
#include <arpa/inet.h>
#include <fcntl.h>
#include <liburing.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "bench_common.h"

namespace {

using headrace::bench::FetchPattern;
using headrace::bench::FetchReport;

struct Options {
  std::string poller = "uring";
  std::string host = "127.0.0.1";
  std::uint16_t port = 9100;
  std::string path = "/bkt/obj%d.bin";
  std::size_t in_flight = 16;
  std::uint64_t total_bytes = std::uint64_t{4096} << 20;
  FetchPattern pattern;
};

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::exit(1);
}

/// One connection and the part that it is fetching.
struct Part {
  int fd = -1;
  char* buffer = nullptr;
  std::size_t got_bytes = 0;
  bool has_head = false;
  std::string head;
  char head_piece[4096];
};

class Client {
 public:
  explicit Client(Options options) : options_(std::move(options)), parts_(options_.in_flight) {
    for (Part& part : parts_) {
      part.buffer = static_cast<char*>(headrace::bench::warm_buffer(options_.pattern.part_bytes));
      part.fd = connect_socket();
    }
  }

  FetchReport run() {
    FetchReport report("floor-" + options_.poller, options_.pattern.part_bytes, options_.in_flight);
    report.start();
    options_.poller == "epoll" ? run_epoll() : run_uring();
    report.stop(done_bytes_);
    return report;
  }

 private:
  int connect_socket() const {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(options_.port);
    address.sin_addr.s_addr = ::inet_addr(options_.host.c_str());
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) die("connect");
    const int one = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
  }

  std::size_t part_bytes() const { return options_.pattern.part_bytes; }

  void request(Part& part) {
    const auto [object, offset_bytes] = options_.pattern.next();
    std::string path = options_.path;
    if (const auto at = path.find("%d"); at != std::string::npos)
      path.replace(at, 2, std::to_string(object));
    char text[1024];
    const int n = std::snprintf(
        text, sizeof(text), "GET %s HTTP/1.1\r\nHost: %s:%u\r\nRange: bytes=%llu-%llu\r\n\r\n",
        path.c_str(), options_.host.c_str(), static_cast<unsigned>(options_.port),
        static_cast<unsigned long long>(offset_bytes),
        static_cast<unsigned long long>(offset_bytes + part_bytes() - 1));
    if (::write(part.fd, text, static_cast<std::size_t>(n)) != n) die("write");
    part.has_head = false;
    part.head.clear();
    part.got_bytes = 0;
    issued_bytes_ += part_bytes();
  }

  /// Returns true when the part is complete.
  bool on_bytes(Part& part, std::size_t size_bytes) {
    if (part.has_head) {
      part.got_bytes += size_bytes;
    } else {
      part.head.append(part.head_piece, size_bytes);
      const auto end = part.head.find("\r\n\r\n");
      if (end == std::string::npos) return false;
      if (part.head.compare(0, 12, "HTTP/1.1 206") != 0) die("the answer is not 206");
      part.has_head = true;
      part.got_bytes = part.head.size() - end - 4;
      std::memcpy(part.buffer, part.head.data() + end + 4, part.got_bytes);
    }
    if (part.got_bytes < part_bytes()) return false;
    done_bytes_ += part_bytes();
    return true;
  }

  void arm(io_uring& ring, Part& part) {
    io_uring_sqe* entry = io_uring_get_sqe(&ring);
    if (part.has_head) {
      io_uring_prep_recv(entry, part.fd, part.buffer + part.got_bytes,
                         part_bytes() - part.got_bytes, MSG_WAITALL);
    } else {
      io_uring_prep_recv(entry, part.fd, part.head_piece, 1024, 0);
    }
    io_uring_sqe_set_data(entry, &part);
  }

  void run_uring() {
    io_uring ring;
    io_uring_params params{};
    params.flags =
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_DEFER_TASKRUN;
    if (io_uring_queue_init_params(1024, &ring, &params) != 0) die("io_uring");
    for (Part& part : parts_) {
      request(part);
      arm(ring, part);
    }
    while (done_bytes_ < options_.total_bytes) {
      io_uring_submit_and_wait(&ring, 1);
      io_uring_cqe* entry = nullptr;
      unsigned head = 0;
      unsigned count = 0;
      io_uring_for_each_cqe(&ring, head, entry) {
        ++count;
        Part& part = *static_cast<Part*>(io_uring_cqe_get_data(entry));
        if (entry->res <= 0) die("receive");
        if (on_bytes(part, static_cast<std::size_t>(entry->res))) {
          if (issued_bytes_ >= options_.total_bytes) continue;
          request(part);
        }
        arm(ring, part);
      }
      io_uring_cq_advance(&ring, count);
    }
    io_uring_queue_exit(&ring);
  }

  /// Receives until the socket is empty.
  void drain(Part& part) {
    for (;;) {
      char* target = part.has_head ? part.buffer + part.got_bytes : part.head_piece;
      const std::size_t room_bytes =
          part.has_head ? part_bytes() - part.got_bytes : sizeof(part.head_piece);
      const ssize_t n = ::recv(part.fd, target, room_bytes, 0);
      if (n <= 0) return;
      if (on_bytes(part, static_cast<std::size_t>(n))) {
        if (issued_bytes_ >= options_.total_bytes) return;
        request(part);
      }
    }
  }

  void run_epoll() {
    const int epoll_fd = ::epoll_create1(0);
    for (Part& part : parts_) {
      ::fcntl(part.fd, F_SETFL, O_NONBLOCK);
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.ptr = &part;
      ::epoll_ctl(epoll_fd, EPOLL_CTL_ADD, part.fd, &event);
      request(part);
    }
    epoll_event events[64];
    while (done_bytes_ < options_.total_bytes) {
      const int count = ::epoll_wait(epoll_fd, events, 64, -1);
      for (int i = 0; i < count; ++i) drain(*static_cast<Part*>(events[i].data.ptr));
    }
    ::close(epoll_fd);
  }

  Options options_;
  std::vector<Part> parts_;
  std::uint64_t issued_bytes_ = 0;
  std::uint64_t done_bytes_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  headrace::bench::Arguments arguments(argc, argv);
  arguments.take("--poller", options.poller);
  arguments.take("--host", options.host);
  arguments.take("--port", options.port);
  arguments.take("--path", options.path);
  arguments.take("--in-flight", options.in_flight);
  std::uint64_t total_mib = 4096;
  arguments.take("--total-mib", total_mib);
  options.total_bytes = total_mib << 20;
  options.pattern.take(arguments);
  if (!arguments.all_taken()) return 2;
  Client(options).run().print();
  return 0;
}
