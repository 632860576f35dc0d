#pragma once
/// \file
/// What a listing of a prefix is: which objects are data, and which format they make. Pure.
#include <string>
#include <vector>

#include "headrace/dataset.h"

namespace headrace::detail {

/// The objects of a listing that hold samples, and their format.
struct DataObjects {
  Format format = Format::kAuto;
  std::vector<ObjectInfo> objects;  ///< In byte order of the key.
};

/// Chooses the data objects of `listing` for `wanted` (kAuto, kWebDataset or kRaw). Hidden files,
/// `index.hri` and directory marks are never data; beside tars neither are .json .idx .txt .yaml
/// .sqlite files. Errors: kNotFound (nothing there), kInvalidArgument (mixed: names one of each),
/// kUnsupported (compressed tars).
Result<DataObjects> choose_objects(std::vector<ObjectInfo> listing, Format wanted,
                                   const std::string& url);

/// A text that differs when any key, size or version of the objects does.
std::string manifest_of(const DataObjects& data);

}  // namespace headrace::detail
