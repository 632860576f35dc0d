// Each get is made at least twice, over connections that carried nothing before, and its bytes are
// handed on when two reads have brought the same. Where the first two differ it goes on, up to
// SecondLook::kMostReads. Slow on purpose: it serves datasets whose opening has failed once.
//
// - The tag below is our own number, so that two requests with one tag of the caller's stay apart.
// - Between two reads the slab is in `reads_`; while one is under way the store below has it.
// - What is to be read again waits in `waiting_` and is submitted from wait(), since the store
//   below may take nothing just then.
#include "shard/sure_store.h"

#include <fmt/format.h>

#include <utility>

namespace headrace::detail {

// The texts that the request points to live until the caller has its completion.
Request SureStore::next_read(std::uint64_t number) {
  Request& kept = reads_.at(number).request;
  Request request;
  request.op = kept.op;
  request.key = kept.key;
  request.etag = kept.etag;
  request.allow_short = kept.allow_short;
  request.fresh_connection = true;
  request.offset_bytes = kept.offset_bytes;
  request.length_bytes = kept.length_bytes;
  request.slab_offset_bytes = kept.slab_offset_bytes;
  request.slab = std::move(kept.slab);
  request.deadline = kept.deadline;
  request.tag = number;
  return request;
}

std::size_t SureStore::submit(std::span<Request> requests) {
  std::size_t count = 0;
  for (Request& request : requests) {
    const std::uint64_t number = next_number_++;
    reads_.emplace(number, Read{.request = std::move(request)});
    Request read = next_read(number);
    if (inner().submit({&read, 1}) == 1) {
      ++count;
      continue;
    }
    request = std::move(reads_.at(number).request);
    request.slab = std::move(read.slab);
    reads_.erase(number);
    break;
  }
  return count;
}

void SureStore::read_again() {
  while (!waiting_.empty()) {
    const std::uint64_t number = waiting_.front();
    Request read = next_read(number);
    if (inner().submit({&read, 1}) == 0) {
      reads_.at(number).request.slab = std::move(read.slab);
      return;
    }
    waiting_.pop_front();
  }
}

// Whether the caller gets it: not when it has to be read again.
bool SureStore::is_done(Completion& done) {
  const auto found = reads_.find(done.tag);
  Read& read = found->second;
  if (done.status.ok() && read.request.op == Op::kGet && !read.is_cancelled) {
    const std::span<const std::byte> bytes =
        done.length_bytes == 0 ? std::span<const std::byte>()
                               : std::span<const std::byte>(done.slab.bytes())
                                     .subspan(read.request.slab_offset_bytes, done.length_bytes);
    const auto verdict = read.look.take(SecondLook::digest_of(bytes));
    if (verdict == SecondLook::Verdict::kReadAgain) {
      read.request.slab = std::move(done.slab);
      waiting_.push_back(found->first);
      return false;
    }
    if (verdict == SecondLook::Verdict::kNeverSame) {
      const std::uint64_t begin = read.request.offset_bytes;
      done.status = SecondLook::never_same(
          Status(Code::kUnavailable, fmt::format("{} [{}, {})", object_url(read.request.key), begin,
                                                 begin + read.request.length_bytes)));
    }
  }
  done.tag = read.request.tag;
  reads_.erase(found);
  return true;
}

Completion SureStore::give_up(std::uint64_t number) {
  Read& read = reads_.at(number);
  Completion done;
  done.tag = read.request.tag;
  done.status = Status(Code::kCancelled, "reading again: cancelled");
  done.slab = std::move(read.request.slab);
  reads_.erase(number);
  return done;
}

std::size_t SureStore::wait(std::span<Completion> out, TimePoint until, std::stop_token stop) {
  while (true) {
    read_again();
    std::size_t kept = 0;
    // Stopped: nobody below holds these, so their completions are made here.
    for (; is_stopped_ && !waiting_.empty() && kept < out.size(); waiting_.pop_front())
      out[kept++] = give_up(waiting_.front());
    if (kept > 0) return kept;
    const std::size_t count = inner().wait(out, until, stop);
    for (std::size_t i = 0; i < count; ++i) {
      if (!is_done(out[i])) continue;
      if (kept != i) out[kept] = std::move(out[i]);
      ++kept;
    }
    if (kept > 0 || count == 0) return kept;
  }
}

void SureStore::cancel(std::uint64_t tag) {
  for (auto& [number, read] : reads_) {
    if (read.request.tag != tag) continue;
    read.is_cancelled = true;
    inner().cancel(number);
  }
}

void SureStore::stop() noexcept {
  is_stopped_ = true;
  inner().stop();
}

}  // namespace headrace::detail
