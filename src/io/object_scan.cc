#include "io/object_scan.h"

#include <fmt/format.h>

#include <map>

namespace headrace::io {

Status ObjectScan::run(const ScanObject& object,
                       const std::function<Status(std::size_t, RangeData)>& take) {
  if (!fetcher_) {
    HEADRACE_TRY_ASSIGN(fetcher_,
                        RangeFetcher::create(store_, pool_, {.call = call_, .budget = budget_}));
  }
  Status status = run_pieces(object, take);
  // Reads may be under way that nobody will take.
  if (!status.ok()) fetcher_.reset();
  return status;
}

Status ObjectScan::run_pieces(const ScanObject& object,
                              const std::function<Status(std::size_t, RangeData)>& take) {
  std::map<std::size_t, RangeData> early;
  std::size_t asked = 0;
  for (std::size_t next = 0; next < object.pieces.size(); ++next) {
    for (; asked < object.pieces.size() && asked < next + depth_; ++asked) {
      fetcher_->start({.key = object.key,
                       .etag = object.etag,
                       .offset_bytes = object.pieces[asked].offset_bytes,
                       .length_bytes = object.pieces[asked].length_bytes,
                       .is_fresh = object.is_fresh,
                       .tag = asked});
    }
    auto found = early.find(next);
    while (found == early.end()) {
      HEADRACE_TRY_ASSIGN(auto data, fetcher_->next());
      if (data.object_size_bytes != 0 && object.size_bytes != 0 &&
          data.object_size_bytes != object.size_bytes) {
        return Status(Code::kChanged, fmt::format("has {} bytes, expected {}",
                                                  data.object_size_bytes, object.size_bytes));
      }
      const std::size_t index = data.tag;
      early.emplace(index, std::move(data));
      found = early.find(next);
    }
    RangeData data = std::move(found->second);
    early.erase(found);
    HEADRACE_TRY(take(next, std::move(data)));
  }
  return Status();
}

}  // namespace headrace::io
