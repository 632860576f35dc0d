#pragma once
/// \file
/// What a loader makes of its options before it begins: columns, memory, threads, the first order.
/// Pure.
#include <memory>

#include "feed/finish/batch.h"
#include "feed/residency/memory_plan.h"
#include "feed/residency/slab_sizes.h"
#include "headrace/loader.h"

namespace headrace::feed {

/// Errors: kInvalidArgument (names the option).
Status check_options(const Dataset& dataset, const LoaderOptions& options);
/// Quarantined samples and those of broken shards, sorted and joined.
std::vector<SampleRange> never_delivered(const Dataset& dataset, const LoaderOptions& options);
/// The columns named, all when none are, and what is made of their values. Errors: kInvalidArgument
/// (names those that there are), those of Decode::bind().
Result<Selection> select_columns(const Dataset& dataset, const LoaderOptions& options);
/// O(B).
MemoryNeeds needs_of(const Dataset& dataset, const Selection& selection, const SlabSizes& sizes,
                     const SlabPool& pool, const LoaderOptions& options);
/// Threads that inflate, unpack, decode and finish batches; 0 where that would gain nothing.
std::uint32_t worker_count(const Dataset& dataset, const LoaderOptions& options);
/// Whether large batches may be finished by them: where cores are few, a hand-over costs CPU time
/// (5 % measured on two) and gains nothing.
bool finishes_on_workers(const LoaderOptions& options);
/// The source that `options.order` names, with lanes chosen for this first run. Errors: those of
/// create_order_source().
Result<std::shared_ptr<const OrderSource>> make_source(const Dataset& dataset,
                                                       const SlabSizes& sizes, const SlabPool& pool,
                                                       const LoaderOptions& options);

}  // namespace headrace::feed
