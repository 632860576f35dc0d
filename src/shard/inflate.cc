#include "shard/inflate.h"

#include <fmt/format.h>
#include <zstd.h>

#include <memory>

namespace headrace::detail {

Status inflate_zstd(std::span<const std::byte> stored, std::span<std::byte> raw) {
  const std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(ZSTD_createDCtx(),
                                                                     &ZSTD_freeDCtx);
  if (!context) return Status(Code::kExhausted, "zstd: no memory for a decompressor");
  // In one pass, because the output itself is the window: a stream would allocate what a hostile
  // frame header asks for.
  const std::size_t size =
      ZSTD_decompressDCtx(context.get(), raw.data(), raw.size(), stored.data(), stored.size());
  if (ZSTD_isError(size)) {
    return Status(Code::kCorrupt, fmt::format("zstd: {} ({} bytes stored, {} bytes expected)",
                                              ZSTD_getErrorName(size), stored.size(), raw.size()));
  }
  if (size != raw.size()) {
    return Status(Code::kCorrupt,
                  fmt::format("zstd: inflates to {} bytes, expected {}", size, raw.size()));
  }
  return Status();
}

}  // namespace headrace::detail
