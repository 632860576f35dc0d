#include "shard/dataset/fingerprint.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "shard/dataset/format_driver.h"

namespace headrace::detail {

ContentDigest::ContentDigest() : state_(XXH3_createState(), &XXH3_freeState) {
  XXH3_128bits_reset(state_.get());
}

void ContentDigest::add(std::uint64_t number) {
  XXH3_128bits_update(state_.get(), &number, sizeof(number));
}

void ContentDigest::add(std::string_view text) {
  add(std::uint64_t{text.size()});
  XXH3_128bits_update(state_.get(), text.data(), text.size());
}

void ContentDigest::add_file(const IndexSource& file) {
  add(file.key);
  add(file.size_bytes);
}

std::string ContentDigest::text() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string content_fingerprint(const IndexView& view) {
  ContentDigest digest;
  digest.add("headrace fingerprint 3");
  digest.add(format_name(view.format()));
  digest.add(columns_text(view.columns()));
  const FormatDriver* driver = driver_of(view.format());
  if (driver != nullptr && driver->add_layout != nullptr) {
    driver->add_layout(digest, view);
  } else {
    digest.add(view.layout());
  }
  for (std::uint64_t i = 0; i < view.object_count(); ++i) {
    const IndexObject object = view.object(i);
    digest.add(object.key);
    digest.add(object.size_bytes);
  }
  for (const ShardRecord& shard : view.shards()) {
    digest.add(shard.sample_count);
    digest.add(shard.hashes);
  }
  for (const BrokenShard& shard : view.broken()) {
    digest.add("broken");
    digest.add(shard.key);
    digest.add(shard.size_bytes);
    digest.add(shard.sample_count);
  }
  return digest.text();
}

}  // namespace headrace::detail
