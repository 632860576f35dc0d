#pragma once
/// \file
/// Orders of other loaders for Python: what mosaic.cc, litdata_order.cc and list_sources.cc share.
#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "bind.h"
#include "headrace/litdata_order.h"
#include "headrace/mosaic_order.h"
#include "headrace/order.h"

namespace headrace {

struct PySampleList {
  std::shared_ptr<const SampleList> list;
};

/// (shard samples, proportion, repeat, choose); weights None when not given.
using MosaicStreamRow = std::tuple<std::vector<std::uint64_t>, std::optional<double>,
                                   std::optional<double>, std::optional<std::uint64_t>>;

/// From the names of their fields. Names that are missing or None leave the default.
MosaicSpec mosaic_spec_from(const nb::dict& fields);
std::vector<MosaicStream> mosaic_streams_from(const std::vector<MosaicStreamRow>& rows);
/// item_shuffle_window None: the sliding window of "window".
LitDataSpec litdata_spec_from(const nb::dict& fields);

}  // namespace headrace
