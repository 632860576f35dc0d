#pragma once
/// \file
/// Open files of objects, the least recently used closed first. One owner thread; files handed out
/// stay open while held.
///
/// A cached file is served only while its path still names the same version: one stat() a request
/// instead of open, fstat, getxattr, close and the text of the head.
#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "sim/storage.h"

namespace headrace::sim {

struct OpenFile {
  Fd fd;
  FileInfo info;
  std::string etag;
  std::string sums;    ///< Text of ObjectSums; empty when they are not of these bytes.
  std::string stored;  ///< Header lines that were put with the object.
  std::string fields;  ///< Header lines of every answer about this version: Last-Modified, ETag.
  std::string kept;    ///< And after them: Content-Type, what else is stored.
};

/// The ETag that a version would have that replaced the one with `etag`.
std::string other_etag(std::string_view etag);

class FileCache {
 public:
  explicit FileCache(std::size_t capacity_count) : capacity_count_(capacity_count) {}
  /// Nullptr when `path` is no regular file that can be read; errno says why.
  std::shared_ptr<const OpenFile> open(const std::string& path);

 private:
  struct Entry {
    std::string path;
    std::shared_ptr<const OpenFile> file;
  };
  const std::size_t capacity_count_;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> index_;  // views into entries_
};

}  // namespace headrace::sim
