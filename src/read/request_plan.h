#pragma once
/// \file
/// Into which requests a read is cut, and what is compared afterwards: the one rule of everybody
/// who reads extents (docs/design/0039).
///
/// A connection to a store brings 50 to 100 MB/s, so what is large is read by several at once. Of
/// an object that is read whole, stores send a sum; its parts have none, and so all of it is
/// compared with the sum that the store tells otherwise (StoreTraits::object_sums).
///
/// Place: src/read/, over Extent and Store; feed/ and fetch_extents().
///
/// Threads: functions; any.
#include <cstdint>
#include <span>
#include <vector>

#include "headrace/dataset.h"
#include "headrace/store.h"

namespace headrace::read {

/// How extents are cut for one store.
struct CutRule {
  std::uint64_t request_bytes = UINT64_MAX;  ///< Of one request; what is larger is cut.
  /// Of an object that is read whole by one request: where that takes little longer than in parts,
  /// it is not worth asking for its sum.
  std::uint64_t whole_bytes = UINT64_MAX;
  /// The same for one that is better not cut.
  std::uint64_t most_bytes = UINT64_MAX;
  ObjectSums sums = ObjectSums::kWholeReads;
};

/// The rule of a store. `most_bytes`: that a request may have, whatever the store. A local store
/// gains nothing by cutting.
CutRule cut_rule(const StoreTraits& traits, std::uint64_t most_bytes = UINT64_MAX);

/// An object that is read whole, in several requests.
struct CutObject {
  Extent extent;  ///< All of it.
  Checksum sum;   ///< kNone: not known, or not yet.
};

/// Whether an extent becomes several requests.
bool is_cut(const CutRule& rule, const Extent& extent) noexcept;

/// Cuts `extents` into requests of about the same size, in place, and appends those that are to be
/// compared as a whole. With ObjectSums::kHead each of these needs a kHead as well.
void cut_requests(const CutRule& rule, std::vector<Extent>& extents,
                  std::vector<CutObject>& objects);

/// Compares the objects whose sum is known; `bytes`: what the extents were read into. CPU work.
/// Errors: kCorrupt, with the object.
Status check_objects(const Store& store, std::span<const CutObject> objects,
                     std::span<const std::byte> bytes);

/// Takes what the answer to one of the requests said of the object that it is a part of.
void take_get(std::span<CutObject> objects, const Extent& request, const Checksum& sum);

/// Takes the end of the kHead of a cut object. A store that may not or cannot tell leaves the sum
/// unknown: ranges come unchecked then as they always do. Errors: any other of a request.
Status take_head(CutObject& object, Status status, const Checksum& sum);

}  // namespace headrace::read
