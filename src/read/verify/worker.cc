// Each byte of an object is read once, in order, and serves both: the digests of the whole object,
// and the blocks in it. What lies between blocks is read for the digests alone.
//
// - What is wrong with an object is a problem in the report, and the worker goes on. What is wrong
//   with the run (no memory, cancelled, deadline) ends it; is_about_object() tells the two apart.
// - Nothing is called the data's fault before the same bytes have come twice (docs/design/0031).
//   Doubtful blocks wait until their object is through.
#include "read/verify/worker.h"

#include <fmt/format.h>

#include <optional>

#include "headrace/range_fetcher.h"
#include "headrace/second_look.h"
#include "io/object_scan.h"
#include "read/ready_block.h"
#include "shard/codec/digest.h"

namespace headrace::detail {
namespace {

const std::vector<std::string> kNoNames;

/// Digests of an object under way: those that it must have, then those that were asked for.
class ObjectDigesters {
 public:
  ObjectDigesters(std::string_view stored, const std::vector<std::string>& asked) {
    while (!stored.empty()) {
      const std::string_view entry = stored.substr(0, stored.find(' '));
      stored.remove_prefix(std::min(entry.size() + 1, stored.size()));
      const std::size_t equals = std::min(entry.find('='), entry.size() - 1);
      auto digester = Digester::create(entry.substr(0, equals));
      if (digester)
        stored_.push_back(
            {entry.substr(0, equals), entry.substr(equals + 1), *std::move(digester)});
    }
    for (const std::string& name : asked) asked_.push_back(*Digester::create(name));
  }
  void update(std::span<const std::byte> bytes) {
    for (Stored& stored : stored_) stored.digester.update(bytes);
    for (Digester& digester : asked_) digester.update(bytes);
  }
  std::size_t stored_count() const noexcept { return stored_.size(); }
  /// What is wrong with the stored ones; empty: nothing.
  std::string compare() {
    std::string wrong;
    for (Stored& stored : stored_) {
      const std::string actual = stored.digester.finish();
      if (actual == stored.hex) continue;
      wrong += fmt::format("{}{} is {}, the index says {}", wrong.empty() ? "" : "; ", stored.name,
                           actual, stored.hex);
    }
    return wrong;
  }
  std::vector<std::string> finish_asked() {
    std::vector<std::string> hex;
    for (Digester& digester : asked_) hex.push_back(digester.finish());
    return hex;
  }

 private:
  struct Stored {
    std::string_view name, hex;
    Digester digester;
  };
  std::vector<Stored> stored_;
  std::vector<Digester> asked_;
};

class Worker {
 public:
  Worker(VerifyRun& run, std::size_t depth)
      : run_(run),
        scan_(run.store, run.pool, run.call, depth, &run.budget),
        extents_(run.store, run.pool, run.call, run.piece_bytes) {
    if (run.dataset != nullptr) cells_.resize(run.dataset->columns().size());
  }

  void work() {
    while (!run_.is_over.load(std::memory_order_relaxed)) {
      const std::size_t index = run_.next_job.fetch_add(1, std::memory_order_relaxed);
      if (index >= run_.jobs.size()) break;
      const VerifyJob& job = run_.jobs[index];
      Status status =
          job.kind == VerifyJob::Kind::kApart ? check_apart(job.first_block) : check_in_order(job);
      if (!status.ok() && !is_about_object(status)) {
        end_all(std::move(status));
      } else if (!status.ok()) {
        add_problem(job.object.key, -1, status);
      }
    }
    hand_in();
  }

 private:
  bool is_about_object(const Status& status) const {
    if (run_.call.stop.stop_requested()) return false;
    return status.code() != Code::kCancelled && status.code() != Code::kExhausted &&
           (status.code() != Code::kDeadline || system_clock().now() < run_.call.deadline);
  }

  Status check_in_order(const VerifyJob& job) {
    plan_pieces(job);
    ObjectDigesters digesters(job.object.hashes,
                              run_.dataset == nullptr ? run_.options.digests : kNoNames);
    const bool is_hashed = job.kind == VerifyJob::Kind::kObject && digesters.stored_count() > 0;
    piece_sums_.clear();
    doubtful_.clear();
    const io::ScanObject object{job.object.key, job.object.etag, job.object.size_bytes, pieces_};
    HEADRACE_TRY(scan_.run(object, [&](std::size_t index, RangeData data) {
      run_.read_bytes.fetch_add(data.length_bytes, std::memory_order_relaxed);
      digesters.update(data.bytes());
      if (is_hashed) piece_sums_.push_back(SecondLook::digest_of(data.bytes()));
      return blocks_[index] < 0
                 ? Status()
                 : look_at_block(static_cast<std::uint32_t>(blocks_[index]), data.bytes());
    }));
    for (const std::uint32_t block : without_bytes_) HEADRACE_TRY(look_at_block(block, {}));
    for (const Doubtful& doubtful : doubtful_) HEADRACE_TRY(settle_block(doubtful, job.object.key));
    if (job.kind == VerifyJob::Kind::kBlocks) return Status();
    ++report_.object_count;
    report_.stored_digest_count += digesters.stored_count();
    std::string wrong = digesters.compare();
    if (!wrong.empty()) {
      HEADRACE_TRY_ASSIGN(wrong, compare_again(object, job.object.hashes));
    }
    if (!wrong.empty()) add_problem(job.object.key, -1, Status(Code::kCorrupt, wrong));
    if (run_.dataset == nullptr) {
      report_.objects.push_back(
          {std::string(job.object.key), job.object.size_bytes, digesters.finish_asked()});
    }
    return Status();
  }

  // Computes the stored digests from pieces that have come twice the same. What is wrong then is
  // the object's fault; empty: nothing, and a bit had flipped on the way.
  Result<std::string> compare_again(const io::ScanObject& object, std::string_view hashes) {
    ObjectDigesters digesters(hashes, kNoNames);
    for (std::size_t i = 0; i < object.pieces.size(); ++i) {
      io::ScanObject piece = object;
      piece.pieces = object.pieces.subspan(i, 1);
      piece.is_fresh = true;
      SecondLook look;
      look.take(piece_sums_[i]);
      auto verdict = SecondLook::Verdict::kReadAgain;
      while (verdict == SecondLook::Verdict::kReadAgain) {
        ++report_.second_read_count;
        HEADRACE_TRY(scan_.run(piece, [&](std::size_t, RangeData data) {
          verdict = look.take(SecondLook::digest_of(data.bytes()));
          if (verdict == SecondLook::Verdict::kData) digesters.update(data.bytes());
          return Status();
        }));
      }
      if (verdict == SecondLook::Verdict::kNeverSame)
        return SecondLook::never_same(Status(Code::kCorrupt, "its digests differ"));
    }
    return digesters.compare();
  }

  // The blocks of the object and what lies between them, so that every byte comes once. Blocks
  // without extents (empty values, tables that their package reads by itself) are looked at apart.
  void plan_pieces(const VerifyJob& job) {
    pieces_.clear();
    blocks_.clear();
    without_bytes_.clear();
    std::uint64_t at = 0;
    std::vector<Extent> extents;
    for (std::uint32_t block = job.first_block; block < job.end_block; ++block) {
      extents.clear();
      run_.dataset->append_extents(block, 0, run_.dataset->block(block).sample_count, extents);
      if (extents.empty()) {
        without_bytes_.push_back(block);
        continue;
      }
      if (job.kind == VerifyJob::Kind::kObject) plan_gap(at, extents[0].offset_bytes);
      pieces_.push_back({extents[0].offset_bytes, extents[0].length_bytes});
      blocks_.push_back(block);
      at = extents[0].offset_bytes + extents[0].length_bytes;
    }
    if (job.kind == VerifyJob::Kind::kObject) plan_gap(at, job.object.size_bytes);
  }
  void plan_gap(std::uint64_t from, std::uint64_t to) {
    for (; from < to; from += run_.piece_bytes) {
      pieces_.push_back({from, std::min(run_.piece_bytes, to - from)});
      blocks_.push_back(-1);
    }
  }

  Status check_apart(std::uint32_t block) {
    doubtful_.clear();
    std::vector<Extent> extents;
    const std::uint64_t size = append_extents(block, extents);
    const std::string_view key = extents.empty() ? std::string_view() : extents[0].key;
    {
      Slab slab;
      if (size > 0) {
        HEADRACE_TRY_ASSIGN(slab, run_.pool.acquire(size, run_.call.deadline));
      }
      HEADRACE_TRY_ASSIGN(const bool is_read, read_extents(block, extents, slab.bytes(), false));
      if (!is_read) return Status();
      HEADRACE_TRY(look_at_block(block, std::span<const std::byte>(slab.bytes()).first(size)));
    }
    for (const Doubtful& doubtful : doubtful_) HEADRACE_TRY(settle_block(doubtful, key));
    return Status();
  }

  std::uint64_t append_extents(std::uint32_t block, std::vector<Extent>& extents) const {
    return run_.dataset->append_extents(block, 0, run_.dataset->block(block).sample_count, extents);
  }

  // False: an object could not be read, which is a problem now.
  Result<bool> read_extents(std::uint32_t block, std::span<const Extent> extents,
                            std::span<std::byte> target, bool is_fresh) {
    if (extents.empty()) return true;
    std::size_t failed = 0;
    Status status = extents_.read(extents, is_fresh, target, &failed);
    if (status.ok()) {
      for (const Extent& extent : extents)
        run_.read_bytes.fetch_add(extent.length_bytes, std::memory_order_relaxed);
      return true;
    }
    if (!is_about_object(status)) return status;
    const Block info = run_.dataset->block(block);
    const std::string_view key = extents[failed].key;
    const auto [first, count] = samples_in(key, block, info.sample_count);
    add_problem(key, static_cast<std::int64_t>(info.first_sample + first), status, count);
    return false;
  }

  // First and number of the block's samples that have bytes in an object.
  std::pair<std::uint32_t, std::uint32_t> samples_in(std::string_view key, std::uint32_t block,
                                                     std::uint32_t sample_count) const {
    std::vector<Extent> extents;
    const auto lies_in = [&](std::uint32_t i) {
      extents.clear();
      run_.dataset->append_extents(block, i, i + 1, extents);
      return std::any_of(extents.begin(), extents.end(),
                         [&](const Extent& extent) { return extent.key == key; });
    };
    std::uint32_t first = 0;
    while (first < sample_count && !lies_in(first)) ++first;
    std::uint32_t end = first;
    while (end < sample_count && lies_in(end)) ++end;
    return {first, end - first};
  }

  /// A block in which something does not make sense, and the sum of the bytes that came.
  struct Doubtful {
    std::uint32_t block = 0;
    std::uint64_t sum = 0;
  };
  /// What is wrong with a block.
  struct Findings {
    std::uint64_t good_count = 0;
    std::uint64_t bad_count = 0;          ///< Problems, of which `problems` has the first.
    std::vector<VerifyProblem> problems;  ///< Without a key.
    void add(std::uint32_t most, std::uint64_t position, std::uint64_t count,
             const Status& status) {
      ++bad_count;
      if (problems.size() < most)
        problems.push_back({{},
                            static_cast<std::int64_t>(position),
                            count,
                            status.code(),
                            std::string(status.message())});
    }
  };

  // Counts a good block; any other is doubtful until it is read again.
  Status look_at_block(std::uint32_t block, std::span<const std::byte> stored) {
    HEADRACE_TRY_ASSIGN(const Findings found, check_block(block, stored));
    if (found.bad_count == 0) {
      report_.sample_count += found.good_count;
    } else {
      doubtful_.push_back({block, SecondLook::digest_of(stored)});
    }
    return Status();
  }

  // Reads a doubtful block until it makes sense, or the same bytes have come twice: then what is
  // wrong with them becomes problems.
  Status settle_block(const Doubtful& doubtful, std::string_view key) {
    std::vector<Extent> extents;
    const std::uint64_t size = append_extents(doubtful.block, extents);
    Slab slab;
    if (size > 0) {
      HEADRACE_TRY_ASSIGN(slab, run_.pool.acquire(size, run_.call.deadline));
    }
    SecondLook look;
    look.take(doubtful.sum);
    while (true) {
      ++report_.second_read_count;
      HEADRACE_TRY_ASSIGN(const bool is_read,
                          read_extents(doubtful.block, extents, slab.bytes(), true));
      if (!is_read) return Status();
      const auto stored = std::span<const std::byte>(slab.bytes()).first(size);
      HEADRACE_TRY_ASSIGN(Findings found, check_block(doubtful.block, stored));
      const auto verdict = look.take(SecondLook::digest_of(stored));
      if (found.bad_count > 0 && verdict == SecondLook::Verdict::kReadAgain) continue;
      if (found.bad_count > 0 && verdict == SecondLook::Verdict::kNeverSame) {
        const Block info = run_.dataset->block(doubtful.block);
        const Status last(found.problems[0].code, found.problems[0].message);
        add_problem(key, static_cast<std::int64_t>(info.first_sample), SecondLook::never_same(last),
                    info.sample_count);
        return Status();
      }
      report_.sample_count += found.good_count;
      add_findings(key, std::move(found));
      return Status();
    }
  }

  // Errors: only those that end everything; what is wrong with the block is found.
  Result<Findings> check_block(std::uint32_t block, std::span<const std::byte> stored) {
    const Dataset& dataset = *run_.dataset;
    const Block info = dataset.block(block);
    BlockBytes bytes{.block = block, .begin = 0, .end = info.sample_count, .bytes = stored};
    SlabArena arena(run_.pool, Slab());
    Slab raw;
    std::shared_ptr<const UnpackedBlock> unpacked;
    Status status;
    if (dataset.is_compressed(block)) {
      if (!dataset.is_unpacked(block) && info.raw_bytes > 0) {
        HEADRACE_TRY_ASSIGN(raw, run_.pool.acquire(info.raw_bytes, run_.call.deadline));
      }
      auto made = read::make_ready(dataset, block, stored, raw.bytes(), &arena);
      // Not the fault of the data.
      if (!made && made.error().code() == Code::kExhausted) return std::move(made).error();
      if (made) {
        unpacked = *std::move(made);
        bytes = read::ready_bytes(dataset, block, raw.bytes(), unpacked.get());
      } else {
        status = std::move(made).error();
      }
    }
    Findings found;
    const std::uint32_t most = run_.options.most_problems;
    if (!status.ok()) {
      found.add(std::max(most, 1U), info.first_sample, info.sample_count, status);
      return found;
    }
    for (std::uint32_t i = 0; i < info.sample_count; ++i) {
      status = dataset.cut(bytes, i, cells_);
      if (status.ok()) {
        ++found.good_count;
      } else {
        found.add(std::max(most, 1U), info.first_sample + i, 1, status);
      }
    }
    return found;
  }

  void add_findings(std::string_view key, Findings found) {
    report_.problem_count += found.bad_count;
    for (VerifyProblem& problem : found.problems) {
      if (report_.problems.size() >= run_.options.most_problems) break;
      problem.key = key;
      report_.problems.push_back(std::move(problem));
    }
  }

  void add_problem(std::string_view key, std::int64_t position, const Status& status,
                   std::uint64_t sample_count = 0) {
    ++report_.problem_count;
    if (report_.problems.size() < run_.options.most_problems) {
      report_.problems.push_back(
          {std::string(key), position, sample_count, status.code(), std::string(status.message())});
    }
  }

  void end_all(Status status) {
    run_.is_over.store(true, std::memory_order_relaxed);
    MutexLock lock(run_.mutex);
    if (run_.fatal.ok()) run_.fatal = std::move(status);
  }

  void hand_in() {
    MutexLock lock(run_.mutex);
    VerifyReport& all = run_.report;
    all.object_count += report_.object_count;
    all.sample_count += report_.sample_count;
    all.stored_digest_count += report_.stored_digest_count;
    all.second_read_count += report_.second_read_count;
    all.problem_count += report_.problem_count;
    std::move(report_.problems.begin(), report_.problems.end(), std::back_inserter(all.problems));
    std::move(report_.objects.begin(), report_.objects.end(), std::back_inserter(all.objects));
  }

  VerifyRun& run_;
  io::ObjectScan scan_;
  read::ExtentReader extents_;
  VerifyReport report_;
  std::vector<ColumnBytes> cells_;
  std::vector<io::ScanPiece> pieces_;
  std::vector<std::int64_t> blocks_;          ///< By piece; -1: bytes between blocks.
  std::vector<std::uint64_t> piece_sums_;     ///< By piece, of an object with stored digests.
  std::vector<std::uint32_t> without_bytes_;  ///< Blocks of the job that have no extents.
  std::vector<Doubtful> doubtful_;            ///< Of the job.
};

}  // namespace

void work_on(VerifyRun& run, std::size_t depth) { Worker(run, depth).work(); }

}  // namespace headrace::detail
