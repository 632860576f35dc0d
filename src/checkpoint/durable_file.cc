// A file is durable when its data, its name and the names of all directories above it are: each of
// them is an fsync of its own (fsync(2): "calling fsync() does not necessarily ensure that the
// entry in the directory containing the file has also reached disk").
#include "checkpoint/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <utility>

#include "base/errno_status.h"
#include "base/fd.h"
#include "store/file/file_io.h"

namespace headrace::checkpoint {
namespace {

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Status sync_directory(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return errno_status(errno, "open directory " + path);
  return file::sync_directory(fd.get(), path);
}

std::string path_of(const std::string& root, std::string_view key) {
  return root + "/" + std::string(key);
}

}  // namespace

Result<TemporaryFile> begin_durable(const std::string& root, std::string_view key) {
  const std::string directory = parent_of(path_of(root, key));
  HEADRACE_TRY(file::make_directories(directory));
  return TemporaryFile::create(directory);
}

Status publish_durable(TemporaryFile& file, const std::string& root, std::string_view key,
                       bool if_absent) {
  if (::fdatasync(file.fd()) != 0) return errno_status(errno, "fdatasync " + file.path());
  const std::string path = path_of(root, key);
  HEADRACE_TRY(file.publish(path, if_absent));
  std::string directory = parent_of(path);
  while (directory.size() >= root.size()) {
    HEADRACE_TRY(sync_directory(directory));
    directory = parent_of(directory);
    if (directory == "/" || directory == ".") return {};
  }
  // Who may not list the directory above the root (0711 on shared file systems) cannot synchronise
  // it. Mostly others made the root there; else file systems that keep a journal have its name in
  // one transaction with the root itself, which is on the disk by now.
  Status status = sync_directory(directory);
  return status.code() == Code::kDenied ? Status() : std::move(status);
}

Status write_durable(const std::string& root, std::string_view key, std::string_view bytes,
                     bool if_absent) {
  HEADRACE_TRY_ASSIGN(TemporaryFile file, begin_durable(root, key));
  HEADRACE_TRY(file.write(std::as_bytes(std::span(bytes))));
  return publish_durable(file, root, key, if_absent);
}

}  // namespace headrace::checkpoint
