#pragma once
/// \file
/// RangePlanner: which requests to send for the byte ranges that somebody wants: neighbours merged,
/// large ones split along the object's upload parts, objects of one prefix spread. Pure.
///
/// Cost model: a request costs its first-byte time, a byte costs 1 / bandwidth of a connection. A
/// hole between two ranges is read along when its bytes cost less than another request.
///
/// Place: above the Store interface; feed/, copy/ and bindings plan with it, no store needs it.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "headrace/status.h"
#include "headrace/store.h"

namespace headrace {

/// [offset, offset + length).
struct ByteRange {
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;
};

struct RangePlanOptions {
  /// Time from request to first byte, and rate of one connection: defaults of S3 standard
  /// (docs/design/0012-control-hedging.md). Raised: larger holes are read along.
  double first_byte_s = 0.03;
  double connection_bytes_per_s = 85e6;
  /// Largest hole read along whatever the cost model says; bounds wasted bytes and memory.
  std::uint64_t max_hole_bytes = 4 << 20;
  /// Requests are at most so long. 8 to 16 MiB is where stores reach the rate of a connection.
  std::uint64_t max_request_bytes = 16 << 20;
  /// ObjectInfo::part_bytes; 0: unknown. Splits fall on multiples of it, or of an equal fraction.
  std::uint64_t part_bytes = 0;
};

/// One request, and the wanted ranges [first_range, first_range + range_count) of
/// RangePlan::order that lie in it, wholly or in part.
struct PlannedRequest {
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;
  std::size_t first_range = 0;
  std::size_t range_count = 0;
};

struct RangePlan {
  std::vector<PlannedRequest> requests;  ///< By offset; they do not overlap.
  std::vector<std::size_t> order;        ///< Indices of the wanted ranges by offset.
  std::uint64_t wanted_bytes = 0;        ///< Of the union of all ranges.
  std::uint64_t planned_bytes = 0;       ///< Of all requests: wanted and holes.
};

/// Largest hole worth reading along, bytes.
std::uint64_t worthwhile_hole_bytes(const RangePlanOptions& options) noexcept;

/// Length of the requests that read an object whole: at most max_request_bytes, and such that
/// requests do not cross upload parts. Multiple of 4 KiB unless the parts are not. O(1).
std::uint64_t request_bytes_for(const RangePlanOptions& options) noexcept;

/// Plans ranges of one object, in any order, overlapping or not. Empty ranges ask for nothing.
/// Errors: kInvalidArgument (a range that ends past 2^64, zero max_request_bytes or bandwidth).
/// O(n log n).
Result<RangePlan> plan_ranges(std::span<const ByteRange> wanted, const RangePlanOptions& options);

/// Order in which to ask for objects so that neighbours in time have different prefixes (all up to
/// the last '/'): stores limit the request rate of a prefix. Keeps the order inside a prefix.
std::vector<std::size_t> spread_over_prefixes(std::span<const std::string_view> keys);

}  // namespace headrace
