#include "shard/dataset/fingerprint.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <memory>

#include "shard/formats/raw/raw_layout.h"
#include "shard/formats/tokens/idx_layout.h"

namespace headrace::detail {
namespace {

class Digest {
 public:
  Digest() : state_(XXH3_createState(), &XXH3_freeState) { XXH3_128bits_reset(state_.get()); }
  void add(std::uint64_t number) { XXH3_128bits_update(state_.get(), &number, sizeof(number)); }
  void add(std::string_view text) {
    add(std::uint64_t{text.size()});
    XXH3_128bits_update(state_.get(), text.data(), text.size());
  }
  std::string text() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }

 private:
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
};

void add_file(Digest& digest, const IndexSource& file) {
  digest.add(file.key);
  digest.add(file.size_bytes);
}

/// The layout; of one that names versions of objects what else it says.
void add_layout(Digest& digest, const IndexView& view) {
  if (view.format() == Format::kTokens && !view.layout().empty()) {
    const auto files = parse_idx_layout(view.layout());
    if (files) {
      for (const IndexSource& file : *files) add_file(digest, file);
      return;
    }
  }
  const auto manifest =
      view.format() == Format::kRaw ? manifest_of(view.layout()) : std::optional<IndexSource>();
  if (!manifest) return digest.add(view.layout());
  add_file(digest, *manifest);
  for (std::uint64_t i = 0; i < view.sample_count(); ++i) digest.add(view.key_of(i));
}

}  // namespace

std::string content_fingerprint(const IndexView& view) {
  Digest digest;
  digest.add("headrace fingerprint 3");
  digest.add(format_name(view.format()));
  digest.add(columns_text(view.columns()));
  add_layout(digest, view);
  for (std::uint64_t i = 0; i < view.object_count(); ++i) {
    const IndexObject object = view.object(i);
    digest.add(object.key);
    digest.add(object.size_bytes);
  }
  for (const ShardRecord& shard : view.shards()) {
    digest.add(shard.sample_count);
    digest.add(shard.hashes);
  }
  return digest.text();
}

}  // namespace headrace::detail
