#pragma once
/// \file
/// PartSink: where the parts of a data file go, in any order.
///
/// Threads: put() and failure() from any thread; finish() from one, once.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "headrace/range_fetcher.h"
#include "headrace/status.h"
#include "headrace/store_client.h"

namespace headrace::checkpoint {

struct SinkOptions {
  std::string key;
  std::uint64_t size_bytes = 0;  ///< Of the file.
  std::uint64_t part_bytes = 0;  ///< Of each part but the last.
  std::uint32_t part_count = 0;
  std::uint32_t parts_in_flight = 16;
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
  /// The first error of a part; ok while there is none.
  virtual Status failure() const = 0;
  /// Waits for all parts and makes the file visible. Returns its version. \pre All were put.
  virtual Result<std::string> finish(const Pause& pause) = 0;
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
