#pragma once
/// \file
/// A column of a batch as an Arrow array over the batch's memory, for `Loader(ragged="arrow")`.
///
/// Crosses into Python by the Arrow PyCapsule interface
/// (https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html), so that pyarrow
/// is needed at run time only.
///
/// Threads: made with the GIL; what is made may be released on any thread, without it.
#include <string>

#include "batch_owner.h"
#include "bind.h"
#include "headrace/loader.h"

namespace headrace {

/// How a column looks in Arrow.
struct ArrowForm {
  enum class Kind : std::uint8_t {
    kNone,          ///< It has no Arrow form.
    kBinary,        ///< large_binary ("Z").
    kText,          ///< large_string ("U").
    kList,          ///< large_list of numbers ("+L").
    kNullableList,  ///< The same, of encoding "nullable_list:": a flag before each list.
    kNumbers,       ///< One number a sample, some missing.
  };
  Kind kind = Kind::kNone;
  const char* item_format = "";  ///< Of the number; see number_format().
  std::size_t item_bytes = 0;
};

/// Arrow's format string for a dtype; nullptr where Arrow lacks it, or packs it in bits (bool).
const char* number_format(nb::dlpack::dtype dtype) noexcept;

/// An object with `__arrow_c_array__`. \pre form.kind is not kNone; the column is of `owner`'s
/// batch. Of nullable lists the items are moved together in the batch's memory, so this comes once
/// and last. Raises ValueError where a list's bytes are no multiple of its item; nothing is moved
/// then.
nb::object make_arrow_column(const BatchColumn& column, const ArrowForm& form, SharedBatch owner);

}  // namespace headrace
