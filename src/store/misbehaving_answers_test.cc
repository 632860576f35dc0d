// Answers that no sound server gives, to each kind of request of each driver: once, when the run
// has to go on with the right bytes, and always, when there has to be an error before the deadline.
// The quick set has every kind once, and some with each request; all of them, and those that take
// their time, come with HEADRACE_LONG_TESTS=1.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headrace/environment.h"
#include "headrace/memory.h"
#include "headrace/store.h"
#include "store/transfer/scripted_server.h"

namespace headrace {
namespace {

using transfer::Peer;
using transfer::ScriptedServer;
using transfer::SeenRequest;
using namespace std::chrono_literals;

constexpr std::uint64_t kObjectBytes = 100'000;
constexpr std::uint64_t kOffset = 20'000;
constexpr std::uint64_t kLength = 3'000;

enum : unsigned { kForGet = 1, kForHead = 2, kForList = 4, kForPut = 8 };
constexpr unsigned kForBodies = kForGet | kForList;
constexpr unsigned kForAll = kForGet | kForHead | kForList | kForPut;

/// A right answer, to be spoilt.
struct Answer {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> fields;  ///< Without Content-Length.
  std::string body;
  std::string length;  ///< As sent; empty: no such field.
  bool is_head = false;

  std::string& field(const std::string& name) {
    for (auto& [known, value] : fields) {
      if (known == name) return value;
    }
    return fields.emplace_back(name, "").second;
  }
  void drop(const std::string& name) {
    std::erase_if(fields, [&](const auto& field) { return field.first == name; });
  }
  std::string head(const std::string& end = "\r\n") const {
    std::string text = "HTTP/1.1 " + std::to_string(status) + " Reason" + end;
    for (const auto& [name, value] : fields) text += name + ": " + value + end;
    if (!length.empty()) text += "Content-Length: " + length + end;
    return text + end;
  }
  std::string text() const { return head() + (is_head ? "" : body); }
};

struct Misbehaviour {
  const char* name;
  unsigned ops;
  std::function<void(Answer&, const SeenRequest&, Peer&)> answer;
  bool takes_its_time = false;
};

/// Sends the answer after `spoil` has changed it, and closes if it says so.
template <class Spoil>
auto spoilt(Spoil spoil, bool closes = true) {
  return [spoil, closes](Answer& answer, const SeenRequest&, Peer& peer) {
    spoil(answer);
    peer.send(answer.text());
    if (closes) peer.close();
  };
}
auto raw(std::string bytes) {
  return [bytes](Answer&, const SeenRequest&, Peer& peer) {
    peer.send(bytes);
    peer.close();
  };
}
auto redirect(int status, const std::string& to) {
  return spoilt(
      [status, to](Answer& answer) {
        answer = Answer{status, {}, "", "0", answer.is_head};
        if (!to.empty()) answer.field("Location") = to;
      },
      false);
}
auto chunked(std::function<std::string(const std::string&)> chunks) {
  return spoilt([chunks](Answer& answer) {
    answer.length.clear();
    answer.field("Transfer-Encoding") = "chunked";
    answer.body = chunks(answer.body);
  });
}
auto refused(int status, const std::string& body) {
  return spoilt(
      [status, body](Answer& answer) {
        answer = Answer{status, {}, body, std::to_string(body.size()), answer.is_head};
      },
      false);
}
std::string one_chunk(const std::string& body) {
  char size[32];
  std::snprintf(size, sizeof(size), "%zx\r\n", body.size());
  return size + body + "\r\n";
}
std::string range_text(std::uint64_t first, std::uint64_t last, std::uint64_t total) {
  return "bytes " + std::to_string(first) + "-" + std::to_string(last) + "/" +
         std::to_string(total);
}

std::vector<Misbehaviour> misbehaviours() {
  const auto less = [](Answer& a) { a.length = std::to_string(a.body.size() / 2); };
  const std::string kGarbage = "\x16\x03\x01\x02\xff\xfe garbage \r\n\r\n more of it";
  return {
      // heads
      {"garbage", kForAll, raw(kGarbage)},
      {"a body without a head", kForAll, raw(std::string(5000, 'x'))},
      {"a greeting by mail", kForAll, raw("220 smtp.example.com ESMTP\r\n\r\n")},
      {"HTTP/2", kForAll, raw("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")},
      {"a status of six digits", kForAll, raw("HTTP/1.1 999999 X\r\nContent-Length: 0\r\n\r\n")},
      {"a head that is cut off", kForAll, raw("HTTP/1.1 200 OK\r\nContent-Le")},
      {"lines that end in LF", kForAll,
       [](Answer& a, const SeenRequest&, Peer& peer) {
         peer.send(a.head("\n") + a.body);
         peer.close();
       }},
      {"NUL in a field", kForAll, spoilt([](Answer& a) { a.field("X") = std::string("a\0b", 3); })},
      {"a folded field", kForAll, spoilt([](Answer& a) { a.field("X") = "a\r\n b"; })},
      {"a field of 20 KiB", kForAll,
       spoilt([](Answer& a) { a.field("X") = std::string(20'000, 'a'); })},
      {"two thousand fields", kForAll, spoilt([](Answer& a) {
         for (int i = 0; i < 2000; ++i) a.fields.emplace_back("X-" + std::to_string(i), "a");
       })},
      {"another protocol", kForAll, raw("HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\nxxxxxxxx")},
      {"ten thousand interim answers", kForAll,
       [](Answer& a, const SeenRequest&, Peer& peer) {
         std::string many;
         for (int i = 0; i < 10'000; ++i) many += "HTTP/1.1 100 Continue\r\n\r\n";
         peer.send(many + a.text());
       }},
      // lengths
      {"too short a length", kForBodies, spoilt(less)},
      {"too short a length, and on", kForBodies, spoilt(less, false)},
      {"too long a length", kForBodies,
       spoilt([](Answer& a) { a.length = std::to_string(a.body.size() + 7); })},
      {"a length beyond 2^64", kForAll,
       spoilt([](Answer& a) { a.length = "184467440737095516160"; })},
      {"a negative length", kForAll, spoilt([](Answer& a) { a.length = "-5"; })},
      {"a length in letters", kForAll, spoilt([](Answer& a) { a.length = "12abc"; })},
      {"two lengths", kForAll, spoilt([](Answer& a) { a.field("Content-Length") = "99"; })},
      {"no length", kForAll, spoilt([](Answer& a) { a.length.clear(); })},
      {"no length, half a body", kForBodies, spoilt([](Answer& a) {
         a.length.clear();
         a.body.resize(a.body.size() / 2);
       })},
      {"half a body", kForBodies, spoilt([](Answer& a) { a.body.resize(a.body.size() / 2); })},
      {"half a body, rightly announced", kForBodies, spoilt([](Answer& a) {
         a.body.resize(a.body.size() / 2);
         a.length = std::to_string(a.body.size());
       })},
      {"no body", kForBodies, spoilt([](Answer& a) { a.body.clear(); })},
      {"a reset in the body", kForBodies,
       [](Answer& a, const SeenRequest&, Peer& peer) {
         peer.send(a.text().substr(0, a.text().size() - 100));
         peer.reset();
       }},
      {"bytes behind the body", kForAll, spoilt([](Answer& a) { a.body += "GARBAGE"; }, false)},
      {"two answers", kForGet | kForPut,
       [](Answer& a, const SeenRequest&, Peer& peer) { peer.send(a.text() + a.text()); }},
      // ranges
      {"the range after", kForGet, spoilt([](Answer& a) {
         a.field("Content-Range") = range_text(kOffset + 1, kOffset + kLength, kObjectBytes);
       })},
      {"a shorter range", kForGet, spoilt([](Answer& a) {
         a.field("Content-Range") = range_text(kOffset, kOffset + kLength - 4, kObjectBytes);
         a.body.resize(kLength - 3);
         a.length = std::to_string(kLength - 3);
       })},
      {"another size of the object", kForGet, spoilt([](Answer& a) {
         a.field("Content-Range") = range_text(kOffset, kOffset + kLength - 1, kObjectBytes + 9);
       })},
      {"the object ends here", kForGet, spoilt([](Answer& a) {
         a.field("Content-Range") = range_text(kOffset, kOffset + 99, kOffset + 100);
         a.body.resize(100);
         a.length = "100";
       })},
      {"no range", kForGet, spoilt([](Answer& a) { a.drop("Content-Range"); })},
      {"a range of garbage", kForGet,
       spoilt([](Answer& a) { a.field("Content-Range") = "bytes 5-x/-1"; })},
      {"the whole object", kForGet, spoilt([](Answer& a) {
         a.status = 200;
         a.drop("Content-Range");
         a.body.resize(kObjectBytes);
         a.length = std::to_string(kObjectBytes);
       })},
      {"a range, called the whole", kForGet, spoilt([](Answer& a) {
         a.status = 200;
         a.drop("Content-Range");
       })},
      {"not satisfiable", kForGet,
       spoilt(
           [](Answer& a) {
             a = Answer{416, {{"Content-Range", "bytes */10"}}, "", "0", false};
           },
           false)},
      {"another version", kForGet, spoilt([](Answer& a) {
         a.field("ETag") = "\"v2\"";
         a.field("x-goog-generation") = "8";
       })},
      {"packed", kForGet, spoilt([](Answer& a) {
         a.field("Content-Encoding") = "gzip";
         a.body = "\x1f\x8b short";
         a.length = std::to_string(a.body.size());
       })},
      // chunks
      {"a chunk too short", kForBodies,
       chunked([](const std::string& b) { return one_chunk(b.substr(9)) + "0\r\n\r\n"; })},
      {"a chunk too long", kForBodies,
       chunked([](const std::string& b) { return one_chunk(b + "xxx") + "0\r\n\r\n"; })},
      {"a chunk beyond 2^64", kForBodies,
       chunked([](const std::string&) { return "ffffffffffffffffff\r\nabc\r\n"; })},
      {"a chunk of minus one", kForBodies,
       chunked([](const std::string&) { return "-1\r\nabc\r\n"; })},
      {"chunks without an end", kForBodies,
       chunked([](const std::string& b) { return one_chunk(b); })},
      {"a chunk with much to say", kForBodies,
       chunked([](const std::string&) { return "5;" + std::string(9000, 'x'); })},
      {"chunks and a length", kForBodies, spoilt([](Answer& a) {
         a.length = "3";
         a.field("Transfer-Encoding") = "chunked";
         a.body = one_chunk(a.body) + "0\r\n\r\n";
       })},
      // connections
      {"nothing", kForAll, [](Answer&, const SeenRequest&, Peer& peer) { peer.close(); }},
      {"a reset", kForAll, [](Answer&, const SeenRequest&, Peer& peer) { peer.reset(); }},
      {"a head and no more", kForBodies,
       [](Answer& a, const SeenRequest&, Peer& peer) {
         peer.send(a.head());
         peer.close();
       }},
      // statuses
      {"no content", kForGet | kForHead | kForList,
       spoilt(
           [](Answer& a) {
             a = Answer{204, {}, "", "", a.is_head};
           },
           false)},
      {"not modified", kForGet | kForHead | kForList,
       spoilt(
           [](Answer& a) {
             a = Answer{304, {}, "", "", a.is_head};
           },
           false)},
      {"a page to log in", kForGet | kForList | kForPut,
       refused(200, "<html>Welcome to our hotel</html>")},
      {"500 in HTML", kForAll, refused(500, "<html>" + std::string(9000, 'x'))},
      {"502", kForAll, refused(502, "")},
      {"503", kForAll, refused(503, "<Error><Code>SlowDown</Code></Error>")},
      {"a redirect to itself", kForAll,
       [](Answer& a, const SeenRequest& request, Peer& peer) {
         const std::size_t begin = request.head.find(' ') + 1;
         const std::string target =
             request.head.substr(begin, request.head.find(' ', begin) - begin);
         peer.send(Answer{307, {{"Location", target}}, "", "0", a.is_head}.text());
       }},
      {"a redirect to a file", kForAll, redirect(302, "file:///etc/passwd")},
      {"a redirect to no address", kForAll, redirect(307, "http://[::1")},
      {"a redirect to nowhere", kForAll, redirect(302, "")},
      {"a redirect to another host", kForAll, redirect(307, "http://127.0.0.2:1/x")},
      // time
      {"silence", kForAll,
       [](Answer&, const SeenRequest&, Peer& peer) { peer.wait_for_client_to_leave(); }, true},
      {"half a head and silence", kForAll,
       [](Answer&, const SeenRequest&, Peer& peer) {
         peer.send("HTTP/1.1 200 OK\r\nContent-");
         peer.wait_for_client_to_leave();
       },
       true},
      {"half a body and silence", kForBodies,
       [](Answer& a, const SeenRequest&, Peer& peer) {
         peer.send(a.text().substr(0, a.text().size() - 50));
         peer.wait_for_client_to_leave();
       },
       true},
      {"a huge length and silence", kForGet | kForList,
       [](Answer& a, const SeenRequest&, Peer& peer) {
         a.length = "4611686018427387904";
         peer.send(a.text());
         peer.wait_for_client_to_leave();
       },
       true},
      {"come again in eleven days", kForAll,
       spoilt(
           [](Answer& a) {
             a = Answer{503, {{"Retry-After", "1000000"}}, "", "0", a.is_head};
           },
           false),
       true},
  };
}

struct Driver {
  const char* name;
  const char* url;
  const char* version;
  unsigned ops;
};
constexpr Driver kDrivers[] = {
    {"S3", "s3://bucket", "\"v1\"", kForAll},
    {"Google", "gs://bucket", "7", kForAll},
    {"Azure", "az://account/bucket", "\"v1\"", kForAll},
    {"Web", "http://", "\"v1\"", kForGet | kForHead},
};

/// What the drivers ask for, all of them alike.
unsigned op_of(const SeenRequest& request) {
  const std::string line = request.head.substr(0, request.head.find('\r'));
  if (line.starts_with("HEAD ")) return kForHead;
  if (line.starts_with("PUT ")) return kForPut;
  const bool is_list =
      line.find("list-type=") != std::string::npos || line.find("comp=list") != std::string::npos;
  return is_list ? kForList : kForGet;
}

std::string listing(const SeenRequest& request) {
  if (request.head.find("comp=list") != std::string::npos) {
    return "<?xml version=\"1.0\"?><EnumerationResults><Blobs><Blob><Name>key</Name><Properties>"
           "<Content-Length>100000</Content-Length><Etag>v1</Etag><BlobType>BlockBlob</BlobType>"
           "</Properties></Blob></Blobs><NextMarker/></EnumerationResults>";
  }
  return "<?xml version=\"1.0\"?><ListBucketResult><Name>bucket</Name><IsTruncated>false"
         "</IsTruncated><Contents><Key>key</Key><LastModified>2025-01-01T00:00:00.000Z"
         "</LastModified><ETag>\"v1\"</ETag><Generation>7</Generation><Size>100000</Size>"
         "</Contents></ListBucketResult>";
}

class MisbehavingAnswers : public testing::Test {
 protected:
  void SetUp() override {
    SlabPool::Options options;
    options.limit_bytes = 16 << 20;
    pool_ = *SlabPool::create(options);
  }

  Answer right_answer(const SeenRequest& request) const {
    Answer answer;
    answer.fields = {{"ETag", "\"v1\""},
                     {"x-goog-generation", "7"},
                     {"Last-Modified", "Wed, 01 Jan 2025 00:00:00 GMT"}};
    switch (op_of(request)) {
      case kForHead:
        answer.is_head = true;
        answer.length = std::to_string(kObjectBytes);
        return answer;
      case kForList:
        answer.body = listing(request);
        break;
      case kForGet:
        answer.status = 206;
        answer.field("Content-Range") = range_text(request.first, request.last, kObjectBytes);
        answer.body = server_->content(request.first, request.last);
        break;
      default:
        answer.status = request.head.find("x-ms-version") != std::string::npos ? 201 : 200;
    }
    answer.length = std::to_string(answer.body.size());
    return answer;
  }

  /// A server that gives bad answers to `op`: the first time, or each time.
  void start(const Misbehaviour& kind, unsigned op, bool lasts) {
    bad_count_ = 0;
    server_ = std::make_unique<ScriptedServer>(
        [this, &kind, op, lasts](const SeenRequest& request, Peer& peer) {
          Answer answer = right_answer(request);
          const bool is_bad = op_of(request) == op && (lasts || bad_count_ == 0);
          // What answers with a page of its own is not the store.
          const bool is_store = !is_bad || std::string_view(kind.name) != "a page to log in";
          if (op_of(request) == kForPut && is_store)
            has_written_ = request.body == server_->content(0, kLength - 1);
          if (!is_bad) return peer.send(answer.text());
          ++bad_count_;
          kind.answer(answer, request, peer);
        },
        kObjectBytes);
  }

  std::unique_ptr<Store> open(const Driver& driver, bool lasts, bool takes_its_time) const {
    StoreOptions options;
    const std::string address = "127.0.0.1:" + std::to_string(server_->port());
    options.url = driver.url;
    if (options.url == "http://") {
      options.url += address;
    } else {
      options.endpoint = "http://" + address;
    }
    options.anonymous = options.url.starts_with("gs:");
    options.retry_seed = 1;
    options.max_in_flight = 4;
    options.default_timeout = std::chrono::seconds(30);
    if (lasts) options.max_attempts = 3;
    if (takes_its_time) {
      options.first_byte_timeout = options.progress_timeout = std::chrono::milliseconds(300);
      options.default_timeout = std::chrono::seconds(lasts ? 2 : 20);
    }
    Environment environment;
    environment.variables = {{"AWS_ACCESS_KEY_ID", "id"},
                             {"AWS_SECRET_ACCESS_KEY", "secret"},
                             {"AZURE_STORAGE_KEY", "c2VjcmV0"}};
    auto store = open_store(options, environment);
    EXPECT_TRUE(store) << store.error().message();
    return store ? *std::move(store) : nullptr;
  }

  /// Ok when everything came, and was right.
  Status transfer(Store& store, const Driver& driver, Op op) {
    Request request;
    request.op = op;
    request.key = "key";
    request.length_bytes = kLength;
    request.slab = *pool_->try_acquire(kLength);
    const std::uint64_t offset = op == Op::kGet ? kOffset : 0;
    const std::string content = server_->content(offset, offset + kLength - 1);
    if (op == Op::kGet) {
      request.offset_bytes = offset;
      request.etag = driver.version;
    } else {
      std::memcpy(request.slab.bytes().data(), content.data(), kLength);
    }
    EXPECT_EQ(store.submit({&request, 1}), 1U);
    Completion done;
    EXPECT_EQ(store.wait({&done, 1}, system_clock().now() + 100s), 1U) << "it never ended";
    if (!done.status.ok()) return std::move(done.status);
    if (op == Op::kPut) {
      EXPECT_TRUE(has_written_) << "a write was reported that did not take place";
    } else {
      EXPECT_EQ(done.length_bytes, kLength);
      EXPECT_EQ(std::memcmp(done.slab.bytes().data(), content.data(), kLength), 0) << "wrong bytes";
    }
    return {};
  }

  Status run(Store& store, const Driver& driver, unsigned op) {
    if (op == kForGet) return transfer(store, driver, Op::kGet);
    if (op == kForPut) return transfer(store, driver, Op::kPut);
    if (op == kForHead) {
      auto info = store.head("key");
      if (!info) return std::move(info).error();
      EXPECT_EQ(info->size_bytes, kObjectBytes);
      return {};
    }
    auto page = store.list({});
    if (!page) return std::move(page).error();
    EXPECT_EQ(page->objects.size(), 1U);
    EXPECT_TRUE(page->continuation.empty());
    return {};
  }

  void try_out(const Misbehaviour& kind, const Driver& driver, unsigned op, bool lasts) {
    SCOPED_TRACE(std::string(driver.name) + ", request " + std::to_string(op) + ", " + kind.name +
                 (lasts ? ", always" : ", once"));
    has_written_ = false;
    start(kind, op, lasts);
    const auto store = open(driver, lasts, kind.takes_its_time);
    const TimePoint start = system_clock().now();
    const Status status = run(*store, driver, op);
    EXPECT_GE(bad_count_, 1);
    if (!lasts) {
      EXPECT_TRUE(status.ok()) << status.message();
    } else if (!status.ok()) {
      EXPECT_NE(status.code(), Code::kInternal) << status.message();
      EXPECT_THAT(std::string(status.message()), testing::HasSubstr("/"));
    }
    EXPECT_LT(system_clock().now() - start, 60s);
    server_->stop();
  }

  void try_all(bool lasts) {
    const bool is_long = std::getenv("HEADRACE_LONG_TESTS") != nullptr;  // NOLINT(concurrency-*)
    std::size_t turn = 0;
    for (const Misbehaviour& kind : misbehaviours()) {
      if (kind.takes_its_time && !is_long) continue;
      ++turn;
      std::size_t pair = 0;
      for (const Driver& driver : kDrivers) {
        for (const unsigned op : {kForGet, kForHead, kForList, kForPut}) {
          if ((kind.ops & driver.ops & op) == 0) continue;
          ++pair;
          // What lasts takes three attempts and the pauses between them.
          const bool is_chosen =
              lasts ? (turn + pair) % 10 == 0 : pair == 1 || (turn + pair) % 8 == 0;
          if (is_long || is_chosen) try_out(kind, driver, op, lasts);
        }
      }
    }
  }

  std::unique_ptr<SlabPool> pool_;
  std::unique_ptr<ScriptedServer> server_;
  std::atomic<int> bad_count_{0};
  std::atomic<bool> has_written_{false};
};

TEST_F(MisbehavingAnswers, OnceTheRunGoesOn) { try_all(false); }
TEST_F(MisbehavingAnswers, AlwaysThereIsAnErrorInTime) { try_all(true); }

}  // namespace
}  // namespace headrace
