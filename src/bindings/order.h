#pragma once
/// \file
/// Orders for Python: conversions that loader.cc shares.
#include <cstdint>
#include <string>
#include <vector>

#include "bind.h"
#include "headrace/order.h"

namespace headrace {

/// "pad", "drop", "uneven"; raises InvalidArgumentError for other names.
EpochEnd parse_epoch_end(const std::string& name);

nb::dict spec_to_dict(const OrderSpec& spec);
OrderSpec spec_from_dict(const nb::dict& fields);

/// A numpy array that owns `values`.
nb::object make_int64_array(std::vector<std::int64_t> values);

}  // namespace headrace
