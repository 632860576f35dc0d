#pragma once
/// \file
/// State dicts of LitData's StreamingDataset.
///
/// Threads: any.
#include <simdjson.h>

#include <nlohmann/json.hpp>
#include <span>

#include "headrace/litdata_order.h"
#include "headrace/status.h"

namespace headrace::order_detail {

/// `here`: the run's world, whose nodes hold where the state does not say any. Errors:
/// kInvalidArgument naming the field.
Result<LitDataState> read_litdata_state(simdjson::dom::object state, const LitDataWorld& here);

/// The fields that read_litdata_state() reads.
nlohmann::ordered_json write_litdata_state(const LitDataState& state);

/// Whether the run of `state` had the options and the chunks that are given. Errors:
/// kInvalidArgument naming the field with both values.
Status check_litdata_state(simdjson::dom::object state, const LitDataSpec& spec,
                           std::span<const LitDataChunk> chunks);

}  // namespace headrace::order_detail
