#pragma once
/// \file
/// The file of an extent in memory, for tests.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/fd.h"
#include "tier/extent_file.h"
#include "tier/new_extent.h"

namespace headrace::tier {

/// As NewExtent::write() wants it.
class SealedFile {
 public:
  SealedFile(const ExtentInfo& info, std::span<const std::byte> data, const SealKey* key = nullptr)
      : bytes_(static_cast<std::byte*>(
            std::aligned_alloc(kHeaderBytes, kHeaderBytes + file_bytes(info.name)))),
        parts_{.pages = {bytes_.get(), FileParts::kPagesBytes},
               .data = {bytes_.get() + FileParts::kPagesBytes, data.size()}} {
    std::copy(data.begin(), data.end(), parts_.data.begin());
    seal_extent(info, parts_, key);
  }
  const FileParts& parts() const { return parts_; }
  /// As it lies on the disk.
  std::vector<std::byte> bytes() const {
    const std::size_t pages = (parts_.data.size() + kHeaderBytes - 1) / kHeaderBytes;
    std::vector<std::byte> out((1 + pages) * kHeaderBytes);
    std::memcpy(out.data(), parts_.pages.data(), kHeaderBytes);
    std::memcpy(out.data() + kHeaderBytes, parts_.data.data(), parts_.data.size());
    return out;
  }

 private:
  struct Free {
    void operator()(std::byte* bytes) const noexcept { std::free(bytes); }
  };
  std::unique_ptr<std::byte, Free> bytes_;
  FileParts parts_;
};

/// Makes it an extent of the directory. Errors: those of NewExtent.
inline Status publish_extent(int directory, const ExtentName& name, const SealedFile& file,
                             bool is_nameless = true) {
  HEADRACE_TRY_ASSIGN(const auto extent,
                      NewExtent::write(Fd(::dup(directory)), file.parts(), is_nameless));
  return extent.publish(name, false);
}

}  // namespace headrace::tier
