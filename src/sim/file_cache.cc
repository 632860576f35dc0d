#include "sim/file_cache.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "http/date.h"
#include "sim/object_fields.h"
#include "sim/object_sums.h"

namespace headrace::sim {
namespace {

std::shared_ptr<const OpenFile> open_file(const std::string& path) {
  auto file = std::make_shared<OpenFile>();
  file->fd = Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat st;
  if (!file->fd || ::fstat(file->fd.get(), &st) != 0) return nullptr;
  if (!S_ISREG(st.st_mode)) {
    errno = ENOENT;
    return nullptr;
  }
  file->info = info_of(st);
  read_seal(file->fd.get(), file->info);
  if (file->info.is_sealed) file->sums = read_sums(file->fd.get());
  file->stored = read_fields(file->fd.get());
  file->etag = etag_of(file->info);
  const std::chrono::sys_seconds modified(
      std::chrono::seconds(file->info.modified_ns / 1'000'000'000));
  file->fields = "Last-Modified: " + http::format_http_date(modified) + "\r\nETag: " + file->etag +
                 "\r\nAccept-Ranges: bytes\r\n";
  file->kept = answered_fields(file->stored, Target());
  // S3 leaves the standard class out.
  if (const StorageClass known = file->info.tag.storage_class; known != StorageClass::kStandard) {
    file->fields += "x-amz-storage-class: " + std::string(name_of(known)) + "\r\n";
  }
  return file;
}

}  // namespace

std::string other_etag(std::string_view etag) {
  std::string other(etag);
  for (char& c : other) {
    if (c == '-') break;  // the part count stays
    if (c != '"') c = c == 'f' ? '0' : 'f';
  }
  return other;
}

std::shared_ptr<const OpenFile> FileCache::open(const std::string& path) {
  struct stat st;
  const auto found = index_.find(path);
  if (found != index_.end()) {
    const auto entry = found->second;
    if (::stat(path.c_str(), &st) == 0) {
      FileInfo now = info_of(st);
      now.tag = entry->file->info.tag;
      now.is_sealed = entry->file->info.is_sealed;
      if (now == entry->file->info) {
        entries_.splice(entries_.begin(), entries_, entry);
        return entry->file;
      }
    }
    index_.erase(found);
    entries_.erase(entry);
  }
  auto file = open_file(path);
  if (!file) return nullptr;
  if (entries_.size() >= capacity_count_) {
    index_.erase(entries_.back().path);
    entries_.pop_back();
  }
  entries_.push_front({path, file});
  index_.emplace(entries_.front().path, entries_.begin());
  return file;
}

}  // namespace headrace::sim
