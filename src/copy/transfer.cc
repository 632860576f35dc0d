// An object ends exactly once, and its end takes one from the queue's count of unfinished objects
// (finish_one()): the movers end when this count is 0 and the listing is done. A path that ended
// an object twice would end the job too early, one that forgot it never. An object that is tried
// again has not ended, so a second try counts nothing.
//
// A large object is opened, its parts are moved by whoever is free, and the one who ends its last
// part posts finish_large(). Opening and finishing are blocking calls, so they run on threads of
// their own: a mover would leave its other requests waiting meanwhile (it does one itself only
// when 8192 are queued).
//
// What was begun is either completed, kept for the next run or removed. Kept is only what that run
// can recognise as parts of this very content: parts of an upload by their CRC-32C, compared with
// the local file; parts in a target file by the version of the source (resumable_version).
// Everything else may belong to a former version of the object, and mixing versions is the one
// thing that a copy must never do.
#include "copy/transfer.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "base/base64.h"
#include "base/crc32c.h"
#include "base/random.h"
#include "copy/overlap.h"
#include "store/clean_up_options.h"
#include "store/file/file_io.h"
#include "store/file/file_key.h"
#include "store/upload_parts.h"

namespace headrace::copy_detail {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
// S3's clients of today use 8 MiB: a first-byte time of 30 ms is then a quarter of a part's time.
constexpr std::uint64_t kDefaultPartBytes = 8 * kMiB;
/// Of a download, where a part is no more than a request: as the loader reads (docs/design/0039).
/// Half as many bytes are on their way for the same rate, and memory that is touched for the first
/// time is what a short copy costs most.
constexpr std::uint64_t kDefaultReadBytes = 4 * kMiB;
// Each holds a file or an upload open, and its parts are what is moved first.
constexpr std::size_t kMostLarge = 32;
constexpr std::size_t kMostFailures = 10'000;
// Blocking calls: uploads to open and complete (30 ms each: 500 a second).
constexpr std::size_t kCallThreads = 16;
// Copies by the server (30 ms a call: 4,000 a second, more than the 3,500 writes that S3 takes of a
// prefix). How many of them are on the wire, the control of the store says.
constexpr std::size_t kMostServerCopies = 128;
constexpr std::size_t kMostCalls = 8192;
// Uploads of one key that are looked into.
constexpr std::size_t kMostLooks = 64;

/// base64 of the four bytes, high one first, as S3 names CRC-32C.
std::string checksum_text(std::uint32_t crc) {
  const char bytes[] = {static_cast<char>(crc >> 24), static_cast<char>(crc >> 16),
                        static_cast<char>(crc >> 8), static_cast<char>(crc)};
  return base64({bytes, sizeof(bytes)});
}

}  // namespace

Transfer::Transfer(Store& from, Store& to, const CopyOptions& options,
                   std::unique_ptr<SlabPool> pool)
    : from_(from),
      to_(to),
      options_(options),
      from_directory_(from.local_directory()),
      local_target_(to.local_directory().empty()
                        ? nullptr
                        : std::make_unique<LocalTree>(to.local_directory())),
      copies_on_server_(from_directory_.empty() && Overlap(from, to).is_same_root()),
      settings_(from, to),
      pool_(std::move(pool)) {
  // At least eight parts fit the memory.
  const std::uint64_t most = std::max(options.memory_bytes / 8 / 4096 * 4096, std::uint64_t{4096});
  const bool is_download = local_target_ && from_directory_.empty();
  part_bytes_ = std::min(options.part_bytes != 0 ? options.part_bytes : kDefaultPartBytes, most);
  if (!local_target_) part_bytes_ = std::max(part_bytes_, to.traits().min_part_bytes);
  small_bytes_ = std::min(2 * part_bytes_, most);
  if (is_download && options.part_bytes == 0) part_bytes_ = std::min(kDefaultReadBytes, most);
  if (!local_target_) small_bytes_ = std::min(small_bytes_, to.traits().max_put_bytes);
  // Between files nothing is under way: a mover copies part after part.
  if (local_target_ && !from_directory_.empty()) queue_.set_unlimited();
}

Transfer::~Transfer() = default;

void Transfer::request_stop() noexcept {
  stop_.request_stop();
  queue_.stop();
  large_ended_.notify_all();
}

void Transfer::give_up(Status reason) {
  {
    MutexLock lock(mutex_);
    if (reason_.ok()) reason_ = std::move(reason);
  }
  request_stop();
}

void Transfer::post(std::function<void()> call) {
  ThreadPool* pool = nullptr;
  {
    MutexLock lock(mutex_);
    const std::size_t threads = copies_on_server_ ? most_server_copies() : kCallThreads;
    if (!calls_) calls_ = ThreadPool::try_create(threads, kMostCalls);
    pool = calls_.get();
  }
  if (pool == nullptr || !pool->submit(call)) call();
}

void Transfer::end_calls() {
  std::unique_ptr<ThreadPool> calls;
  {
    MutexLock lock(mutex_);
    calls = std::move(calls_);
  }
  calls.reset();  // runs what was posted
  for (const auto& large : queue_.take_large()) finish_large(large);
}

std::uint64_t Transfer::part_bytes_for(std::uint64_t size_bytes) const noexcept {
  if (local_target_) return part_bytes_;
  return upload_part_bytes(size_bytes, part_bytes_, to_.traits());
}

PublishOptions Transfer::publish_options(const Item& item) const {
  const bool keeps = options_.keeps_times || options_.rule == CopyRule::kIfDifferent;
  return {.modified_unix_s = keeps ? item.modified_unix_s : 0,
          .is_synced = options_.syncs_files,
          .if_absent = keeps_existing(),
          .mode = item.mode};
}

void Transfer::succeed(const Item& item, std::uint64_t new_bytes) {
  counts_.done += 1;
  counts_.done_bytes += new_bytes;
  if (options_.keeps_events) {
    add_event({CopyEvent::Kind::kCopied, item.from_key, item.to_key, item.size_bytes, item.etag});
  }
  queue_.finish_one();
}

void Transfer::fail_key(const std::string& key, Status status) {
  // What a stop ends is no failure of its own.
  if (is_stopped() && status.code() == Code::kCancelled) return;
  const std::uint64_t count = ++counts_.failed;
  bool gives_up = false;
  {
    MutexLock lock(mutex_);
    // Only when nothing at all succeeded: then the reason is the same for all, such as a wrong
    // key.
    gives_up = count >= options_.give_up_count && counts_.done == 0 && counts_.skipped == 0 &&
               !options_.is_dry_run;
    if (gives_up && reason_.ok()) reason_ = status.clone();
    if (failures_.size() < kMostFailures) failures_.push_back({key, std::move(status)});
  }
  if (gives_up) request_stop();
}

void Transfer::fail(const Item& item, Status status) {
  fail_key(item.from_key, std::move(status));
  queue_.finish_one();
}

void Transfer::skip(const Item& item) {
  // Of what is left to do, before it counts as ended: else a stop could take it for not done.
  counts_.found -= 1;
  counts_.found_bytes -= item.size_bytes;
  counts_.skipped += 1;
  queue_.finish_one();
}

/// kChanged when there is something.
Status Transfer::check_absent(const std::string& to_key) {
  auto found = to_.head(to_key, call_options());
  if (found) return Status(Code::kChanged, to_.object_url(to_key) + ": the object exists");
  return found.error().code() == Code::kNotFound ? Status() : std::move(found).error();
}

void Transfer::retry_unconditional(Item item) {
  item.is_unconditional = true;
  post([this, item = std::move(item)]() mutable {
    Status status = check_absent(item.to_key);
    if (status.code() == Code::kChanged) return skip(item);
    if (!status.ok()) return fail(item, std::move(status));
    if (!queue_.push_again(std::move(item))) queue_.finish_one();
  });
}

void Transfer::retry_changed(Item item, Status status) {
  if (item.is_second_try || status.code() != Code::kChanged) return fail(item, std::move(status));
  item.is_second_try = true;
  look_again(std::move(item));
}

void Transfer::look_up(Item item) { look_again(std::move(item)); }

Result<ObjectInfo> Transfer::head_source(const Item& item) {
  return from_.head(item.from_key, {.stop = stop_.get_token(), .version_id = item.version_id});
}

void Transfer::look_again(Item item) {
  post([this, item = std::move(item)]() mutable {
    auto found = head_source(item);
    if (!found) return fail(item, std::move(found).error());
    item.etag = std::move(found->etag);
    item.size_bytes = found->size_bytes;
    item.modified_unix_s = found->modified_unix_s;
    static const auto kNone = std::make_shared<const ObjectDetails>();
    item.details = found->details ? std::move(found->details) : kNone;
    // Not begin_large(): it waits for a place, and this thread is one of those that make places
    // free.
    if (!is_small(item.size_bytes)) return open_large(std::move(item));
    if (!queue_.push_again(std::move(item))) queue_.finish_one();
  });
}

void Transfer::add_event(CopyEvent event) {
  MutexLock lock(mutex_);
  events_.push_back(std::move(event));
}

std::vector<CopyEvent> Transfer::take_events() {
  MutexLock lock(mutex_);
  return std::exchange(events_, {});
}

std::vector<CopyFailure> Transfer::failures() {
  MutexLock lock(mutex_);
  std::vector<CopyFailure> copy;
  copy.reserve(failures_.size());
  for (const CopyFailure& failure : failures_)
    copy.push_back({failure.key, failure.status.clone()});
  return copy;
}

Status Transfer::take_reason() {
  MutexLock lock(mutex_);
  return std::move(reason_);
}

// --- large objects ---

std::size_t Transfer::most_server_copies() const noexcept {
  return std::clamp<std::size_t>(options_.max_in_flight, 1, kMostServerCopies);
}

void Transfer::begin_large(Item item) {
  const bool is_call = copies_on_server_ && item.size_bytes <= to_.traits().max_copy_bytes;
  const std::size_t most = is_call ? most_server_copies() : kMostLarge;
  {
    MutexLock lock(mutex_);
    while (large_count_ >= most && !is_stopped()) lock.wait(large_ended_);
    ++large_count_;
  }
  if (is_stopped()) {
    end_large();
    return queue_.finish_one();
  }
  if (is_call) {
    post([this, item = std::move(item)]() mutable { copy_on_server(std::move(item)); });
  } else {
    post([this, item = std::move(item)]() mutable { open_large(std::move(item)); });
  }
}

void Transfer::end_large() {
  {
    MutexLock lock(mutex_);
    // A small object that grew came in without being counted.
    if (large_count_ > 0) --large_count_;
  }
  large_ended_.notify_one();
}

void Transfer::copy_on_server(Item item) {
  Status status;
  if (is_stopped()) {
    status = Status(Code::kCancelled, "cancelled");
  } else {
    if (keeps_existing()) status = check_absent(item.to_key);
    if (status.code() == Code::kChanged) {
      end_large();
      return skip(item);
    }
  }
  if (status.ok()) {
    auto copied = to_.copy(item.from_key, item.to_key,
                           {.stop = stop_.get_token(), .version_id = item.version_id});
    if (!copied) status = std::move(copied).error();
  }
  end_large();
  if (!status.ok()) return fail(item, std::move(status));
  succeed(item, item.size_bytes);
}

void Transfer::open_large(Item item) {
  auto large = std::make_shared<LargeCopy>();
  large->item = std::move(item);
  large->part_bytes = part_bytes_for(large->item.size_bytes);
  large->part_count = static_cast<std::uint32_t>((large->item.size_bytes + large->part_bytes - 1) /
                                                 large->part_bytes);
  {
    MutexLock lock(large->mutex);
    large->is_there.resize(large->part_count);
  }
  Status status;
  if (is_stopped()) {
    status = Status(Code::kCancelled, "cancelled");
  } else if (large->part_bytes > options_.memory_bytes) {
    status = Status(Code::kInvalidArgument,
                    large->item.from_key + ": needs parts of " + std::to_string(large->part_bytes) +
                        " bytes, more than the memory of the copy; raise its memory");
  } else {
    status = open_ends(*large);
  }
  if (!status.ok()) {
    const Item failed = std::move(large->item);
    large.reset();
    end_large();
    return fail(failed, std::move(status));
  }
  std::uint32_t left = large->part_count;
  {
    MutexLock lock(large->mutex);
    for (std::uint32_t i = 0; i < large->part_count; ++i) {
      if (!large->is_there[i]) continue;
      --left;
      counts_.done_bytes += large->length_of(i);
      counts_.resumed_bytes += large->length_of(i);
    }
  }
  large->left_count = left;
  if (left == 0) return finish_large(large);
  queue_.add_large(std::move(large));
}

Status Transfer::open_ends(LargeCopy& large) {
  const Item& item = large.item;
  if (!from_directory_.empty()) {
    HEADRACE_TRY(file::check_key(item.from_key));
    HEADRACE_TRY_ASSIGN(large.local_source, file::open_object(from_directory_ + "/" + item.from_key,
                                                              large.source_stat));
    const std::string path = from_directory_ + "/" + item.from_key;
    if (!local_target_)
      large.direct_source = Fd(::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
    if (file::etag_of(large.source_stat) != item.etag)
      return Status(Code::kChanged,
                    item.from_key + ": the file was written to since it was listed");
  }
  if (!local_target_) return open_upload(large);
  if (large.local_source) large.item.mode = large.source_stat.st_mode & 0777;
  // Between local files a part is cheaper to copy again than to check.
  const PartialFile::Plan plan{.key = item.to_key,
                               .size_bytes = item.size_bytes,
                               .part_bytes = large.part_bytes,
                               .version = large.local_source ? "" : resumable_version(item),
                               .mode = item.mode};
  HEADRACE_TRY_ASSIGN(large.file, PartialFile::open(*local_target_, plan, stop_token()));
  MutexLock lock(large.mutex);
  for (std::uint32_t i = 0; i < large.part_count; ++i) large.is_there[i] = large.file->has_part(i);
  return {};
}

Status Transfer::open_upload(LargeCopy& large) {
  const std::string& key = large.item.to_key;
  HEADRACE_TRY_ASSIGN(large.settings, settings_of_upload(large));
  if (adopt_upload(large)) return {};
  HEADRACE_TRY_ASSIGN(large.upload_id, to_.create_upload(key, {.stop = stop_.get_token(),
                                                               .settings = large.settings.get()}));
  return {};
}

Result<std::shared_ptr<const ObjectSettings>> Transfer::settings_of_upload(const LargeCopy& large) {
  const Item& item = large.item;
  if (large.local_source) return settings_.of(item.from_key, nullptr);
  HEADRACE_TRY_ASSIGN(const ObjectInfo info, head_source(item));
  if (info.etag != item.etag)
    return Status(Code::kChanged, item.from_key + ": changed since it was listed");
  static const ObjectDetails kNone;
  return settings_.of(item.from_key, info.details ? info.details.get() : &kNone);
}

/// Goes on with an upload that holds parts of this very file, and aborts those that hold nothing:
/// whoever began one was killed, or never heard that it exists; should he be alive after all, he
/// begins another. Uploads with other parts may be under way: they are left alone.
bool Transfer::adopt_upload(LargeCopy& large) {
  const std::string& key = large.item.to_key;
  auto pending = to_.list_uploads(key, call_options());
  // A store that cannot list uploads, or will not let us: nothing is found, nothing is kept.
  if (!pending) return false;
  // Which access an upload will give, nobody tells; what else it was begun with shows in the end
  // (is_as_wanted()).
  large.is_upload_kept = large.local_source && to_.settings().acl.empty();
  if (large.item.is_second_try || !to_.settings().acl.empty()) return false;
  std::size_t looks = 0;
  // S3 lists the uploads of a key in the order in which they were begun: the newest is looked into
  // first.
  for (auto upload = pending->rbegin(); upload != pending->rend() && looks < kMostLooks; ++upload) {
    if (upload->key != key) continue;
    ++looks;
    const auto has_parts = find_uploaded_parts(large, upload->upload_id);
    if (has_parts && !*has_parts)
      static_cast<void>(to_.abort_upload(key, upload->upload_id, call_options()));
  }
  large.is_adopted = !large.upload_id.empty();
  return large.is_adopted;
}

/// Names source and content of the parts of a target file; empty when the content has no version
/// that two different contents never share.
std::string Transfer::resumable_version(const Item& item) const {
  // Unquoted with a space: a time, of servers without ETags.
  const bool is_weak = item.etag.empty() || item.etag.starts_with("W/") ||
                       (item.etag[0] != '"' && item.etag.find(' ') != std::string::npos);
  if (is_weak) return {};
  std::uint64_t hash = 0;
  for (const char c : from_.object_url(item.from_key))
    hash = mix64(hash ^ static_cast<unsigned char>(c));
  return std::to_string(hash) + " " + item.etag;
}

/// Whether the upload has parts. Takes those that an earlier run sent and that are what this one
/// would send, and the upload with them: by their checksums, which only local files can be compared
/// with at the cost of reading them. Only once.
Result<bool> Transfer::find_uploaded_parts(LargeCopy& large, const std::string& upload_id) {
  HEADRACE_TRY_ASSIGN(const std::vector<UploadedPart> found,
                      to_.list_parts(large.item.to_key, upload_id, call_options()));
  if (!large.local_source || !large.upload_id.empty()) return !found.empty();
  std::vector<std::byte> bytes;
  std::vector<bool> is_there(large.part_count);
  std::vector<UploadedPart> parts;
  const Interrupt interrupt(system_clock(), TimePoint::max(), stop_token());
  for (const UploadedPart& part : found) {
    const std::uint32_t index = part.part_number - 1;
    if (index >= large.part_count || is_there[index] || part.checksum.empty() ||
        part.size_bytes != large.length_of(index)) {
      continue;
    }
    bytes.resize(part.size_bytes);
    HEADRACE_TRY(
        file::read_exactly(large.local_source.get(), large.offset_of(index), bytes, interrupt));
    if (checksum_text(crc32c(bytes)) != part.checksum) continue;
    is_there[index] = true;
    parts.push_back(part);
  }
  if (parts.empty()) return !found.empty();
  large.upload_id = upload_id;
  MutexLock lock(large.mutex);
  large.is_there = std::move(is_there);
  large.parts = std::move(parts);
  return true;
}

void Transfer::end_part(const Unit& unit, std::uint64_t moved_bytes) {
  const std::shared_ptr<LargeCopy>& large = unit.large;
  counts_.done_bytes += moved_bytes;
  queue_.end_part(moved_bytes, unit.began);
  if (--large->left_count > 0) return;
  post([this, large] { finish_large(large); });
}

void Transfer::finish_large(const std::shared_ptr<LargeCopy>& large) {
  Status status;
  bool is_taken = false;  // its name, by another object
  if (large->has_failed) {
    MutexLock lock(large->mutex);
    status = std::move(large->error);
  } else if (is_stopped()) {
    status = Status(Code::kCancelled, "cancelled");
  } else {
    status = complete_large(*large, is_taken);
  }
  bool is_other = false;  // made by a run with other settings
  if (status.ok() && large->is_adopted && !is_stopped()) {
    auto is_same = is_as_wanted(*large);
    if (!is_same) status = std::move(is_same).error();
    is_other = is_same && !*is_same;
  }
  if (is_other) {
    Item again = std::move(large->item);
    again.is_second_try = true;
    return open_large(std::move(again));
  }
  // Somebody else has completed or aborted the upload.
  const bool may_begin_anew =
      !large->upload_id.empty() && (large->is_adopted || !large->item.is_second_try);
  if (status.code() == Code::kNotFound && may_begin_anew && !is_stopped()) {
    Item again = std::move(large->item);
    again.is_second_try = true;
    return open_large(std::move(again));
  }
  if (!status.ok()) abandon(*large, status.code());
  large->file.reset();
  const Item item = std::move(large->item);
  end_large();
  if (is_taken) return skip(item);
  if (!status.ok()) return fail(item, std::move(status));
  succeed(item, 0);
}

Status Transfer::complete_large(LargeCopy& large, bool& is_taken) {
  if (large.local_source) {
    HEADRACE_TRY(file::check_unchanged(large.local_source.get(), large.source_stat)
                     .annotate(large.item.from_key));
  }
  // Stores have no such condition for parts.
  Status status = large.file         ? large.file->publish(publish_options(large.item))
                  : keeps_existing() ? check_absent(large.item.to_key)
                                     : Status();
  is_taken = keeps_existing() && status.code() == Code::kChanged;
  if (large.file || !status.ok()) return status;
  std::vector<UploadedPart> parts;
  {
    MutexLock lock(large.mutex);
    parts = std::move(large.parts);
  }
  std::sort(parts.begin(), parts.end(), [](const UploadedPart& a, const UploadedPart& b) {
    return a.part_number < b.part_number;
  });
  auto done = to_.complete_upload(large.item.to_key, large.upload_id, parts,
                                  {.stop = stop_.get_token(), .settings = large.settings.get()});
  return done ? Status() : std::move(done).error();
}

/// Whether the object that an adopted upload became has the settings that this run wants: an
/// earlier run may have begun the upload with others.
Result<bool> Transfer::is_as_wanted(const LargeCopy& large) {
  HEADRACE_TRY_ASSIGN(const ObjectInfo info, to_.head(large.item.to_key, call_options()));
  return !info.details || has_settings(info.details->settings, *large.settings);
}

/// Keeps what the next run can go on with: after a stop and after failures that may pass.
void Transfer::abandon(LargeCopy& large, Code reason) {
  const bool may_go_on = is_stopped() || is_retryable(reason) || reason == Code::kDeadline ||
                         reason == Code::kCancelled;
  if (large.file && !may_go_on) large.file->give_up();
  if (large.upload_id.empty() || large.is_adopted || (may_go_on && large.is_upload_kept)) return;
  static_cast<void>(to_.abort_upload(large.item.to_key, large.upload_id, clean_up_options()));
}

}  // namespace headrace::copy_detail
