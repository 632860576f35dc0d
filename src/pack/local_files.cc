#include "pack/local_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "base/errno_status.h"
#include "base/read_at.h"
#include "store/file/file_key.h"

namespace headrace::pack_detail {

Status LocalFiles::changed(const char* what) const {
  return Status(Code::kChanged, root_ + "/" + file_->key + ": " + what + " since it was listed");
}

Status LocalFiles::open(const ObjectInfo& file) {
  file_ = &file;
  HEADRACE_TRY(file::check_key(file.key));
  const std::string_view key = file.key;
  const std::size_t cut = key.rfind('/') + 1;  // 0 without a slash.
  if (!directory_ || key.substr(0, cut) != directory_key_) {
    directory_key_ = key.substr(0, cut);
    const std::string path = root_ + "/" + directory_key_;
    directory_ = Fd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!directory_) return not_opened();
  }
  name_ = key.substr(cut);
  // O_NONBLOCK: opening a fifo must not wait for its writer. No effect on files.
  fd_ = Fd(::openat(directory_.get(), name_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  return fd_ ? Status() : not_opened();
}

Status LocalFiles::not_opened() const {
  if (errno == ENOENT || errno == ENOTDIR) return changed("was removed");
  return errno_status(errno, "open " + root_ + "/" + file_->key);
}

Status LocalFiles::read(std::uint64_t offset_bytes, std::span<std::byte> out) {
  const std::int64_t count = read_at(fd_.get(), offset_bytes, out);
  if (count < 0) return errno_status(static_cast<int>(-count), "read " + root_ + "/" + file_->key);
  if (static_cast<std::size_t>(count) < out.size()) return changed("became shorter");
  return {};
}

Status LocalFiles::check() const {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0)
    return errno_status(errno, "stat " + root_ + "/" + file_->key);
  if (static_cast<std::uint64_t>(info.st_size) == file_->size_bytes &&
      file::etag_of(info) == file_->etag)
    return {};
  return changed("was written to");
}

}  // namespace headrace::pack_detail
