// States of other loaders are told by members that only they write, and never by what is missing: a
// state of our own that lost a member must be an error of that member, not a state of somebody
// else.
#include "order/foreign_state.h"

#include <string>

namespace headrace::order_detail {
namespace {

bool has(simdjson::dom::object object, const char* name) {
  return object[name].error() == simdjson::SUCCESS;
}

bool is_litdata_part(simdjson::dom::object object) {
  return has(object, "current_epoch") && has(object, "num_samples_yielded") &&
         has(object, "num_workers");
}

}  // namespace

StateWriter writer_of(simdjson::dom::object state) {
  if (has(state, "fingerprint") || has(state, "block_table_digest")) return StateWriter::kOther;
  if (is_litdata_part(state)) return StateWriter::kLitData;
  simdjson::dom::object part;
  if (!state["dataset"].get_object().get(part)) {
    if (is_litdata_part(part)) return StateWriter::kLitData;
    if (has(state, "latest_worker_idx")) return StateWriter::kLitDataSeveral;
  }
  return has(state, "sample_in_epoch") && has(state, "epoch") ? StateWriter::kMosaic
                                                              : StateWriter::kOther;
}

std::optional<simdjson::dom::object> state_of(StateWriter writer, std::string_view state,
                                              simdjson::dom::parser& parser) {
  simdjson::dom::object object;
  const simdjson::padded_string padded(state);
  if (parser.parse(padded).get_object().get(object) || writer_of(object) != writer)
    return std::nullopt;
  return object;
}

Status refuse_foreign(simdjson::dom::object state) {
  switch (writer_of(state)) {
    case StateWriter::kOther:
      return {};
    case StateWriter::kMosaic:
      return Status(Code::kInvalidArgument,
                    "loader state: it is one of Mosaic's StreamingDataset; open the loader with "
                    "order=\"mosaic:ALGO\", ALGO being its shuffle_algo");
    case StateWriter::kLitData:
      return Status(Code::kInvalidArgument,
                    "loader state: it is one of LitData's StreamingDataset; open the loader with "
                    "order=\"litdata\"");
    case StateWriter::kLitDataSeveral:
      return Status(Code::kUnsupported,
                    "loader state: it is one of LitData's CombinedStreamingDataset or "
                    "ParallelStreamingDataset, which no order goes on from");
  }
  return {};
}

}  // namespace headrace::order_detail
