#pragma once
/// \file
/// FileUploads: multipart uploads as folders of part files,
/// `<directory of the object>/.headrace-upload-<id>/part-<number>`: whoever may write the object
/// may write there (the root may be "/"), and it is the object's file system.
///
/// The file "owner" in the folder is locked while the store that created the upload lives; the
/// kernel drops the lock with the process, so folders of the dead can be told from those of the
/// living, in any container.
///
/// Threads: any.
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/atomic_file.h"
#include "base/fd.h"
#include "base/mutex.h"
#include "headrace/status.h"
#include "headrace/store.h"
#include "store/local_backend.h"

namespace headrace::file {

class FileUploads {
 public:
  explicit FileUploads(std::string root) : root_(std::move(root)) {}
  /// Removes what was neither completed nor aborted.
  ~FileUploads();
  FileUploads(const FileUploads&) = delete;
  FileUploads& operator=(const FileUploads&) = delete;

  /// Also removes the folders that dead owners left beside it. Errors: kUnsupported (an object is
  /// in the way of the directory), of errno_status().
  Result<std::string> create(const std::string& key) HEADRACE_EXCLUDES(mutex_);
  /// Returns the part's version. Errors: kNotFound (upload), of errno_status().
  Result<std::string> put_part(const Request& request, std::span<const std::byte> bytes,
                               const Interrupt& interrupt);
  /// Appends the parts to `file` in the order given. Errors: kNotFound (upload), kInvalidArgument
  /// (a part that was not uploaded as named), of errno_status().
  Status assemble(std::string_view key, std::string_view id, std::span<const UploadedPart> parts,
                  TemporaryFile& file, const Interrupt& interrupt);
  /// Forgets the upload and removes its folder. Errors: kNotFound.
  Status discard(std::string_view key, std::string_view id) HEADRACE_EXCLUDES(mutex_);

 private:
  struct Upload {
    std::string key;
    std::string folder;
    Fd owner;
  };
  std::string directory_of(const std::string& key) const;
  static std::string part_path(const std::string& folder, std::uint32_t part_number);
  /// The folder of a living upload of ours.
  Result<std::string> find(std::string_view key, std::string_view id) HEADRACE_EXCLUDES(mutex_);
  static void remove_stale(const std::string& directory) noexcept;

  const std::string root_;
  Mutex mutex_;
  std::map<std::string, Upload, std::less<>> uploads_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace::file
