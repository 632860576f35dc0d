#pragma once
/// \file
/// ExtentWriter: writes extents into a cache directory behind whoever brings them: what waits to be
/// written takes memory of its own, or holds the slab that it came in, up to a limit; what finds no
/// memory or no room is left out, and counted.
///
/// A writer reserves room, makes the file and names it; while nobody else may want it soon, a maker
/// makes it, which gives way to all other threads, and the namer names it.
///
/// Threads: any; only write(), drafts and flush() block.
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/mutex.h"
#include "base/thread_pool.h"
#include "headrace/cache.h"
#include "headrace/memory.h"
#include "insight/counter.h"
#include "tier/cache_directory.h"
#include "tier/evictor.h"
#include "tier/extent_draft.h"
#include "tier/extent_header.h"
#include "tier/new_extent.h"
#include "tier/tier.h"

namespace headrace::tier {

class ExtentWriter {
 public:
  /// Both outlive it. Errors: those of making memory for buffers.
  static Result<std::unique_ptr<ExtentWriter>> create(CacheDirectory& directory, Evictor& evictor,
                                                      const CacheOptions& options);
  /// Waits for what is being written.
  ~ExtentWriter();
  ExtentWriter(const ExtentWriter&) = delete;
  ExtentWriter& operator=(const ExtentWriter&) = delete;

  /// Tier::keep().
  void keep(ExtentInfo info, std::span<const std::byte> data, Tier::Flight flight,
            const Slab& slab);
  /// Waits until everything that was brought before is written or left out.
  void flush();

  // --- for what is written bit by bit (DiskValues) ---

  /// Memory for what waits to be written; none: it is all in use, or writing pauses.
  std::optional<Slab> buffer(std::uint64_t bytes);
  /// Runs what writes on a thread for that. False: too much waits.
  bool write_later(ThreadPool::Task task);
  /// Writes an extent, and shows it.
  void write(const ExtentInfo& info, const FileParts& parts);
  /// Makes room for an extent and begins its file; null, and counted, where that fails; null where
  /// the file system has no files without a name. To be ended by publish_draft() or drop_draft(),
  /// once.
  std::unique_ptr<ExtentDraft> begin_draft(const ExtentInfo& info, std::uint64_t part_bytes);
  /// ExtentDraft::write() and read(). False, and counted: that failed.
  bool write_part(const ExtentDraft& draft, std::uint64_t part, std::span<const std::byte> bytes) {
    return directory_.is_done(draft.write(part, bytes));
  }
  bool read_part(ExtentDraft& draft, std::uint64_t part, std::span<std::byte> out) {
    return directory_.is_done(draft.read(part, out));
  }
  void publish_draft(ExtentDraft& draft);
  void drop_draft(const ExtentDraft& draft);
  void note_left_out(std::uint64_t bytes) noexcept { skipped_bytes_.add(bytes); }

  // --- how much may wait ---

  /// Lets so much memory wait to be written, if it was less.
  void allow_buffers(std::uint64_t bytes) noexcept;
  /// Memory for what may come now.
  std::uint64_t room_bytes() const noexcept;
  /// What an extent of `length_bytes` takes of it at most.
  static std::uint64_t waiting_bytes_of(std::uint64_t length_bytes) noexcept {
    return SlabPool::charged_bytes(length_bytes) + SlabPool::charged_bytes(FileParts::kPagesBytes);
  }
  /// Somebody waits for what another fetches: for a while extents are written at once.
  void note_wait() noexcept;

  void append_metrics(MetricList& out) const;

 private:
  struct Write;

  ExtentWriter(CacheDirectory& directory, Evictor& evictor, const CacheOptions& options,
               std::unique_ptr<SlabPool> buffers);
  /// A write that flush() waits for. False: too many are pending already.
  bool begin_write();
  void end_write();
  bool has_room(std::uint64_t bytes) const noexcept;
  /// What waits to be written takes of buffer_bytes_.
  std::uint64_t waiting_bytes() const noexcept {
    return buffers_->used_bytes() + held_bytes_.load();
  }
  /// Memory for a write, with the bytes in it. False: there is none.
  bool take_in(Write& job, std::span<const std::byte> data, const Slab& slab);
  /// Whether it is better written late than at the expense of those who read.
  bool can_wait(const Write& job) const;
  void begin(const std::shared_ptr<Write>& job);
  void make_file(Write& job);
  void show_file(Write& job);
  void finish(Write& job);
  Result<std::unique_ptr<ExtentDraft>> make_draft(const ExtentInfo& info, std::uint64_t part_bytes);
  /// Shows a file that is complete, and for which there is room; `publish`: by which.
  template <class Publish>
  void show(const ExtentInfo& info, const Publish& publish);

  CacheDirectory& directory_;
  Evictor& evictor_;
  const bool makes_nameless_;  // NewExtent::can_be_nameless().
  const std::unique_ptr<SlabPool> buffers_;
  std::atomic<std::uint64_t> buffer_bytes_;   // Memory that writes may take: of buffers_,
  std::atomic<std::uint64_t> held_bytes_{0};  // and what they hold of others.
  std::atomic<std::int64_t> last_wait_ns_{INT64_MIN / 2};

  Mutex mutex_;
  std::condition_variable writes_done_;
  std::size_t pending_count_ HEADRACE_GUARDED_BY(mutex_) = 0;

  Counter written_bytes_, skipped_bytes_;

  // Their tasks use all of the above. Makers give way to all other threads, so nobody who waits
  // for a read shares a lock with them: whatever a maker hands on goes to the namer.
  ThreadPool writers_, namer_, makers_;
};

}  // namespace headrace::tier
