#pragma once
/// \file
/// LocalFiles: reads listed files of a directory on the calling thread, with as few system calls as
/// there can be: open below the directory's descriptor, read, look at the version, close. For
/// sources whose Store::local_directory() is set: handing a small file over to the store's threads
/// costs more than reading it.
///
/// Threads: one owner.
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "headrace/status.h"
#include "headrace/store.h"

namespace headrace::pack_detail {

class LocalFiles {
 public:
  explicit LocalFiles(std::string root) : root_(std::move(root)) {}

  /// Opens a listed file; it stays open until the next open(). Errors: kChanged (gone, or no file
  /// any more), others of errno_status().
  Status open(const ObjectInfo& file);
  /// Fills `out` from `offset_bytes` on. Errors: kChanged (it ends before), of errno_status().
  Status read(std::uint64_t offset_bytes, std::span<std::byte> out);
  int fd() const noexcept { return fd_.get(); }  ///< Of the open file.
  /// What was read is of the version that was listed, kChanged otherwise: a write before or between
  /// the reads would have changed what stat tells. Call after the last read().
  Status check() const;

 private:
  Status changed(const char* what) const;
  Status not_opened() const;  ///< By errno.

  std::string root_;
  std::string directory_key_;  ///< Of `directory_`: empty or with a slash at the end.
  std::string name_;
  Fd directory_;
  Fd fd_;
  const ObjectInfo* file_ = nullptr;
};

}  // namespace headrace::pack_detail
