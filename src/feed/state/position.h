#pragma once
/// \file
/// Position: what a loader's state says, and its JSON. Pure.
#include <cstdint>
#include <string>
#include <string_view>

#include "headrace/order.h"
#include "headrace/status.h"

namespace headrace::feed {

/// Version of the JSON's fields. States of version 1 have no checksum, and a fingerprint that also
/// names the versions of objects.
constexpr std::uint64_t kStateVersion = 2;

/// Where a run stands: `t` samples of `epoch` were received by all ranks together, in `batches`
/// global batches.
struct Position {
  std::uint64_t epoch = 0;
  std::uint64_t t = 0;
  std::uint64_t batches = 0;
};

struct LoaderState {
  std::uint64_t version = kStateVersion;
  std::string fingerprint;
  std::string version_fingerprint;  ///< Only of a loader's own: Dataset::version_fingerprint().
  std::uint32_t block_count = 0;    ///< Likewise.
  OrderSpec order;
  Position position;
  EpochEnd epoch_end = EpochEnd::kPad;  ///< For people; a resumed run follows its own options.
  std::uint64_t global_batch = 1;       ///< For people likewise.
  std::string quarantine;               ///< Digest of the list; empty: none.
  std::uint64_t broken_shards = 0;      ///< That the dataset does without.
};

/// 16 lower-case hex digits.
std::string hex16(std::uint64_t value);

std::string_view epoch_end_name(EpochEnd end) noexcept;

/// One line of JSON, under 1 KiB. docs/semantics.md describes the fields. `extra`: a JSON object of
/// the order's own, whose members are added (OrderSource::state_extra()).
std::string write_state(const LoaderState& state, std::string_view extra = "{}");
/// Errors: kInvalidArgument (not JSON, a field missing or of the wrong type: names it; a checksum
/// that does not fit; numbers that cannot be; an unknown version; a state of another loader),
/// kUnsupported (a state that no order takes). `extra`: what the loader's own order adds to states.
Result<LoaderState> read_state(std::string_view json, std::string_view extra = "{}");

/// Whether `state` may continue on the dataset and order of `ours` (seed included; lanes, window
/// and bundle are taken from the state; a state without quarantine goes on under any). The version
/// of the order is compared by the order's source. Errors: kInvalidArgument naming the field that
/// differs with both values.
Status check_state(const LoaderState& state, const LoaderState& ours);

}  // namespace headrace::feed
