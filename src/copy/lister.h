#pragma once
/// \file
/// Lister: finds what is to copy and to delete, and feeds it to a Transfer while it goes.
///
/// Threads: run() by one.
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "copy/transfer.h"

namespace headrace::copy_detail {

/// Pages of a listing, object after object.
class Listing {
 public:
  Listing(Store& store, std::string prefix) : store_(store) { request_.prefix = std::move(prefix); }
  /// nullptr at the end. Valid until pop().
  Result<ObjectInfo*> peek(const CallOptions& call);
  void pop() noexcept { ++next_; }

 private:
  Store& store_;
  ListRequest request_;
  ListPage page_;
  std::size_t next_ = 0;
  bool is_started_ = false;
};

/// What lies at the target, asked for in the order of the source's listing. When both stores list
/// in byte order, two listings run side by side; else the target's is held in memory.
class TargetView {
 public:
  TargetView(Store& to, std::string prefix, bool is_ordered)
      : listing_(to, prefix), is_ordered_(is_ordered) {}
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
  explicit Lister(Transfer& transfer) : transfer_(transfer) {}
  Status run();
  /// Deletes what only the target has. After everything was copied.
  Status delete_extra();

 private:
  Status list_one(const CopyTask& task);
  Status list_tree(const CopyTask& task);
  /// Copies the object, or skips it when `existing` is as good.
  Status offer(ObjectInfo&& info, std::string to_key, const ObjectInfo* existing);
  bool is_current(const ObjectInfo& info, const ObjectInfo& existing) const;
  Status flush();

  Transfer& transfer_;
  std::vector<Item> batch_;
  std::vector<std::string> extra_;
};

}  // namespace headrace::copy_detail
