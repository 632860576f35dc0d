#include <array>

#include "shard/index/hri.h"

namespace headrace::detail {

std::string_view compression_name(Compression compression) noexcept {
  constexpr std::array<std::string_view, 10> kNames{"",   "zstd",   "gz", "zlib", "bz2",
                                                    "br", "snappy", "xz", "own",  "decoded"};
  const auto at = static_cast<std::size_t>(compression);
  return at < kNames.size() ? kNames[at] : std::string_view();
}

}  // namespace headrace::detail
