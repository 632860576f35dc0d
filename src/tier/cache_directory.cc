#include "tier/cache_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "base/errno_status.h"
#include "tier/cache_log.h"
#include "tier/directory_key.h"
#include "tier/extent_file.h"
#include "tier/folder.h"

namespace headrace::tier {
namespace {

constexpr std::chrono::seconds kPauseAfterFailure{5};

}  // namespace

Result<std::unique_ptr<CacheDirectory>> CacheDirectory::open(const CacheOptions& options, Fd root) {
  HEADRACE_TRY_ASSIGN(Fd plans, open_folder(root.get(), "plans", true));
  std::unique_ptr<CacheDirectory> opened(
      new CacheDirectory(options, std::move(root), std::move(plans)));
  HEADRACE_TRY(opened->start(options.is_for_reads));
  return opened;
}

CacheDirectory::CacheDirectory(const CacheOptions& options, Fd root, Fd plans)
    : path_(options.directory),
      key_(options.key),
      clock_(options.clock != nullptr ? *options.clock : system_clock()),
      root_(std::move(root)),
      plans_(std::move(plans)),
      index_(root_.get()) {}

Status CacheDirectory::start(bool is_for_reads) {
  const auto agree = [&]() -> Status {
    HEADRACE_TRY_ASSIGN(key_id_, agree_on_key(root_.get(), key_.get()));
    if (is_for_reads) return check_readable();
    return {};
  };
  auto ledger = Ledger::open(root_.get(), agree);
  if (!ledger) return std::move(ledger).error().annotate("cache " + path_);
  ledger_ = *std::move(ledger);
  ledger_->sweep();
  return {};
}

Status CacheDirectory::check_readable() const {
  if (key_id_.empty() || key_ != nullptr) return {};
  return Status(Code::kDenied,
                "is encrypted under the key " + key_id_ + "; say with cache_key= where that is");
}

Fd CacheDirectory::open_extent(const ExtentName& extent) const {
  const std::string path = extent_path(extent);
  return Fd(::openat(root_.get(), path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
}

Result<bool> CacheDirectory::unlink_extent(const ExtentName& extent) {
  const std::string path = extent_path(extent);
  Ledger::Change change(*ledger_);
  const bool is_gone = ::unlinkat(root_.get(), path.c_str(), 0) == 0;
  if (!is_gone && errno != ENOENT) {
    // A file system that takes no change: it is still there to be read.
    Status failure = errno_status(errno, "cache: deleting " + path);
    note_failure(failure);
    return failure;
  }
  if (is_gone) change.subtract(file_bytes(extent));
  index_.remove(extent);
  return is_gone;
}

void CacheDirectory::drop_extent(const ExtentName& extent) {
  static_cast<void>(unlink_extent(extent));
  index_.remove(extent);
}

void CacheDirectory::note_failure(const Status& status) {
  failures_.add();
  const bool is_passing = status.code() == Code::kNotFound || status.code() == Code::kDeadline;
  if (is_passing) return;
  log_disk_failure(path_, status);
  writes_off_until_ns_.store((clock_.now() + kPauseAfterFailure).time_since_epoch().count());
}

bool CacheDirectory::is_done(const Status& status) {
  if (!status.ok()) note_failure(status);
  return status.ok();
}

bool CacheDirectory::pauses_writing() const {
  return clock_.now().time_since_epoch().count() < writes_off_until_ns_.load();
}

void CacheDirectory::append_metrics(MetricList& out) const {
  append_counter(out, "cache.failures", "calls", failures_.value());
  append_gauge(out, "cache.used_bytes", "bytes", static_cast<double>(ledger_->used_bytes()));
}

}  // namespace headrace::tier
