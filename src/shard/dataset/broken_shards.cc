#include "shard/dataset/broken_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "shard/dataset/build.h"

namespace headrace::detail {
namespace {

// Reasons that one message gives in full; of the others it has the keys.
constexpr std::size_t kMostReasons = 5;

}  // namespace

bool blames_bytes(Code code) noexcept {
  return code == Code::kCorrupt || code == Code::kUnsupported;
}

bool blames_shard(Code code) noexcept { return blames_bytes(code) || code == Code::kNotFound; }

std::vector<BrokenShard> BrokenShards::sorted() const {
  std::vector<BrokenShard> out = shards_;
  std::sort(out.begin(), out.end(),
            [](const BrokenShard& a, const BrokenShard& b) { return a.key < b.key; });
  return out;
}

void BrokenShards::add(BrokenShard shard) {
  const bool is_there = std::any_of(shards_.begin(), shards_.end(), [&](const BrokenShard& s) {
    return s.key == shard.key && s.first_sample == shard.first_sample;
  });
  if (!is_there) shards_.push_back(std::move(shard));
}

Status BrokenShards::error(const Store& store) const {
  const std::vector<BrokenShard> all = sorted();
  std::string text;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i < kMostReasons) {
      text +=
          fmt::format("{}{}: {}", i == 0 ? "" : "; ", store.object_url(all[i].key), all[i].message);
    } else {
      text += fmt::format("{}{}", i == kMostReasons ? "; likewise " : ", ", all[i].key);
    }
  }
  const std::string_view what = all.size() == 1 ? "this shard" : "these shards";
  if (whole_count_ == 0) {
    text += fmt::format(" (broken: {}, and no other was found whole)", all.size());
  } else {
    text += fmt::format(
        " (broken: {} of {}; write {} again, or go on without: on_bad_sample=\"replace\" of a "
        "Loader, on_broken_shard=\"leave_out\" of a Dataset, or the list of `headrace verify "
        "--quarantine`)",
        all.size(), all.size() + whole_count_, what);
  }
  return Status(all.front().code, std::move(text));
}

Status BuildContext::leave_out(const ObjectInfo& object, Status why,
                               std::optional<KeptPlaces> kept) const {
  if (why.ok()) return why;
  const bool is_broken = kept ? blames_shard(why.code()) : blames_bytes(why.code());
  if (broken == nullptr || !is_broken || broken->size() >= BrokenShards::kMost)
    return std::move(why).annotate(store.object_url(object.key));
  const KeptPlaces places = kept.value_or(KeptPlaces{});
  broken->add({.key = object.key,
               .etag = object.etag,
               .size_bytes = object.size_bytes,
               .code = why.code(),
               .message = std::string(why.message()),
               .first_sample = places.first_sample,
               .sample_count = places.sample_count});
  return Status();
}

std::vector<BrokenShard> BuildContext::left_out() const {
  return broken == nullptr ? std::vector<BrokenShard>() : broken->sorted();
}

}  // namespace headrace::detail
