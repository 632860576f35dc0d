#pragma once
/// \file
/// TargetRecord: what the target of a pack holds besides its shards, so that a pack that broke off
/// goes on where it stood and a target of something else stays as it is.
///
/// Objects, below the target:
/// - ".hrpack.json": the plan; put first, stays;
/// - ".hrpack/done/NNNNNN.json": facts of a finished shard; goes when all is there;
/// - ".hrpack/run.json": of the samples of a program: who writes them now; likewise, as whatever
///   else lies below ".hrpack/" (claims of workers on several machines);
/// - ".hrpack.done.json": the facts of all shards: all is there, the index too.
///
/// Place: src/pack/, over Store; pack(), and the Python package's writers and conversions.
///
/// Threads: any; the store and the pool outlive it.
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/memory.h"
#include "headrace/store.h"

namespace headrace {

/// What is known of a finished shard.
struct ShardFacts {
  std::string name;  ///< Of the object.
  std::uint64_t sample_count = 0;
  std::uint64_t raw_bytes = 0;     ///< Before compression.
  std::uint64_t stored_bytes = 0;  ///< Size of the object.
  std::string raw_hash;            ///< Empty without ShardFormat::hash.
  std::string zip_hash;            ///< Empty unless compressed and hashed.
  std::string content;             ///< LitData: tells one content from another. Else as you like.
  /// False: no samples, so nothing is stored, and the index has no entry.
  bool has_object() const noexcept { return sample_count > 0 || stored_bytes > 0; }
  friend bool operator==(const ShardFacts&, const ShardFacts&) = default;
};

/// Calls `visit(name, member)` for each fact, by the names that records and Python have for them.
template <class Facts, class Visit>
void visit_facts(Facts& facts, Visit&& visit) {
  visit("bytes", facts.stored_bytes);
  visit("content", facts.content);
  visit("name", facts.name);
  visit("raw_bytes", facts.raw_bytes);
  visit("raw_hash", facts.raw_hash);
  visit("samples", facts.sample_count);
  visit("zip_hash", facts.zip_hash);
}

/// What tells one pack from another.
struct PackId {
  std::string digest;  ///< Of all that its bytes depend on.
  /// What ".hrpack.json" is to say: JSON as json.dumps() writes it, with a member "digest".
  std::string plan;
  std::string format = "mds";  ///< "mds", "webdataset", "tfrecord", "litdata", "parquet".
  bool is_compressed = false;

  /// What a shard is called: "shard.00042.mds.zstd", "shard-000042.tar", "chunk-0-42.bin" ...
  std::string name_of(std::uint64_t shard) const;
};

/// The record of one pack at one target. Keeps nothing but what lies there.
class TargetRecord {
 public:
  using Facts = std::map<std::uint64_t, ShardFacts>;  ///< By number of the shard.

  TargetRecord(Store& store, SlabPool& pool, PackId id)
      : store_(store), pool_(pool), id_(std::move(id)) {}

  // --- beginning; errors of all: those of the store ---

  /// Leaves the plan there, in the place of another of which nothing came yet. Errors also:
  /// kInvalidArgument (the target holds another pack, what another version of Headrace began, or
  /// shards of unknown origin, which of formats without an index.json is any file that may hold
  /// samples: nothing is changed).
  Status load(const CallOptions& call) const;
  /// After load(), before and after the first shard is put: until then another plan may take the
  /// place of ours. Errors also: kChanged (it did).
  Status check_plan(const CallOptions& call) const;
  /// Before shards are made again or for the first time: done(), and what the target says is done
  /// is exactly that. Records without their shards go, and so does the word that all is there: it
  /// would send workers home. Killed anywhere, it may be repeated.
  Result<Facts> reopen(const CallOptions& call) const;
  /// load() and done() for samples that nobody can compare with those of an earlier write. `run`
  /// names this one, unlike any other. Errors also: kInvalidArgument (a finished dataset, which is
  /// left alone).
  Result<Facts> begin_write(const std::string& run, const CallOptions& call) const;
  /// After begin_write(). Errors also: kChanged (another write began at this target since).
  Status check_run(const std::string& run, const CallOptions& call) const;

  // --- one shard ---

  /// \pre the shard has arrived, or has no object.
  Status record(std::uint64_t shard, const ShardFacts& facts, const CallOptions& call) const;
  /// Removes the record: before another shard takes the place of this one.
  Status forget(std::uint64_t shard, const CallOptions& call) const;

  // --- looking; errors of all: those of the store ---

  /// Facts of the shards that are finished, shard and record.
  Result<Facts> done(const CallOptions& call) const;
  /// Shards with a record: one listing, no reads.
  Result<std::vector<std::uint64_t>> recorded(const CallOptions& call) const;
  /// Size in bytes of each shard that is there, with a record or without.
  Result<std::map<std::uint64_t, std::uint64_t>> sizes(const CallOptions& call) const;
  /// True: somebody said that all is there.
  Result<bool> is_finished(const CallOptions& call) const;
  /// Facts of all shards of a finished pack if they are all there.
  Result<std::optional<std::vector<ShardFacts>>> finished(const CallOptions& call) const;

  // --- the end ---

  /// Removes shards beyond ours (a longer write broke off here), writes the index, says that all is
  /// there, then removes the records. What stands already is not written again. `config_json`: of
  /// the format (ShardBuilder::config_json()). Index and record fit the pool.
  Status finish(std::span<const ShardFacts> facts, const std::string& config_json,
                const CallOptions& call) const;
  /// finish() of what begin_write() began. Errors also: kChanged (the shards are not all ours).
  Status finish_write(const std::string& run, std::span<const ShardFacts> facts,
                      const std::string& config_json, const CallOptions& call) const;

 private:
  using Sizes = std::map<std::string, std::uint64_t>;

  Result<Sizes> list(std::string_view prefix, const CallOptions& call) const;
  Result<std::optional<std::string>> read(const std::string& key, const CallOptions& call) const;
  Status put(const std::string& key, std::string_view text, const CallOptions& call) const;
  Status put_unless_same(const std::string& key, const std::string& text,
                         const CallOptions& call) const;
  Status remove(const std::vector<std::string>& keys, const CallOptions& call) const;
  Status remove_below(std::string_view prefix, const CallOptions& call) const;
  bool is_same_pack(const std::string& found) const;
  Status refuse_plan(const std::string& found) const;
  Status refuse_foreign(const CallOptions& call) const;
  Result<std::string> first_of_a_dataset(const CallOptions& call) const;
  Result<std::string> first_that_may_be_data(const CallOptions& call) const;
  Result<bool> is_bare(const CallOptions& call) const;
  Result<std::optional<std::vector<ShardFacts>>> read_finished(const CallOptions& call) const;
  Result<Facts> read_records(const CallOptions& call) const;
  Status forget_others(const Facts& done, const CallOptions& call) const;
  Status check_ours(std::span<const ShardFacts> facts, const CallOptions& call) const;

  Store& store_;
  SlabPool& pool_;
  const PackId id_;
};

}  // namespace headrace
