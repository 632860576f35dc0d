// A listing is a list of segments in byte order of their keys, each with pages of its own under
// way. A segment is split where its keys or directories show that much is left, by a name that lies
// in it.
//
// Invariants:
// - Segments do not overlap, and together they are the whole range: `after` and `until` of
// neighbours
//   are the same key, and belong to one of the two (keeps_until).
// - What is given out is in byte order: from the first segment until it is done, then from the
// next.
//   A store that lists in no order is read page after page instead (is_parallel_).
// - A guess (a segment begun where nothing may lie) costs one page and is paid from credit_, which
// full
//   pages earn: listing never makes more than a fixed share of requests in vain.
#include "store/parallel_list.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace headrace {
namespace {

constexpr double kPageKeys = 1000;  // what S3, GCS and the largest ListRequest::page_size allow
// Less than this ahead is as quickly listed page by page.
constexpr double kWorthSplitting = 4;
// Trees of fewer pages are not searched for directories.
constexpr std::uint64_t kPagesBeforeDirectories = 3;
// A listing of its own for a directory is worth it from half a page on.
constexpr double kWorthOwnListing = 500;
constexpr double kGroupKeys = 2000;
constexpr std::uint64_t kPagesPerCredit = 4;
constexpr std::size_t kReadyPerSegment = 2;

bool has_directory_below(std::string_view key, std::string_view directory) {
  return key.starts_with(directory) && key.find('/', directory.size()) != std::string_view::npos;
}

}  // namespace

ParallelList::ParallelList(Store& store, std::string prefix, const ParallelListOptions& options,
                           CallOptions call)
    : store_(store),
      prefix_(std::move(prefix)),
      options_(options),
      call_(std::move(call)),
      caller_stop_(call_.stop),
      link_(caller_stop_, [this] { stop_.request_stop(); }),
      is_parallel_(options.max_in_flight > 1 && !options.is_one_level && !store.traits().is_local &&
                   store.traits().lists_in_order) {
  call_.stop = stop_.get_token();
  Segment all;
  all.prefix = prefix_;
  all.directory = prefix_;
  all.space = KeySpace(prefix_.size());
  segments_.push_back(std::move(all));
}

ParallelList::~ParallelList() {
  stop_.request_stop();
  {
    MutexLock lock(mutex_);
    is_ending_ = true;
  }
  work_.notify_all();
  threads_.reset();
}

std::uint64_t ParallelList::request_count() const {
  MutexLock lock(mutex_);
  return request_count_;
}

Result<std::vector<ObjectInfo>> ParallelList::next() {
  std::vector<ObjectInfo> out;
  MutexLock lock(mutex_);
  while (true) {
    if (error_.ok() && caller_stop_.stop_requested()) {
      fail(Status(Code::kCancelled, "LIST " + store_.object_url(prefix_) + ": cancelled"));
    }
    if (!error_.ok()) return error_.clone();
    if (take_ready(out)) {
      work_.notify_all();
      return out;
    }
    if (segments_.empty()) return out;
    if (threads_ != nullptr) {
      lock.wait(ready_);
      continue;
    }
    const Job job = page_job(segments_.begin());
    lock.unlock();
    auto page = store_.list(job.request, call_);
    lock.lock();
    finish(job, std::move(page));
    const bool goes_on = is_parallel_ && error_.ok() && !segments_.front().is_done;
    if (!goes_on) continue;
    lock.unlock();
    start_threads();
    lock.lock();
  }
}

void ParallelList::start_threads() {
  threads_ = ThreadPool::try_create(options_.max_in_flight, options_.max_in_flight);
  if (threads_ == nullptr) return;  // One page after the other, then.
  for (std::size_t i = 0; i < options_.max_in_flight; ++i) threads_->submit([this] { run(); });
}

void ParallelList::run() {
  MutexLock lock(mutex_);
  while (!is_over()) {
    const Job job = pick_job();
    if (job.kind == JobKind::kNone) {
      const bool is_all_done = std::all_of(segments_.begin(), segments_.end(),
                                           [](const Segment& s) { return s.is_done; });
      if (is_all_done) return;
      lock.wait(work_);
      continue;
    }
    lock.unlock();
    auto page = store_.list(job.request, call_);
    lock.lock();
    finish(job, std::move(page));
    work_.notify_all();
    ready_.notify_all();
  }
}

bool ParallelList::take_ready(std::vector<ObjectInfo>& out) {
  for (auto it = segments_.begin(); it != segments_.end();) {
    if (!it->ready.empty()) {
      out = std::move(it->ready.front());
      it->ready.pop_front();
      --buffered_;
      return true;
    }
    if (it->is_done && !it->is_pinned) {
      it = segments_.erase(it);
    } else if (options_.is_ordered) {
      return false;
    } else {
      ++it;
    }
  }
  return false;
}

void ParallelList::fail(Status status) {
  if (!error_.ok()) return;
  error_ = std::move(status);
  stop_.request_stop();
}

bool ParallelList::may_run(const Segment& segment, std::size_t index) const {
  if (segment.is_running || segment.is_done) return false;
  if (buffered_ < options_.max_buffered_pages) return true;
  // In order, what is taken next must never wait for what is buffered behind it.
  return options_.is_ordered && index < options_.max_in_flight &&
         segment.ready.size() < kReadyPerSegment;
}

ParallelList::Job ParallelList::page_job(Segments::iterator segment) {
  segment->is_running = true;
  ++request_count_;
  Job job{JobKind::kPage, segment, {}};
  job.request.prefix = segment->prefix;
  if (options_.is_one_level) job.request.delimiter = "/";
  job.request.continuation = segment->continuation;
  if (segment->continuation.empty()) job.request.start_after = segment->after;
  return job;
}

ParallelList::Job ParallelList::pick_job() {
  std::size_t index = 0;
  for (auto it = segments_.begin(); it != segments_.end(); ++it, ++index) {
    if (may_run(*it, index)) return page_job(it);
  }
  const bool may_split = is_parallel_ && credit_ > 0 && buffered_ < options_.max_buffered_pages;
  return may_split ? split_job() : Job{};
}

double ParallelList::pages_left(const Segment& segment) const {
  const KeySpace& space = segment.space;
  const double low = space.position(segment.last_key);
  const double per_page =
      (low - space.position(segment.first_key)) / static_cast<double>(segment.page_count);
  if (!(per_page > 0)) return 0;
  return ((segment.has_until ? space.position(segment.until) : 1.0) - low) / per_page;
}

ParallelList::Job ParallelList::split_job() {
  const bool can_guess = store_.traits().can_start_after;
  std::vector<std::pair<double, Segments::iterator>> candidates;
  for (auto it = segments_.begin(); it != segments_.end(); ++it) {
    if (it->page_count == 0 || it->is_done || it->is_pinned) continue;
    if (it->may_have_directories && has_directory_below(it->last_key, it->directory)) {
      if (full_pages_ < kPagesBeforeDirectories) continue;
      it->is_pinned = true;
      --credit_;
      ++request_count_;
      Job job{JobKind::kDirectories, it, {}};
      job.request.prefix = it->directory;
      job.request.delimiter = "/";
      return job;
    }
    if (can_guess) candidates.emplace_back(pages_left(*it), it);
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [left, segment] : candidates) {
    if (left < kWorthSplitting) break;
    if (!split_at_guess(segment)) continue;
    --credit_;
    return page_job(std::next(segment));
  }
  return {};
}

bool ParallelList::split_at_guess(Segments::iterator segment) {
  const KeySpace& space = segment->space;
  const double low = space.position(segment->last_key);
  const double high = segment->has_until ? space.position(segment->until) : 1.0;
  const double per_page = (high - low) / pages_left(*segment);
  double target = (low + high) / 2;
  // Where the keys end nobody knows: numbers with leading zeros end far below the middle.
  if (!segment->has_until) target = std::min(target, low + segment->reach * per_page);
  const std::string at = segment->prefix + space.name_at(target, per_page / 2);
  if (at <= segment->last_key || is_past(*segment, at) || at == segment->until) return false;
  Segment upper;
  upper.prefix = segment->prefix;
  upper.after = at;
  upper.until = segment->until;
  upper.has_until = segment->has_until;
  upper.keeps_until = segment->keeps_until;
  upper.space = segment->space;
  upper.first_key = at;
  upper.reach = segment->reach * 2;
  upper.is_guess = true;
  upper.may_have_directories = segment->may_have_directories;
  upper.directory = segment->directory;
  segment->until = at;
  segment->has_until = true;
  segment->keeps_until = true;
  segments_.insert(std::next(segment), std::move(upper));
  was_split_ = true;
  return true;
}

bool ParallelList::is_past(const Segment& segment, const std::string& key) {
  if (!segment.has_until) return false;
  return segment.keeps_until ? key > segment.until : key >= segment.until;
}

void ParallelList::finish(const Job& job, Result<ListPage>&& page) {
  Segment& segment = *job.segment;
  (job.kind == JobKind::kPage ? segment.is_running : segment.is_pinned) = false;
  if (!page) return fail(std::move(page).error());
  if (job.kind == JobKind::kDirectories) return take_directories(job.segment, *std::move(page));
  if (Status status = take_page(segment, *std::move(page)); !status.ok()) fail(std::move(status));
}

Status ParallelList::take_page(Segment& segment, ListPage&& page) {
  const std::string what = "LIST " + store_.object_url(segment.prefix);
  if (!page.continuation.empty() &&
      !segment.tokens.insert(std::hash<std::string>()(page.continuation)).second) {
    return Status(Code::kCorrupt, what + ": the store continues twice at the same place");
  }
  std::vector<ObjectInfo>& objects = page.objects;
  const std::string* before = &segment.last_key;
  for (const ObjectInfo& info : objects) {
    if (info.key <= *before && !before->empty() && store_.traits().lists_in_order) {
      if (was_split_) {
        return Status(Code::kCorrupt, what + ": the store lists \"" + info.key + "\" after \"" +
                                          *before + "\", out of byte order");
      }
      is_parallel_ = false;  // page after page any order will do
    }
    before = &info.key;
  }
  bool is_at_end = page.continuation.empty();
  const std::size_t listed = objects.size();
  if (listed > 0) {
    is_at_end = is_at_end || is_past(segment, objects.back().key);
    if (segment.first_key.empty()) segment.first_key = objects.front().key;
    segment.last_key = objects.back().key;
    constexpr std::size_t kSample = 16;
    for (std::size_t i = 0; i < listed; i += kSample) segment.space.learn(objects[i].key);
    segment.space.learn(segment.last_key);
  }
  std::erase_if(objects, [&](const ObjectInfo& info) {
    return is_past(segment, info.key) || (!segment.after.empty() && info.key <= segment.after);
  });
  ++segment.page_count;
  segment.key_count += objects.size();
  if (static_cast<double>(objects.size()) >= kWorthOwnListing &&
      ++full_pages_ % kPagesPerCredit == 0)
    ++credit_;
  if (std::exchange(segment.is_guess, false) && !objects.empty()) credit_ += 2;
  if (!objects.empty()) {
    segment.ready.push_back(std::move(objects));
    ++buffered_;
  }
  segment.continuation = std::move(page.continuation);
  segment.is_done = is_at_end;
  return {};
}

void ParallelList::take_directories(Segments::iterator segment, ListPage&& page) {
  if (segment->is_done) return;
  segment->may_have_directories = false;
  if (!page.continuation.empty()) return;  // so many that they are like keys
  // Those before the last listed key say how many keys one has; those after it are to be split off.
  const std::string& last = segment->last_key;
  auto& directories = page.common_prefixes;
  const auto after = std::upper_bound(directories.begin(), directories.end(), last);
  const auto begun =
      static_cast<double>(after - std::upper_bound(directories.begin(), after, segment->after));
  const bool is_inside = after != directories.begin() && last.starts_with(*std::prev(after));
  const std::string inside = is_inside ? *std::prev(after) : std::string();
  directories.erase(directories.begin(), after);
  std::erase_if(directories, [&](const std::string& d) { return is_past(*segment, d); });
  std::erase_if(page.objects, [&](const ObjectInfo& info) {
    return info.key <= last || is_past(*segment, info.key);
  });
  const double keys_each = static_cast<double>(segment->key_count) / std::max(begun, 1.0);
  if (directories.empty()) {
    if (is_inside && page.objects.empty()) {
      segment->directory = inside;
      segment->may_have_directories = true;
    }
    return;
  }
  const double left_pages = static_cast<double>(directories.size()) * keys_each / kPageKeys;
  if (left_pages < kWorthSplitting) return;
  if (keys_each >= kWorthOwnListing) {
    split_by_child(segment, std::move(page));
  } else if (store_.traits().can_start_after) {
    split_by_group(segment, directories, static_cast<std::size_t>(kGroupKeys / keys_each) + 1);
  }
}

void ParallelList::split_by_child(Segments::iterator segment, ListPage&& page) {
  // The next directory stays: its page may be on the way.
  const auto& directories = page.common_prefixes;
  auto object = std::upper_bound(
      page.objects.begin(), page.objects.end(), directories.front(),
      [](const std::string& name, const ObjectInfo& info) { return name < info.key; });
  if (directories.size() < 2 && object == page.objects.end()) return;
  const auto place = std::next(segment);
  const auto objects_below = [&](const std::string* name) {
    std::vector<ObjectInfo> some;
    for (; object != page.objects.end() && (name == nullptr || object->key < *name); ++object)
      some.push_back(std::move(*object));
    return some;
  };
  std::string first =
      object != page.objects.end() && (directories.size() < 2 || object->key < directories[1])
          ? object->key
          : directories[1];
  for (std::size_t i = 1; i < directories.size(); ++i) {
    insert_listed(place, objects_below(&directories[i]));
    Segment child;
    child.prefix = directories[i];
    child.directory = directories[i];
    child.space = KeySpace(child.prefix.size());
    child.until = segment->until;
    child.has_until = segment->has_until;
    child.keeps_until = segment->keeps_until;
    segments_.insert(place, std::move(child));
  }
  insert_listed(place, objects_below(nullptr));
  segment->until = std::move(first);
  segment->has_until = true;
  segment->keeps_until = false;
  was_split_ = true;
}

void ParallelList::insert_listed(Segments::iterator place, std::vector<ObjectInfo>&& objects) {
  if (objects.empty()) return;
  Segment listed;
  listed.is_done = true;
  listed.ready.push_back(std::move(objects));
  ++buffered_;
  segments_.insert(place, std::move(listed));
}

void ParallelList::split_by_group(Segments::iterator segment,
                                  const std::vector<std::string>& directories, std::size_t group) {
  const auto place = std::next(segment);
  auto lower = segment;
  for (std::size_t i = group; i < directories.size(); i += group) {
    Segment upper;
    upper.prefix = segment->prefix;
    upper.after = directories[i];
    upper.first_key = directories[i];
    upper.space = segment->space;
    upper.until = std::exchange(lower->until, directories[i]);
    upper.has_until = std::exchange(lower->has_until, true);
    upper.keeps_until = std::exchange(lower->keeps_until, true);
    upper.may_have_directories = false;
    lower = segments_.insert(place, std::move(upper));
    was_split_ = true;
  }
}

Result<std::vector<ObjectInfo>> list_all(Store& store, const std::string& prefix,
                                         const CallOptions& call,
                                         const std::function<void(std::uint64_t)>& progress) {
  std::vector<ObjectInfo> all;
  ParallelList list(store, prefix, {}, call);
  while (true) {
    HEADRACE_TRY_ASSIGN(std::vector<ObjectInfo> some, list.next());
    if (progress) progress(all.size() + some.size());
    if (some.empty()) return all;
    std::move(some.begin(), some.end(), std::back_inserter(all));
  }
}

}  // namespace headrace
