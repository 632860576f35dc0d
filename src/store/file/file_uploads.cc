#include "store/file/file_uploads.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/errno_status.h"
#include "store/file/file_io.h"
#include "store/file/file_key.h"

namespace headrace::file {
namespace {

constexpr const char* kOwner = "/owner";

/// Creates and locks the owner file; an empty Fd when someone who cleans up was faster (the folder
/// is gone then).
Result<Fd> take_ownership(const std::string& folder) {
  const std::string path = folder + kOwner;
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd && errno == ENOENT) return Fd();
  if (!fd) return errno_status(errno, "create " + path);
  static_cast<void>(::flock(fd.get(), LOCK_EX));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return errno_status(errno, "stat " + path);
  return info.st_nlink == 0 ? Fd() : std::move(fd);
}

}  // namespace

FileUploads::~FileUploads() {
  for (const auto& [id, upload] : uploads_) remove_directory(upload.folder);
}

std::string FileUploads::directory_of(const std::string& key) const {
  const std::size_t slash = key.rfind('/');
  return slash == std::string::npos ? root_ : root_ + "/" + key.substr(0, slash);
}

std::string FileUploads::part_path(const std::string& folder, std::uint32_t part_number) {
  return folder + "/part-" + std::to_string(part_number);
}

void FileUploads::remove_stale(const std::string& directory) noexcept {
  DIR* const entries = ::opendir(directory.c_str());
  if (entries == nullptr) return;
  while (const dirent* entry = ::readdir(entries)) {
    if (!std::string_view(entry->d_name).starts_with(kUploadPrefix)) continue;
    const std::string folder = directory + "/" + entry->d_name;
    Fd fd(::open((folder + kOwner).c_str(), O_RDWR | O_CLOEXEC));
    // Without an owner file: about to get one, or its creator died before. rmdir() fails unless it
    // is empty; a creator who finds its folder gone makes another.
    if (!fd && errno == ENOENT) ::rmdir(folder.c_str());
    if (fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) remove_directory(folder);
  }
  ::closedir(entries);
}

Result<std::string> FileUploads::create(const std::string& key) {
  const std::string directory = directory_of(key);
  HEADRACE_TRY(make_directories(directory));
  remove_stale(directory);
  while (true) {
    std::string folder = directory + "/" + std::string(kUploadPrefix) + "XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr) {
      if (errno == ENOTDIR)
        return Status(Code::kUnsupported, "an object is in the way of directory " + directory);
      return errno_status(errno, "create " + folder);
    }
    HEADRACE_TRY_ASSIGN(Fd owner, take_ownership(folder));
    if (!owner) continue;
    std::string id = folder.substr(folder.size() - 6);
    MutexLock lock(mutex_);
    // In another directory the same may have been drawn.
    if (uploads_.try_emplace(id, Upload{key, folder, std::move(owner)}).second) return id;
    remove_directory(folder);
  }
}

Result<std::string> FileUploads::find(std::string_view key, std::string_view id) {
  MutexLock lock(mutex_);
  const auto it = uploads_.find(id);
  if (it == uploads_.end() || it->second.key != key)
    return Status(Code::kNotFound, "no such upload");
  return it->second.folder;
}

Result<std::string> FileUploads::put_part(const Request& request, std::span<const std::byte> bytes,
                                          const Interrupt& interrupt) {
  HEADRACE_TRY_ASSIGN(const std::string folder, find(request.key, request.upload_id));
  HEADRACE_TRY_ASSIGN(TemporaryFile file, TemporaryFile::create(folder));
  HEADRACE_TRY(write_all(file, bytes, interrupt));
  struct stat info {};
  if (::fstat(file.fd(), &info) != 0) return errno_status(errno, "stat " + file.path());
  HEADRACE_TRY(file.publish(part_path(folder, request.part_number)));
  return etag_of(info);
}

Status FileUploads::assemble(std::string_view key, std::string_view id,
                             std::span<const UploadedPart> parts, TemporaryFile& file,
                             const Interrupt& interrupt) {
  HEADRACE_TRY_ASSIGN(const std::string folder, find(key, id));
  for (const UploadedPart& part : parts) {
    struct stat info {};
    auto from = open_object(part_path(folder, part.part_number), info);
    if (!from || etag_of(info) != part.etag) {
      return Status(Code::kInvalidArgument,
                    "part " + std::to_string(part.part_number) + " was not uploaded as named");
    }
    HEADRACE_TRY(
        append_file(file, from->get(), static_cast<std::uint64_t>(info.st_size), interrupt));
  }
  return {};
}

Status FileUploads::discard(std::string_view key, std::string_view id) {
  HEADRACE_TRY_ASSIGN(const std::string folder, find(key, id));
  remove_directory(folder);
  MutexLock lock(mutex_);
  // Another call may have ended it meanwhile.
  if (const auto found = uploads_.find(id); found != uploads_.end()) uploads_.erase(found);
  return {};
}

}  // namespace headrace::file
