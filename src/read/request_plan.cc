// Parts of one object are of one version only where each request names it. One that is read whole
// without a version is left whole as far as its reader's memory goes: one answer cannot mix two.
#include "read/request_plan.h"

#include <algorithm>
#include <utility>

#include "base/crc32c.h"
#include "base/crc64nvme.h"

namespace headrace::read {
namespace {

// With 4 MiB a request, the last byte comes after two to three first-byte times, and little more
// than half as much has to be under way as with 8 MiB.
constexpr std::uint64_t kRequestBytes = std::uint64_t{4} << 20;
// An object in one request of 16 MiB takes 0.2 s at 80 MB/s. Cut, it takes a request for its sum
// beside four others.
constexpr std::uint64_t kWholeRequests = 4;
constexpr std::uint64_t kPageBytes = 4096;

std::uint64_t requests_for(const CutRule& rule, const Extent& extent) noexcept {
  const bool is_better_whole = rule.sums == ObjectSums::kWholeReads || extent.etag.empty();
  const std::uint64_t whole_bytes = is_better_whole ? rule.most_bytes : rule.whole_bytes;
  if (extent.is_whole_object && extent.length_bytes <= whole_bytes) return 1;
  return extent.length_bytes == 0 ? 1 : (extent.length_bytes - 1) / rule.request_bytes + 1;
}

/// Of `count` about equal ones. Whole pages where that is not too much: what a cache keeps of a
/// part then begins at one, and needs no copy.
std::uint64_t request_size(const CutRule& rule, std::uint64_t length_bytes,
                           std::uint64_t count) noexcept {
  const std::uint64_t least = length_bytes == 0 ? 1 : (length_bytes - 1) / count + 1;
  const std::uint64_t paged = (least + kPageBytes - 1) / kPageBytes * kPageBytes;
  return paged <= rule.request_bytes ? paged : least;
}

std::uint64_t sum_of(ChecksumKind kind, std::span<const std::byte> bytes) noexcept {
  return kind == ChecksumKind::kCrc32c ? crc32c(bytes) : crc64nvme(bytes);
}

}  // namespace

CutRule cut_rule(const StoreTraits& traits, std::uint64_t most_bytes) {
  CutRule rule{.request_bytes = most_bytes,
               .whole_bytes = most_bytes,
               .most_bytes = most_bytes,
               .sums = traits.object_sums};
  if (traits.is_local) return rule;
  rule.request_bytes = std::min(most_bytes, kRequestBytes);
  rule.whole_bytes = std::min(most_bytes, kWholeRequests * kRequestBytes);
  return rule;
}

bool is_cut(const CutRule& rule, const Extent& extent) noexcept {
  return requests_for(rule, extent) > 1;
}

void cut_requests(const CutRule& rule, std::vector<Extent>& extents,
                  std::vector<CutObject>& objects) {
  if (std::none_of(extents.begin(), extents.end(),
                   [&](const Extent& extent) { return is_cut(rule, extent); }))
    return;
  const bool has_sums = rule.sums == ObjectSums::kHead || rule.sums == ObjectSums::kEveryGet;
  std::vector<Extent> requests;
  for (const Extent& extent : extents) {
    const std::uint64_t count = requests_for(rule, extent);
    if (count > 1 && extent.is_whole_object && has_sums) objects.push_back({extent, {}});
    const std::uint64_t size = request_size(rule, extent.length_bytes, count);
    for (std::uint64_t at = 0; at < extent.length_bytes; at += size) {
      Extent request = extent;
      request.offset_bytes += at;
      request.target_offset_bytes += at;
      request.length_bytes = std::min(size, extent.length_bytes - at);
      request.is_whole_object = count == 1 && extent.is_whole_object;
      requests.push_back(request);
    }
  }
  extents = std::move(requests);
}

Status check_objects(const Store& store, std::span<const CutObject> objects,
                     std::span<const std::byte> bytes) {
  for (const CutObject& object : objects) {
    if (object.sum.kind == ChecksumKind::kNone) continue;
    const Extent& extent = object.extent;
    const auto all = bytes.subspan(extent.target_offset_bytes, extent.length_bytes);
    if (sum_of(object.sum.kind, all) == object.sum.value) continue;
    return Status(Code::kCorrupt, store.object_url(extent.key) +
                                      ": its bytes, read in parts, do not match the checksum that "
                                      "the store keeps with it");
  }
  return {};
}

void take_get(std::span<CutObject> objects, const Extent& request, const Checksum& sum) {
  if (sum.kind == ChecksumKind::kNone) return;
  for (CutObject& object : objects) {
    const std::uint64_t begin = object.extent.target_offset_bytes;
    const bool is_of_it = request.target_offset_bytes >= begin &&
                          request.target_offset_bytes < begin + object.extent.length_bytes;
    if (is_of_it) object.sum = sum;
  }
}

Status take_head(CutObject& object, Status status, const Checksum& sum) {
  if (status.ok()) object.sum = sum;
  const bool is_refused = status.code() == Code::kDenied || status.code() == Code::kUnsupported;
  return is_refused ? Status() : std::move(status);
}

}  // namespace headrace::read
