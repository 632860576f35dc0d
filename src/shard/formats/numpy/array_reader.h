#pragma once
/// \file
/// The arrays of `.npy` and `.npz` objects: their headers, read from a store.
///
/// Place: under numpy_build.cc.
///
/// Threads: functions of the calling one.
#include <string>
#include <vector>

#include "shard/dataset/build.h"
#include "shard/formats/numpy/npy_header.h"
#include "shard/formats/numpy/packed_layout.h"

namespace headrace::detail {

/// One array of an object.
struct StoredArray {
  std::string name;  ///< Of the member, without ".npy"; "data" for a `.npy`.
  NpyHeader header;
  std::uint64_t offset_bytes = 0;  ///< Of its first row in the object; where it is not packed.
  PackedMember packed = {};        ///< Of an `.npz`.
};

struct StoredArrays {
  bool is_zip = false;     ///< The objects are `.npz`, whatever their names.
  bool is_packed = false;  ///< Some array is deflated: objects are read whole.
  /// Of each object those that DatasetOptions::columns names (all when it names none), in its
  /// order.
  std::vector<std::vector<StoredArray>> of_object;
  std::vector<bool> is_broken;  ///< Of each object whether it was left out.
};

/// Reads the arrays of all `objects`, at least one; leaves out broken ones as the context says.
/// Errors: kCorrupt, kUnsupported (encrypted
/// members, compressed otherwise than by deflate, what parse_npy_header() refuses),
/// kInvalidArgument (a column that is not there, `.npy` and `.npz` together), those of a kGet; all
/// name the object.
Result<StoredArrays> read_arrays(const BuildContext& context,
                                 const std::vector<ObjectInfo>& objects);

}  // namespace headrace::detail
