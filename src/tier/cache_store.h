#pragma once
/// \file
/// A store whose reads are served from a tier.
#include <cstddef>
#include <memory>
#include <string>

#include "headrace/store.h"
#include "tier/tier.h"

namespace headrace::tier {

/// As cache_reads() (headrace/cache.h) says, of any tier.
std::unique_ptr<Store> wrap_tier(std::unique_ptr<Store> inner, std::shared_ptr<Tier> tier,
                                 std::size_t accept_limit);

/// The `origin` in the names of what is kept of a store. Who compares bodies with the server's sums
/// finds nothing that was kept by somebody who does not.
std::string origin_of_kept(const Store& store);

}  // namespace headrace::tier
