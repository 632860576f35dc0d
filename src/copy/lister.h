#pragma once
/// \file
/// Lister: finds what is to copy and to delete, and feeds it to a Transfer while it goes.
///
/// Threads: run() by one.
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "copy/names.h"
#include "copy/overlap.h"
#include "copy/transfer.h"
#include "store/parallel_list.h"

namespace headrace::copy_detail {

/// A listing, object after object.
class Listing {
 public:
  Listing(Store& store, std::string prefix, bool is_ordered, bool is_one_level = false)
      : store_(store),
        prefix_(std::move(prefix)),
        is_ordered_(is_ordered),
        is_one_level_(is_one_level) {}
  /// nullptr at the end. Valid until pop(). Errors: those of ParallelList; kCorrupt (keys do not
  /// rise although they should).
  Result<ObjectInfo*> peek(const CallOptions& call);
  void pop() noexcept { ++next_; }

 private:
  Status check_order();

  Store& store_;
  const std::string prefix_;
  const bool is_ordered_, is_one_level_;
  std::optional<ParallelList> list_;  // from the first peek() on
  std::vector<ObjectInfo> page_;
  std::string last_key_;  // of the page before
  std::size_t next_ = 0;
  bool is_ended_ = false;
};

/// What lies at the target, asked for in the order of the source's listing. When both stores list
/// in byte order, two listings run side by side; else the target's is held in memory.
class TargetView {
 public:
  TargetView(Store& to, std::string prefix, bool is_ordered, bool is_one_level)
      : listing_(to, std::move(prefix), is_ordered, is_one_level), is_ordered_(is_ordered) {}
  /// The object with this key, or nullopt. \pre is_ordered: keys rise from call to call.
  Result<std::optional<ObjectInfo>> find(const std::string& key, const CallOptions& call);
  /// Keys that were never asked for. Reads the listing to its end.
  Result<std::vector<std::string>> take_extra(const CallOptions& call);

 private:
  Result<ObjectInfo*> peek(const CallOptions& call);
  Status load(const CallOptions& call);

  Listing listing_;
  const bool is_ordered_;
  bool is_loaded_ = false;
  std::unordered_map<std::string, ObjectInfo> all_;
  std::vector<std::string> extra_;
};

class Lister {
 public:
  explicit Lister(Transfer& transfer);
  Status run();
  /// Deletes what only the target has. After everything was copied.
  Status delete_extra();

 private:
  Status list_one(const CopyTask& task);
  Status list_tree(const CopyTask& task);
  Status take_names();
  /// CopyNames::begin(), where names are taken.
  Result<bool> begin(const std::string& to_key, const std::string& from_key);
  Status find_extra(const CopyTask& task, const Glob& pattern, TargetView& target);
  /// kInvalidArgument when the copy would be copied again, or its source deleted.
  Status check_overlap(const CopyTask& task, const Glob& pattern, const std::string& from_key,
                       const std::string& to_key) const;
  /// Copies the object, or skips it when `existing` is as good.
  Status offer(ObjectInfo&& info, const CopyTask& task, std::string to_key,
               const ObjectInfo* existing);
  bool is_current(const ObjectInfo& info, const ObjectInfo& existing) const;
  Status flush();

  Transfer& transfer_;
  const Overlap overlap_;
  FileNames dry_names_;  ///< Of a dry run, which writes no files that would tell.
  std::vector<Item> batch_;
  std::vector<std::string> extra_;
  std::shared_ptr<CopyNames> names_;  ///< nullptr: tasks do not meet.
};

}  // namespace headrace::copy_detail
