#include "store/range_planner.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <unordered_map>

namespace headrace {
namespace {

/// End of the request that starts at `offset`, by the grid of `step` bytes and the limit.
std::uint64_t cut_after(std::uint64_t offset, std::uint64_t end, std::uint64_t step,
                        std::uint64_t max_bytes) {
  if (end - offset <= max_bytes && (step == 0 || offset / step == (end - 1) / step)) return end;
  if (step == 0) return offset + max_bytes;
  const std::uint64_t grid = offset / step * step;
  const std::uint64_t next = end - grid > step ? grid + step : end;
  return std::min(next, end - offset > max_bytes ? offset + max_bytes : end);
}

void add_requests(std::uint64_t begin, std::uint64_t end, const RangePlanOptions& options,
                  std::vector<PlannedRequest>& out) {
  // Ranges shorter than a request gain nothing from the grid, except not to cross parts.
  const std::uint64_t step = options.part_bytes == 0 ? 0 : request_bytes_for(options);
  while (begin < end) {
    const std::uint64_t cut = cut_after(begin, end, step, options.max_request_bytes);
    out.push_back({begin, cut - begin, 0, 0});
    begin = cut;
  }
}

/// Tells each request which ranges touch it. Both are sorted by offset.
void assign_ranges(std::span<const ByteRange> wanted, RangePlan& plan) {
  std::size_t first = 0;
  for (PlannedRequest& request : plan.requests) {
    const std::uint64_t end = request.offset_bytes + request.length_bytes;
    const auto range = [&](std::size_t i) { return wanted[plan.order[i]]; };
    while (first < plan.order.size() &&
           range(first).offset_bytes + range(first).length_bytes <= request.offset_bytes)
      ++first;
    std::size_t last = first;
    while (last < plan.order.size() && range(last).offset_bytes < end) ++last;
    request.first_range = first;
    request.range_count = last - first;
  }
}

}  // namespace

std::uint64_t worthwhile_hole_bytes(const RangePlanOptions& options) noexcept {
  const double bytes = options.first_byte_s * options.connection_bytes_per_s;
  if (bytes >= static_cast<double>(options.max_hole_bytes)) return options.max_hole_bytes;
  return static_cast<std::uint64_t>(std::max(0.0, bytes));
}

std::uint64_t request_bytes_for(const RangePlanOptions& options) noexcept {
  const std::uint64_t part_bytes = options.part_bytes;
  const std::uint64_t max_bytes = options.max_request_bytes;
  if (part_bytes == 0 || max_bytes == 0) return max_bytes;
  if (part_bytes <= max_bytes) return max_bytes / part_bytes * part_bytes;
  // Equal pieces of a part: the fewest that fit, so that the last is no crumb.
  const std::uint64_t pieces = (part_bytes + max_bytes - 1) / max_bytes;
  for (std::uint64_t count = pieces; count < 4 * pieces; ++count) {
    if (part_bytes % count == 0) return part_bytes / count;
  }
  return max_bytes;
}

Result<RangePlan> plan_ranges(std::span<const ByteRange> wanted, const RangePlanOptions& options) {
  if (options.max_request_bytes == 0 || options.connection_bytes_per_s <= 0)
    return Status(Code::kInvalidArgument, "requests of no bytes, or no bandwidth");
  RangePlan plan;
  plan.order.reserve(wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const ByteRange& range = wanted[i];
    if (range.length_bytes == 0) continue;
    if (range.length_bytes > std::numeric_limits<std::uint64_t>::max() - range.offset_bytes)
      return Status(Code::kInvalidArgument, "a range ends past 2^64");
    plan.order.push_back(i);
  }
  std::stable_sort(plan.order.begin(), plan.order.end(), [&](std::size_t a, std::size_t b) {
    return wanted[a].offset_bytes < wanted[b].offset_bytes;
  });
  const std::uint64_t hole_bytes = worthwhile_hole_bytes(options);
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool is_open = false;
  for (const std::size_t index : plan.order) {
    const ByteRange& range = wanted[index];
    const std::uint64_t range_end = range.offset_bytes + range.length_bytes;
    if (is_open && (range.offset_bytes <= end || range.offset_bytes - end <= hole_bytes)) {
      if (range_end > end) plan.wanted_bytes += range_end - std::max(end, range.offset_bytes);
      end = std::max(end, range_end);
      continue;
    }
    if (is_open) add_requests(begin, end, options, plan.requests);
    begin = range.offset_bytes;
    end = range_end;
    is_open = true;
    plan.wanted_bytes += range.length_bytes;
  }
  if (is_open) add_requests(begin, end, options, plan.requests);
  for (const PlannedRequest& request : plan.requests) plan.planned_bytes += request.length_bytes;
  assign_ranges(wanted, plan);
  return plan;
}

std::vector<std::size_t> spread_over_prefixes(std::span<const std::string_view> keys) {
  // Turns: the n-th object of every prefix, then the next of every prefix.
  std::unordered_map<std::string_view, std::size_t> seen;
  std::vector<std::size_t> turn(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::size_t slash = keys[i].rfind('/');
    turn[i] =
        seen[slash == std::string_view::npos ? std::string_view() : keys[i].substr(0, slash)]++;
  }
  std::vector<std::size_t> order(keys.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return turn[a] < turn[b]; });
  return order;
}

}  // namespace headrace
