#pragma once
/// \file
/// What a target holds of a pack: the plan record that tells packs apart, records of finished
/// shards, the MDS index.
///
/// Objects: ".hrpack.json" (digest of files and options) stays;
/// ".hrpack.NNNNNN.json", one for each finished shard whose index entry cannot be known from
/// the plan (compressed or hashed), goes once the index is written.
///
/// Threads: load() and finish() from one thread; record() from any.
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/store.h"
#include "pack/plan.h"
#include "pack/shard_worker.h"

namespace headrace::pack_detail {

class TargetState {
 public:
  TargetState(const PackPlan& plan, Store& target, SlabPool& pool)
      : plan_(plan), target_(target), pool_(pool) {}

  /// Looks at the target and leaves the plan record there. A shard is finished when its size is
  /// that of the plan and nothing else is needed, or when the index names it with its size, or when
  /// there is no index and a record of this very version of it. Errors: kInvalidArgument (it holds
  /// another pack, or shards of unknown origin: nothing is changed), those of the store.
  Status load(const CallOptions& call);

  /// What is known of each shard; nullopt: to be made. Valid after load().
  std::span<const std::optional<ShardFacts>> facts() const noexcept { return facts_; }

  /// Notes a finished shard in the target, on a store handle of the caller's thread.
  Status record(Store& handle, const FinishedShard& shard, const CallOptions& call) const;

  /// Writes the index (MDS) from the facts of all shards, then removes the records.
  Status finish(std::span<const std::optional<ShardFacts>> facts, const CallOptions& call);

 private:
  bool needs_records() const noexcept { return plan_.is_compressed() || !plan_.hash.empty(); }
  std::string record_name(std::uint64_t shard) const;
  Result<std::optional<std::string>> read_optional(const std::string& key, const CallOptions& call);
  Status check_digest(const std::string& plan_record) const;
  Status check_plan_record(const std::vector<ObjectInfo>& shards, const CallOptions& call);
  Result<std::vector<ObjectInfo>> list_names(std::string_view prefix, const CallOptions& call);
  std::vector<const ObjectInfo*> shards_there(const std::vector<ObjectInfo>& objects) const;
  Status load_records(std::span<const ObjectInfo* const> shards, const CallOptions& call);
  std::string index_json(std::span<const std::optional<ShardFacts>> facts) const;

  const PackPlan& plan_;
  Store& target_;
  SlabPool& pool_;
  std::vector<std::optional<ShardFacts>> facts_;
  std::optional<std::string> old_index_;  ///< index.json as found.
};

}  // namespace headrace::pack_detail
