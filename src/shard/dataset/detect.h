#pragma once
/// \file
/// Which format a set of objects is, by what they contain.
///
/// A few objects are looked into: the first and the last of each kind of name ("a-0001.x" and
/// "a-0002.x" are one kind). Names decide nothing that content can decide; where content says
/// nothing, a name that claims a format (".tar") sends the objects to that format's builder, which
/// says what is wrong with them. Where lines of JSON are found, .json files are looked into as
/// well, one by one.
///
/// Threads: the calling one.
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "shard/dataset/build.h"
#include "shard/dataset/listing.h"

namespace headrace::detail {

/// Objects of one format, in order.
struct DataObjects {
  Format format = Format::kAuto;
  std::vector<ObjectInfo> objects;
  /// Some are files that are beside data as a rule (FormatDriver::may_be_beside).
  bool has_beside = false;
};

/// The objects of options.format, or (kAuto) of the format that is found there. Raw files and Lance
/// get all visible objects, other formats those that hold samples. Errors: kInvalidArgument
/// (mixed: names one object of each; a file that may be data or a note about them), kNotFound
/// (nothing of the format asked for), those of lost_index() (shards that only an index.json can
/// read) and of the store.
Result<DataObjects> choose_objects(const BuildContext& context, Candidates candidates);

/// Format that `head`, the first bytes of an object (inflated), has the mark of; kAuto: none.
Format format_of(std::span<const std::byte> head) noexcept;

}  // namespace headrace::detail
