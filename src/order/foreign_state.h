#pragma once
/// \file
/// States of other loaders: who wrote one.
///
/// Threads: any.
#include <simdjson.h>

#include <optional>
#include <string_view>

#include "headrace/status.h"

namespace headrace::order_detail {

enum class StateWriter {
  kOther,  ///< Headrace, or unknown.
  kMosaic,
  kLitData,         ///< Its StreamingDataLoader or StreamingDataset.
  kLitDataSeveral,  ///< Its CombinedStreamingDataset or ParallelStreamingDataset.
};

/// By the names of the fields.
StateWriter writer_of(simdjson::dom::object state);

/// A state that `writer` has written, in the memory of `parser`; nullopt: it is another's, or no
/// JSON.
std::optional<simdjson::dom::object> state_of(StateWriter writer, std::string_view state,
                                              simdjson::dom::parser& parser);

/// Refuses a state of another loader than Headrace by its name. Errors: kInvalidArgument (says the
/// order that takes it), kUnsupported (none does).
Status refuse_foreign(simdjson::dom::object state);

}  // namespace headrace::order_detail
