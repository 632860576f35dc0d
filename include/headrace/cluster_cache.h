#pragma once
/// \file
/// Caches that the nodes of a cluster share: memcached servers, or a store that is nearer than the
/// one with the data. docs/design/0047.
///
/// Place: src/tier/. read_through_cluster() wraps a store; whoever reads through the wrapper reads
/// the same bytes as without it, or the same error. What a cache cannot say, or says wrongly or
/// late, comes from the store.
///
/// Threads: every function from any thread.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "headrace/environment.h"
#include "headrace/status.h"
#include "headrace/store.h"

namespace headrace {

/// memcached servers, 1.6 or newer (meta commands). Without TLS and passwords: whoever reaches them
/// reads what is cached.
struct MemcachedOptions {
  /// "host", "host:port", "[::1]:port"; port 11211 where none is given. All users of the servers
  /// must name them alike, in any order: where an extent lies follows from the names.
  std::vector<std::string> nodes;
  /// Most bytes of an item, with its key and what the server adds: its -I. 16 KiB .. 1 GiB. A
  /// server with less refuses large items. Users with another value do not find one another's
  /// extents.
  std::uint64_t item_bytes = std::uint64_t{1} << 20;
  std::uint32_t read_connections = 2;  ///< A node, 1 .. 64; one more writes.
  /// Until a connection stands, and until an answer has come, its bytes at 10 MB/s not counted.
  std::chrono::milliseconds timeout{500};
};

/// A store in front of another. What it keeps is not deleted: that is a lifecycle rule's.
struct HotStoreOptions {
  StoreOptions store;  ///< Times and attempts are set by `timeout`.
  Environment environment;
  /// Until a connection stands, until an answer begins, and longest pause inside it.
  std::chrono::milliseconds timeout{1000};
};

struct ClusterCacheOptions {
  std::variant<MemcachedOptions, HotStoreOptions> engine;
  /// Memory for what waits to be written; of a hot store as much again for what is being read. With
  /// more to write, extents are left out. Where a process
  /// opens one cache several times, the most that it was given.
  std::uint64_t buffer_bytes = std::uint64_t{64} << 20;
  /// As CacheOptions::least_unnamed_bytes.
  std::uint64_t least_unnamed_bytes = std::uint64_t{256} << 10;
  Clock* clock = nullptr;  ///< nullptr: system_clock().
};

/// All memory that a cache takes: buffer_bytes, of a hot store twice.
std::uint64_t memory_of(const ClusterCacheOptions& options) noexcept;

/// A handle on the store of `inner` whose reads are served from the cache where that has the same
/// range of the same version, and put there where not; rules as in cache_reads(). Contacts nobody.
/// A process that names one cache twice has its connections and counters once.
/// Errors: kInvalidArgument (options; a store whose objects only this process has, or that
/// the hot store lies in), those of open_store().
Result<std::unique_ptr<Store>> read_through_cluster(std::unique_ptr<Store> inner,
                                                    const ClusterCacheOptions& options,
                                                    std::size_t accept_limit = 4096);

}  // namespace headrace
