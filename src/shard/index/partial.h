#pragma once
/// \file
/// PartialIndex: what a builder has found so far, kept in the index cache directory, so that a
/// build that was killed goes on where it was.
///
/// Place: builders that read whole objects ask it before they read one and tell it when they have
/// read one. Dataset::open and build_index remove it once the index stands. What is kept is a log,
/// `<dir>/<32 hex digits>.part`; a torn end, or a record that does not match its checksum, is as if
/// it were not there.
///
/// Threads: one owner. Among processes the first holds the log (a kernel lock that dies with it);
/// the others keep nothing.
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "headrace/store.h"

namespace headrace::detail {

class PartialIndex {
 public:
  /// For the dataset at `url`. `kind` names the builder and the version of what it keeps
  /// ("tar 1"): records of another kind are not seen. Keeps nothing when `dir` is empty or cannot
  /// be written.
  PartialIndex(const std::string& dir, std::string_view url, std::string_view kind);
  PartialIndex(const PartialIndex&) = delete;
  PartialIndex& operator=(const PartialIndex&) = delete;
  ~PartialIndex();

  /// What was stored for this version of an object (key, ETag and size); nothing when it was not.
  /// Of an object without an ETag nothing is kept: its versions cannot be told apart. Reads the
  /// disk.
  std::optional<std::string> load(const ObjectInfo& object) const;
  /// Appends a record; written by the time it returns, though not flushed to the disk. A failure
  /// ends the keeping. `bytes` up to 4 GiB; more is not kept.
  void store(const ObjectInfo& object, std::string_view bytes);

  /// Removes the log of the dataset at `url`.
  static void remove(const std::string& dir, std::string_view url);

 private:
  using Name = std::pair<std::uint64_t, std::uint64_t>;
  struct Place {
    std::uint64_t offset_bytes = 0;
    std::uint32_t length_bytes = 0;
    std::uint32_t checksum = 0;
  };
  Name name_of(const ObjectInfo& object) const;
  void read_log();
  void stop();

  const std::string kind_;
  int fd_ = -1;
  std::uint64_t end_bytes_ = 0;
  std::map<Name, Place> places_;
};

}  // namespace headrace::detail
