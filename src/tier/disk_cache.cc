// Invariants:
// - Whoever reads never waits for whoever writes: files are read and written by threads of their
//   own, and what finds no memory or no room to be written in is left out.
// - A directory has one object in this process (and one more that knows no key of it), so that its
//   limit and its memory count once.
#include "tier/disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/errno_status.h"
#include "base/per_process.h"
#include "tier/cache_log.h"
#include "tier/folder.h"

namespace headrace::tier {
namespace {

constexpr std::size_t kReadQueue = 16384;
constexpr std::string_view kVersionFolder = "v1";

Status check(const CacheOptions& options) {
  if (options.directory.empty())
    return Status(Code::kInvalidArgument, "cache: the directory has no name");
  if (options.reader_count == 0 || options.writer_count == 0)
    return Status(Code::kInvalidArgument, "cache: it needs threads to read and to write");
  return {};
}

Result<Fd> open_root(std::string directory, Access access) {
  // With a slash at its end it would be its own parent, made as that is: by the umask.
  while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
  std::error_code error;
  const auto parent = std::filesystem::absolute(directory, error).parent_path();
  const bool is_parent_new = !error && std::filesystem::create_directories(parent, error);
  if (error) return errno_status(error.value(), "cache: making the directory " + parent.string());
  if (is_parent_new) log_new_parent(directory, parent.string());
  HEADRACE_TRY_ASSIGN(const Fd top, open_folder_for(access, AT_FDCWD, directory));
  HEADRACE_TRY_ASSIGN(Fd root, open_folder_for(access, top.get(), std::string(kVersionFolder)));
  if (access == Access::kGroup && access_of(root.get()) != Access::kGroup)
    return Status(
        Code::kInvalidArgument,
        "cache: " + directory +
            " is not shared with its group: it was made for its owner alone, or its maker "
            "is not in the group. Give another directory, or delete this one");
  return root;
}

/// The caches of this process (per_process()) by device and inode of their folders, and by their
/// key's id: a directory has one object, whatever it is called, and one more that knows no key of
/// it.
struct Registry {
  using Name = std::tuple<std::uint64_t, std::uint64_t, std::string>;
  Mutex mutex;
  std::map<Name, std::weak_ptr<DiskCache>> caches HEADRACE_GUARDED_BY(mutex);
};

}  // namespace

Result<std::shared_ptr<DiskCache>> DiskCache::create(const CacheOptions& options) {
  HEADRACE_TRY(check(options));
  HEADRACE_TRY_ASSIGN(
      Fd root,
      open_root(options.directory, options.is_group_shared ? Access::kGroup : Access::kOwner));
  struct stat info {};
  if (::fstat(root.get(), &info) != 0) return errno_status(errno, "cache: " + options.directory);
  auto& all = per_process<Registry>();
  MutexLock lock(all.mutex);
  std::weak_ptr<DiskCache>& known =
      all.caches[{info.st_dev, info.st_ino, options.key != nullptr ? options.key->id() : ""}];
  if (auto cache = known.lock()) {
    HEADRACE_TRY(cache->share(options));
    return cache;
  }
  HEADRACE_TRY_ASSIGN(auto cache, make(options, std::move(root)));
  known = cache;
  return cache;
}

Status DiskCache::share(const CacheOptions& options) {
  if (Status status = check_readable(); options.is_for_reads && !status.ok())
    return std::move(status).annotate("cache " + options.directory);
  if (options.limit_bytes != 0 && !evictor_.agree_on_limit(options.limit_bytes))
    return Status(Code::kInvalidArgument,
                  "cache: " + options.directory +
                      " is open in this process with another limit; give the same cache_limit");
  writer_->allow_buffers(options.buffer_bytes);
  return {};
}

Result<std::shared_ptr<DiskCache>> DiskCache::make(const CacheOptions& options, Fd root) {
  HEADRACE_TRY_ASSIGN(auto directory, CacheDirectory::open(options, std::move(root)));
  std::shared_ptr<DiskCache> cache(new DiskCache(options, std::move(directory)));
  HEADRACE_TRY_ASSIGN(cache->writer_,
                      ExtentWriter::create(*cache->directory_, cache->evictor_, options));
  return cache;
}

DiskCache::DiskCache(const CacheOptions& options, std::unique_ptr<CacheDirectory> directory)
    : options_(options),
      directory_(std::move(directory)),
      pins_(options.directory + "/" + std::string(kVersionFolder), directory_->root()),
      evictor_(*directory_, pins_, options),
      reader_(*directory_, pace_),
      readers_(options.reader_count, kReadQueue),
      delayed_(readers_) {}

// --- for readers ---

void DiskCache::read(const ExtentInfo& wanted, std::span<std::byte> out, TimePoint deadline,
                     Done done) {
  static_cast<void>(deadline);  // A disk takes no time to speak of, or cannot be stopped.
  evictor_.note_lookup();
  std::uint64_t object_size = 0;
  const Found found = reader_.read(wanted.name, out, object_size);
  done(found, object_size);
}

DiskCache::Flight DiskCache::begin_flight(const ExtentName& extent) {
  {
    MutexLock lock(flights_mutex_);
    if (!flights_.insert(extent).second) return {};
  }
  if (directory_->ledger().try_begin_flight(extent)) return {*this, extent};
  MutexLock lock(flights_mutex_);
  flights_.erase(extent);
  return {};
}

void DiskCache::end_flight(const ExtentName& extent) {
  MutexLock lock(flights_mutex_);
  directory_->ledger().end_flight(extent);
  flights_.erase(extent);
}

void DiskCache::drop(const ExtentName& range) {
  for (const ExtentName& extent : directory_->index().overlapping(range))
    directory_->drop_extent(extent);
}

std::shared_ptr<OwnPlan> DiskCache::publish_plan(std::vector<PlanEntry> entries) {
  auto plan = OwnPlan::publish(directory_->plans(), std::move(entries));
  if (plan) return *std::move(plan);
  directory_->note_failure(plan.error());
  return nullptr;
}

// --- for people ---

Result<CacheUsage> DiskCache::usage() {
  CacheUsage usage;
  Status status;
  const auto count = [&]() -> std::optional<std::uint64_t> {
    usage = {.limit_bytes = evictor_.limit_bytes(), .key_id = directory_->key_id()};
    status = directory_->index().visit([&](const ExtentName& extent) {
      ++usage.extent_count;
      usage.file_bytes += file_bytes(extent);
      usage.data_bytes += extent.length_bytes;
    });
    return status.ok() ? std::optional(usage.file_bytes) : std::nullopt;
  };
  // As all are looked at anyway, the ledger learns what there is.
  if (!directory_->ledger().recount(count)) count();
  if (!status.ok()) return status.clone();
  return usage;
}

Status DiskCache::list(const std::function<void(const CachedExtent&)>& visit) {
  return directory_->index().visit([&](const ExtentName& extent) {
    const Fd file = directory_->open_extent(extent);
    if (!file) return;
    CachedExtent out{.path = std::string(kVersionFolder) + "/" + extent_path(extent),
                     .url = {},
                     .etag = {},
                     .offset_bytes = extent.offset_bytes,
                     .length_bytes = extent.length_bytes,
                     .file_bytes = file_bytes(extent)};
    if (auto info = read_info(file.get(), &extent)) {
      out.url = std::move(info->url);
      out.etag = std::move(info->etag);
      out.object_size_bytes = info->object_size_bytes;
    }
    visit(out);
  });
}

Status DiskCache::check_file(int file, const ExtentName& extent,
                             std::vector<std::byte>& scratch) const {
  struct stat info {};
  if (::fstat(file, &info) != 0) return errno_status(errno, "cache: " + extent_path(extent));
  // First: a name may claim more bytes than there is memory.
  if (static_cast<std::uint64_t>(info.st_size) != file_bytes(extent))
    return Status(Code::kCorrupt, "cached file: of another size than its name says");
  if (auto header = read_info(file, &extent); !header) return std::move(header).error();
  scratch.resize(extent.length_bytes);
  const bool is_key_missing = !directory_->key_id().empty() && options_.key == nullptr;
  if (is_key_missing) return check_sums(file, extent, scratch);
  std::uint64_t ignored = 0;
  return read_extent(file, extent, 0, scratch, ignored, options_.key.get());
}

Result<CacheCheck> DiskCache::verify(const std::function<bool(std::uint64_t)>& progress) {
  CacheCheck check;
  std::vector<std::byte> bytes;
  Status failure;  // The first.
  bool goes_on = true;
  HEADRACE_TRY(directory_->index().visit([&](const ExtentName& extent) {
    if (!goes_on) return;
    const Fd file = directory_->open_extent(extent);
    if (!file && errno == ENOENT) return;
    Status status = file ? Status() : errno_status(errno, "cache: opening " + extent_path(extent));
    const bool is_whole = file && check_file(file.get(), extent, bytes).ok();
    ++check.extent_count;
    if (is_whole) check.data_bytes += extent.length_bytes;
    // What cannot be read goes as well; what cannot be opened is perhaps another user's.
    if (file && !is_whole) {
      ++check.broken_count;
      if (auto gone = directory_->unlink_extent(extent); !gone) status = std::move(gone).error();
    }
    if (failure.ok()) failure = std::move(status);
    goes_on = progress == nullptr || progress(check.data_bytes);
  }));
  if (failure.ok()) return check;
  return std::move(failure).annotate(
      options_.directory + ": of " + std::to_string(check.extent_count) + " extents " +
      std::to_string(check.broken_count) +
      " are broken, and some cannot be deleted or looked at, the first of them");
}

Result<std::uint64_t> DiskCache::remove(const std::string& url_prefix) {
  std::vector<ExtentName> matching;
  if (url_prefix.empty()) {
    HEADRACE_TRY(
        directory_->index().visit([&](const ExtentName& extent) { matching.push_back(extent); }));
    return remove_all(matching);
  }
  HEADRACE_TRY(list([&](const CachedExtent& extent) {
    if (!extent.url.starts_with(url_prefix)) return;
    if (const auto name = parse_file_name(extent.path.substr(extent.path.rfind('/') + 1)))
      matching.push_back(*name);
  }));
  return remove_all(matching);
}

Result<std::uint64_t> DiskCache::remove_all(const std::vector<ExtentName>& extents) {
  std::uint64_t gone = 0;
  Status failure;
  for (const ExtentName& extent : extents) {
    auto is_gone = directory_->unlink_extent(extent);
    if (is_gone && *is_gone) gone += file_bytes(extent);
    if (!is_gone && failure.ok()) failure = std::move(is_gone).error();
  }
  if (!failure.ok()) return failure;
  return gone;
}

void DiskCache::append_metrics(MetricList& out) const {
  reader_.append_metrics(out);
  append_counter(out, "cache.misses", "reads", misses_.value());
  append_counter(out, "cache.miss_bytes", "bytes", miss_bytes_.value());
  append_counter(out, "cache.waits", "reads", waits_.value());
  writer_->append_metrics(out);
  evictor_.append_metrics(out);
  directory_->append_metrics(out);
}

}  // namespace headrace::tier

namespace headrace {

Result<std::shared_ptr<Cache>> Cache::open(const CacheOptions& options) {
  HEADRACE_TRY_ASSIGN(auto cache, tier::DiskCache::create(options));
  return std::shared_ptr<Cache>(std::move(cache));
}

}  // namespace headrace
