#include "shard/formats/webdataset/tar.h"
#include "shard/formats/webdataset/webdataset_driver.h"

namespace headrace::detail {

bool looks_like_tar(std::span<const std::byte> head) noexcept {
  if (head.size() < kTarBlockBytes) return false;
  TarNameBuffer buffer;
  auto first = parse_tar_member(head, buffer);
  // A header whose checksum is right is one, whether the rest can be read or not.
  if (!first) return first.error().code() == Code::kUnsupported;
  return first->step != TarStep::kZeroBlock;
}

}  // namespace headrace::detail
