// Invariants:
// - A fetch is in fetches_ from begin() until it is ready, failed, forgotten or put back; the id
//   in a request's tag finds it, so a completion that comes late for a fetch given up finds it
//   abandoned, and never another one.
// - Memory for all of a fetch is taken before its first request (stored bytes, inflated bytes,
//   room to unpack): what is under way can always be finished, and nobody waits for memory with
//   memory in hand. Two that would are put back, and begun again with what they turned out to
//   need.
// - Requests have parts of the fetch's slab on loan. They come back before the fetch ends: a
//   completion's at once, so that whoever forgets the fetch may give the memory back.
// - A fetch may have several owners, windows of one run or of two: each gives it up once, and only
//   the last ends it. Pins count over all runs, so their marks do, too.
// - An abandoned fetch keeps its memory until the store and the workers have let go of it, and
//   while a batch has it pinned.
#include "feed/residency/fetcher.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "read/ready_block.h"

namespace headrace::feed {
namespace {

/// Requests out at once: more than any store has on the wire, few enough that what matters next is
/// not behind a long queue.
constexpr std::size_t kMaxInFlight = 512;
constexpr std::size_t kInboxSize = 64;
/// Low bits of a tag: the request's index. 2^24 objects in one block is beyond any block_bytes.
constexpr std::uint32_t kIndexBits = 24;

read::CutRule cut_rule(const Fetcher::Options& options, const StoreTraits& traits) {
  if (options.large_request_bytes == 0) return read::cut_rule(traits);
  return {.request_bytes = options.large_request_bytes,
          .whole_bytes = 4 * options.large_request_bytes,
          .sums = traits.object_sums};
}

bool has_sums(const Fetch& fetch) noexcept {
  return std::any_of(fetch.objects.begin(), fetch.objects.end(),
                     [](const auto& object) { return object.sum.kind != ChecksumKind::kNone; });
}

bool needs_digest(const Fetch& fetch, const Status& status) noexcept {
  return fetch.is_fresh || status.code() == Code::kCorrupt;
}

}  // namespace

Fetcher::Fetcher(std::shared_ptr<const Dataset> dataset, std::unique_ptr<Store> store,
                 SlabPool& pool, const Options& options)
    : dataset_(std::move(dataset)),
      store_(std::move(store)),
      pool_(pool),
      options_(options),
      clock_(*options.clock),
      queue_(*store_),
      cut_rule_(cut_rule(options, store_->traits())),
      room_(pool, options.workspace_bytes) {
  inbox_.resize(kInboxSize);
}

Fetcher::~Fetcher() { shut_down(); }

void Fetcher::shut_down() {
  store_->stop();
  for (auto& [id, fetch] : fetches_) fetch->is_abandoned = true;
  queue_.drain();
  to_inflate_.clear();
  fetches_.clear();
}

Fetcher::Begin Fetcher::begin(const std::shared_ptr<Fetch>& fetch) {
  HEADRACE_DCHECK(fetch->state == Fetch::State::kPlanned);
  const Piece& piece = fetch->piece;
  if (fetch->extents.empty()) {
    fetch->timeline.wanted = clock_.now();
  }
  fetch->timeline.piece = piece;
  fetch->extents.clear();
  const std::uint64_t size =
      dataset_->append_extents(piece.block, piece.begin, piece.end, fetch->extents);
  fetch->objects.clear();
  read::cut_requests(cut_rule_, fetch->extents, fetch->objects);
  fetch->head_count = cut_rule_.sums == ObjectSums::kHead ? fetch->objects.size() : 0;
  if (const Status acquired = acquire(*fetch, size); !acquired.ok()) {
    fetch->release();
    if (acquired.code() == Code::kExhausted) return Begin::kNoMemory;
    finish(*fetch, annotated(*fetch, Status(Code::kExhausted, std::string(acquired.message()))));
    return Begin::kNever;
  }
  if (fetch->is_fresh) second_reads_.add();
  // It has its memory: from here on the store, and what it takes at once, hold it back.
  if (fetch->timeline.submitted == TimePoint()) fetch->timeline.submitted = clock_.now();
  fetch->was_put_off = false;
  fetch->size_bytes = size;
  fetch->lender.emplace(pool_, fetch->stored);
  fetch->id = next_id_++;
  fetch->state = Fetch::State::kReading;
  fetches_.emplace(fetch->id, fetch);
  if (size == 0) {  // Empty objects only, or a block that its unpacker reads.
    finish_reading(fetch);
    return Begin::kBegun;
  }
  pumping_.push_back(fetch);
  pump();
  return Begin::kBegun;
}

Status Fetcher::acquire(Fetch& fetch, std::uint64_t stored_size) {
  const std::uint32_t block = fetch.piece.block;
  const auto found = needs_.find(block);
  const Needs needs = found == needs_.end() ? Needs() : found->second;
  HEADRACE_TRY_ASSIGN(fetch.stored, pool_.try_acquire(options_.sizes.stored_bytes(stored_size)));
  if (!dataset_->is_compressed(block)) return {};
  if (needs.room_bytes > 0) {
    HEADRACE_TRY_ASSIGN(fetch.reserved, pool_.try_reserve(needs.room_bytes));
  }
  // A quarter more than what was too little, where there is as much: only a complete unpack tells
  // the size, and each that ends early is lost work.
  const std::uint64_t told = options_.sizes.raw_bytes(*dataset_, block);
  auto raw = pool_.try_acquire(std::max(told, needs.raw_bytes + needs.raw_bytes / 4));
  if (!raw && needs.raw_bytes > 0) raw = pool_.try_acquire(std::max(told, needs.raw_bytes));
  HEADRACE_TRY_ASSIGN(fetch.raw, std::move(raw));
  return {};
}

void Fetcher::pump() {
  std::size_t done = 0;
  for (const auto& fetch : pumping_) {
    while (fetch->next_request < fetch->request_count() && !fetch->is_abandoned &&
           fetch->error.ok() && may_ask()) {
      build_request(*fetch);
    }
    const bool is_built =
        fetch->next_request == fetch->request_count() || fetch->is_abandoned || !fetch->error.ok();
    if (!is_built) {
      fetch->was_put_off = true;
      break;
    }
    ++done;
  }
  pumping_.erase(pumping_.begin(), pumping_.begin() + static_cast<std::ptrdiff_t>(done));
  queue_.flush();
}

bool Fetcher::may_ask() const noexcept {
  const bool has_slot = queue_.pending() < kMaxInFlight;
  return has_slot && (bytes_out_ == 0 || bytes_out_ < most_out_bytes_);
}

void Fetcher::build_request(Fetch& fetch) {
  const std::size_t index = fetch.next_request++;
  const bool is_head = index < fetch.head_count;
  const Extent& extent =
      is_head ? fetch.objects[index].extent : fetch.extents[index - fetch.head_count];
  Request request;
  request.key = extent.key;
  request.etag = extent.etag;
  if (is_head) {
    request.op = Op::kHead;
  } else {
    request.slab = fetch.lender->lend(extent.target_offset_bytes, extent.length_bytes);
    request.offset_bytes = extent.offset_bytes;
    request.length_bytes = extent.length_bytes;
  }
  request.fresh_connection = fetch.is_fresh;
  request.deadline = clock_.now() + options_.read_timeout;
  request.tag = fetch.id << kIndexBits | index;
  ++fetch.requests_out;
  bytes_out_ += request.length_bytes;
  queue_.push(std::move(request));
}

void Fetcher::abandon(Fetch& fetch) {
  if (fetch.is_abandoned) return;
  if (fetch.sharer_count > 0) {
    --fetch.sharer_count;
    return;
  }
  fetch.is_abandoned = true;
  if (fetch.is_under_way() || fetch.pin_count > 0) {
    ++abandoned_count_;
  } else {
    fetch.release();
  }
  if (!fetch.is_under_way()) return;
  if (fetch.state == Fetch::State::kInflating) return;
  auto taken_back = queue_.take_back(
      [&](const Request& request) { return request.tag >> kIndexBits == fetch.id; });
  for (const Request& request : taken_back) bytes_out_ -= request.length_bytes;
  fetch.requests_out -= taken_back.size();
  taken_back.clear();
  std::erase_if(pumping_, [&](const auto& other) { return other->id == fetch.id; });
  if (fetch.requests_out == 0) {
    forget(fetch);
    return;
  }
  for (std::size_t i = 0; i < fetch.next_request; ++i) store_->cancel(fetch.id << kIndexBits | i);
}

void Fetcher::share(Fetch& fetch) noexcept {
  HEADRACE_DCHECK(!fetch.is_abandoned);
  ++fetch.sharer_count;
}

void Fetcher::pin(Fetch& fetch, std::uint64_t mark, std::vector<std::shared_ptr<Fetch>>& pins) {
  HEADRACE_DCHECK(fetch.state == Fetch::State::kReady && !fetch.is_abandoned);
  if (fetch.pin_mark == mark) return;
  fetch.pin_mark = mark;
  ++fetch.pin_count;
  pins.push_back(fetch.shared_from_this());
}

void Fetcher::unpin(Fetch& fetch) {
  if (--fetch.pin_count > 0 || !fetch.is_abandoned) return;
  --abandoned_count_;
  fetch.release();
}

void Fetcher::poll(TimePoint until) {
  pump();
  const auto count = queue_.wait(inbox_, until);
  if (count) {
    for (std::size_t i = 0; i < *count; ++i) take(std::move(inbox_[i]));
  } else {
    fail_unsent(count.error());
  }
  take_inflated();
  pump();
}

/// The store takes nothing any more: its requests end as if it had answered.
void Fetcher::fail_unsent(const Status& why) {
  for (Request& request : queue_.take_back_all()) {
    Completion failed;
    failed.tag = request.tag;
    failed.status = why.clone();
    failed.slab = std::move(request.slab);
    take(std::move(failed));
  }
}

void Fetcher::take(Completion completion) {
  const auto found = fetches_.find(completion.tag >> kIndexBits);
  HEADRACE_CHECK(found != fetches_.end());
  const std::shared_ptr<Fetch> fetch = found->second;
  take_answer(*fetch, completion.tag & ((std::uint64_t{1} << kIndexBits) - 1), completion);
  if (fetch->requests_out > 0) return;
  if (fetch->is_abandoned) {
    forget(*fetch);
    return;
  }
  if (!fetch->error.ok()) {
    Status error = std::move(fetch->error);
    finish(*fetch, annotated(*fetch, std::move(error)));
    return;
  }
  if (fetch->requests_done == fetch->request_count()) finish_reading(fetch);
}

void Fetcher::take_answer(Fetch& fetch, std::size_t index, Completion& completion) {
  --fetch.requests_out;
  completion.slab = Slab();
  Timeline& timeline = fetch.timeline;
  timeline.sent = std::max(timeline.sent, completion.sent);
  timeline.first_byte = std::max(timeline.first_byte, completion.first_byte);
  if (completion.finished >= timeline.finished) {
    timeline.was_cached = completion.was_cached;
    timeline.last_request = index;
    timeline.attempts = completion.attempts;
  }
  timeline.finished = std::max(timeline.finished, completion.finished);
  timeline.was_held_off = timeline.was_held_off || completion.was_held_off;
  if (index >= fetch.head_count) {
    take_extent(fetch, fetch.extents[index - fetch.head_count], completion);
  } else if (!fetch.is_abandoned) {
    completion.status = read::take_head(fetch.objects[index], std::move(completion.status),
                                        completion.object_checksum);
  }
  if (fetch.is_abandoned) return;
  if (completion.status.ok()) {
    ++fetch.requests_done;
  } else if (fetch.error.ok()) {
    fetch.error = std::move(completion.status);
  }
}

void Fetcher::take_extent(Fetch& fetch, const Extent& extent, Completion& completion) {
  bytes_out_ -= extent.length_bytes;
  arrivals_.add(completion, extent.length_bytes, fetch.was_put_off);
  if (fetch.is_abandoned || !completion.status.ok()) return;
  if (completion.length_bytes != extent.length_bytes) {
    completion.status =
        Status(Code::kCorrupt, store_->object_url(extent.key) + ": " +
                                   std::to_string(completion.length_bytes) + " bytes came, " +
                                   std::to_string(extent.length_bytes) + " were asked for");
    return;
  }
  if (cut_rule_.sums == ObjectSums::kEveryGet)
    read::take_get(fetch.objects, extent, completion.object_checksum);
}

void Fetcher::finish_reading(const std::shared_ptr<Fetch>& fetch) {
  const bool is_compressed = dataset_->is_compressed(fetch->piece.block);
  const bool is_for_workers = options_.workers != nullptr && has_sums(*fetch);
  if (!is_compressed && !is_for_workers) {
    Status status = check_stored(*fetch);
    if (needs_digest(*fetch, status))
      fetch->digest = SecondLook::digest_of(fetch->stored.bytes().first(fetch->size_bytes));
    finish_plain(fetch, std::move(status));
    return;
  }
  fetch->state = Fetch::State::kInflating;
  ++inflating_count_;
  to_inflate_.push_back(fetch);
  start_inflating();
}

Status Fetcher::check_stored(const Fetch& fetch) const {
  const Piece& piece = fetch.piece;
  const std::span<const std::byte> bytes = fetch.stored.bytes().first(fetch.size_bytes);
  HEADRACE_TRY(read::check_objects(*store_, fetch.objects, bytes));
  const bool is_whole =
      dataset_->is_compressed(piece.block) ||
      (piece.begin == 0 && piece.end == dataset_->block(piece.block).sample_count);
  return is_whole ? dataset_->verify(piece.block, bytes) : Status();
}

void Fetcher::finish_plain(const std::shared_ptr<Fetch>& fetch, Status status) {
  if (is_read_again(fetch, status)) return;
  const Piece& piece = fetch->piece;
  fetch->bytes = {.block = piece.block,
                  .begin = piece.begin,
                  .end = piece.end,
                  .bytes = fetch->stored.bytes().first(fetch->size_bytes)};
  finish(*fetch, annotated(*fetch, std::move(status)));
}

void Fetcher::start_inflating() {
  while (!to_inflate_.empty()) {
    const std::shared_ptr<Fetch> fetch = to_inflate_.front();
    const std::uint32_t block = fetch->piece.block;
    const bool is_unpacked = dataset_->is_unpacked(block) && !fetch->is_abandoned;
    if (is_unpacked) {
      const auto stored = fetch->stored.bytes().first(fetch->size_bytes);
      const std::uint64_t need = dataset_->unpack_workspace_bytes(block, stored);
      auto room = room_.begin(need, fetch->reserved);
      if (!room && room_.is_used()) return;
      if (!room) {
        to_inflate_.pop_front();
        --inflating_count_;
        const std::uint64_t standing = room_.standing_bytes();
        put_back(*fetch, {.raw_bytes = 0, .room_bytes = need - std::min(need, standing)});
        continue;
      }
      fetch->room = *std::move(room);
      fetch->arena.emplace(pool_, std::move(fetch->raw));
    }
    to_inflate_.pop_front();
    if (fetch->is_abandoned) {
      --inflating_count_;
      forget(*fetch);
      continue;
    }
    const bool is_queued = options_.workers->submit([this, raw_fetch = fetch.get()] {
      Inflated inflated = inflate(*raw_fetch);
      {
        MutexLock lock(mutex_);
        inflated_.push_back(std::move(inflated));
      }
      store_->wake();
    });
    HEADRACE_CHECK(is_queued);
  }
}

Fetcher::Inflated Fetcher::inflate(Fetch& fetch) const {
  const std::span<const std::byte> stored = fetch.stored.bytes().first(fetch.size_bytes);
  const std::uint32_t index = fetch.piece.block;
  Inflated inflated;
  inflated.id = fetch.id;
  inflated.status = check_stored(fetch);
  if (inflated.status.ok() && dataset_->is_compressed(index)) {
    auto made = read::make_ready(*dataset_, index, stored, fetch.raw.bytes(),
                                 fetch.arena ? &*fetch.arena : nullptr);
    if (made) inflated.unpacked = *std::move(made);
    if (!made) inflated.status = std::move(made).error();
  }
  if (needs_digest(fetch, inflated.status)) inflated.digest = SecondLook::digest_of(stored);
  inflated.at = clock_.now();
  return inflated;
}

void Fetcher::take_inflated() {
  {
    MutexLock lock(mutex_);
    inflated_taken_.swap(inflated_);
  }
  inflating_count_ -= inflated_taken_.size();
  for (Inflated& inflated : inflated_taken_) {
    const auto found = fetches_.find(inflated.id);
    HEADRACE_CHECK(found != fetches_.end());
    const std::shared_ptr<Fetch> fetch = found->second;
    fetch->timeline.inflated = inflated.at;
    if (fetch->arena) room_.end(std::exchange(fetch->room, {}));
    if (fetch->is_abandoned) {
      inflated.unpacked.reset();
      forget(*fetch);
      continue;
    }
    if (fetch->arena && fetch->arena->needed_bytes() > 0 && !inflated.status.ok()) {
      put_back(*fetch, {.raw_bytes = fetch->arena->needed_bytes(), .room_bytes = 0});
      continue;
    }
    fetch->digest = inflated.digest;
    if (!dataset_->is_compressed(fetch->piece.block)) {
      finish_plain(fetch, std::move(inflated.status));
      continue;
    }
    if (is_read_again(fetch, inflated.status)) continue;
    fetch->stored = Slab();
    const Block block = dataset_->block(fetch->piece.block);
    fetch->unpacked = std::move(inflated.unpacked);
    if (fetch->unpacked) options_.sizes.learn(block.raw_bytes, fetch->arena->size_bytes());
    if (inflated.status.ok()) {
      fetch->bytes = read::ready_bytes(*dataset_, fetch->piece.block, fetch->raw.bytes(),
                                       fetch->unpacked.get());
    }
    fetch->is_block_bad = inflated.status.code() == Code::kCorrupt;
    finish(*fetch, annotated(*fetch, std::move(inflated.status)));
  }
  inflated_taken_.clear();
  start_inflating();
}

void Fetcher::put_back(Fetch& fetch, const Needs& needs) {
  Needs& known = needs_[fetch.piece.block];
  known.raw_bytes = std::max(known.raw_bytes, needs.raw_bytes);
  known.room_bytes = std::max(known.room_bytes, needs.room_bytes);
  put_backs_.add();
  fetch.release();
  fetch.state = Fetch::State::kPlanned;
  fetch.next_request = fetch.requests_done = 0;
  fetches_.erase(fetch.id);
}

std::uint64_t Fetcher::most_needed_bytes() const noexcept {
  std::uint64_t most = 0;
  for (const auto& [block, needs] : needs_)
    most = std::max(most, dataset_->block(block).stored_bytes + needs.raw_bytes + needs.room_bytes);
  return most;
}

bool Fetcher::is_read_again(const std::shared_ptr<Fetch>& fetch, Status& status) {
  if (status.code() != Code::kCorrupt) return false;
  switch (fetch->look.take(fetch->digest)) {
    case SecondLook::Verdict::kData:
      return false;
    case SecondLook::Verdict::kNeverSame:
      status = SecondLook::never_same(status);
      return false;
    case SecondLook::Verdict::kReadAgain:
      break;
  }
  second_reads_.add();
  fetch->is_fresh = true;
  fetch->state = Fetch::State::kReading;
  fetch->bytes = {};
  fetch->unpacked.reset();
  if (fetch->arena) fetch->raw = fetch->arena->end();
  fetch->arena.reset();
  fetch->next_request = fetch->requests_done = 0;
  if (fetch->size_bytes == 0) {
    finish_reading(fetch);
  } else {
    pumping_.push_back(fetch);  // poll() pumps after it has taken in what came.
  }
  return true;
}

void Fetcher::finish(Fetch& fetch, Status status) {
  fetch.state = status.ok() ? Fetch::State::kReady : Fetch::State::kFailed;
  fetch.error = std::move(status);
  if (!fetch.error.ok()) fetch.release();
  fetches_.erase(fetch.id);
}

void Fetcher::forget(Fetch& fetch) {
  --abandoned_count_;
  fetch.release();
  fetch.state = Fetch::State::kFailed;
  fetches_.erase(fetch.id);
}

std::string Fetcher::name_of(const Timeline& read) const {
  if (read.finished == TimePoint()) return {};
  std::vector<Extent> extents;
  std::vector<read::CutObject> objects;
  dataset_->append_extents(read.piece.block, read.piece.begin, read.piece.end, extents);
  read::cut_requests(cut_rule_, extents, objects);
  const std::size_t heads = cut_rule_.sums == ObjectSums::kHead ? objects.size() : 0;
  if (read.last_request < heads)
    return store_->object_url(objects[read.last_request].extent.key) + " (its checksum)";
  if (read.last_request - heads >= extents.size()) return {};
  const Extent& extent = extents[read.last_request - heads];
  return store_->object_url(extent.key) + " [" + std::to_string(extent.offset_bytes) + ", " +
         std::to_string(extent.offset_bytes + extent.length_bytes) + ")";
}

Status Fetcher::annotated(const Fetch& fetch, Status status) const {
  if (status.ok()) return status;
  const std::uint64_t first = dataset_->block(fetch.piece.block).first_sample;
  return std::move(status).annotate(
      "reading samples [" + std::to_string(first + fetch.piece.begin) + ", " +
      std::to_string(first + fetch.piece.end) + ") of " + dataset_->url());
}

}  // namespace headrace::feed
