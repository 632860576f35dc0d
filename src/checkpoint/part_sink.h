#pragma once
/// \file
/// PartSink: where the parts of a data file go, in any order.
///
/// Threads: put() and failure() from any thread; settle() and publish() from one, once.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "headrace/range_fetcher.h"
#include "headrace/status.h"
#include "headrace/store_client.h"

namespace headrace::checkpoint {

struct SinkOptions {
  std::string key;
  std::uint64_t size_bytes = 0;  ///< Of the file; 0: that is not known yet.
  std::uint64_t part_bytes = 0;  ///< Of each part but the last.
  std::uint32_t part_count = 0;  ///< The most that there can be, where it is not.
  std::uint32_t parts_in_flight = 16;
  std::string joins = {};  ///< token() of the process that began the file; empty: this one does.
};

class PartSink {
 public:
  /// Discards what is not finished.
  virtual ~PartSink() = default;
  PartSink(const PartSink&) = delete;
  PartSink& operator=(const PartSink&) = delete;

  /// Takes a part, the first bytes of `slab`; gives the memory back when it has arrived. Never
  /// waits. A slab as large as slab_bytes() says spares a file a copy.
  virtual void put(std::uint32_t index, Slab slab, std::uint64_t length_bytes) = 0;
  /// Parts that were put and have not arrived yet.
  virtual std::uint32_t pending() const = 0;
  /// The first error of a part; ok while there is none.
  virtual Status failure() const = 0;
  /// By which others join the file.
  virtual std::string token() const = 0;
  /// Waits until the `count` parts that were put have arrived. Returns all parts of the file; those
  /// of others have the number 0.
  virtual Result<std::vector<UploadedPart>> settle(std::uint32_t count, const Pause& pause) = 0;
  /// Makes the file visible, of all its parts, whoever put them; by the one that began it. Returns
  /// its version.
  virtual Result<std::string> publish(std::span<const UploadedPart> parts) = 0;
  /// Both, of a file that nobody else writes. \pre All parts were put.
  Result<std::string> finish(std::uint32_t part_count, const Pause& pause) {
    HEADRACE_TRY_ASSIGN(const auto parts, settle(part_count, pause));
    return publish(parts);
  }
  /// What a slab for a part of `length_bytes` must have: whole pages.
  static std::uint64_t slab_bytes(std::uint64_t length_bytes) noexcept {
    constexpr std::uint64_t kPage = 4096;
    return (length_bytes + kPage - 1) / kPage * kPage;
  }

 protected:
  PartSink() = default;
};

/// Parts of one object: what all stores take.
inline constexpr std::uint64_t kMostParts = 10'000;

/// A multipart upload, or one put where there is one part.
Result<std::unique_ptr<PartSink>> make_upload_sink(std::shared_ptr<StoreClient> client,
                                                   SinkOptions options);
/// A file below `directory`; on the disk when finish() returns.
Result<std::unique_ptr<PartSink>> make_file_sink(std::shared_ptr<StoreClient> client,
                                                 const std::string& directory, SinkOptions options);
/// The one that fits the store.
inline Result<std::unique_ptr<PartSink>> make_sink(const std::shared_ptr<StoreClient>& client,
                                                   SinkOptions options) {
  const std::string directory = client->store().local_directory();
  if (directory.empty()) return make_upload_sink(client, std::move(options));
  return make_file_sink(client, directory, std::move(options));
}

}  // namespace headrace::checkpoint
