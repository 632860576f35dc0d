#include "tier/extent_draft.h"

#include <array>
#include <utility>

#include "base/errno_status.h"
#include "base/read_at.h"
#include "base/write_at.h"
#include "tier/new_extent.h"

namespace headrace::tier {

ExtentDraft::ExtentDraft(Fd file, ExtentInfo info, std::uint64_t part_bytes, const SealKey* key)
    : file_(std::move(file)),
      info_(std::move(info)),
      part_bytes_(part_bytes),
      header_(part_bytes, info_.name.length_bytes / part_bytes, key) {}

Result<std::unique_ptr<ExtentDraft>> ExtentDraft::create(int directory, ExtentInfo info,
                                                         std::uint64_t part_bytes,
                                                         const SealKey* key) {
  // As extent_file.h says; parts are written once and read long after.
  HEADRACE_TRY_ASSIGN(Fd file, make_nameless(directory, true));
  return std::unique_ptr<ExtentDraft>(
      new ExtentDraft(std::move(file), std::move(info), part_bytes, key));
}

Status ExtentDraft::write(std::uint64_t part, std::span<const std::byte> bytes) const {
  const int error = write_all_at(file_.get(), offset_of(part), bytes);
  return error == 0 ? Status() : errno_status(error, "writing a cached file");
}

Status ExtentDraft::read(std::uint64_t part, std::span<std::byte> out) {
  const std::int64_t count = read_at(file_.get(), offset_of(part), out);
  if (count < 0) return errno_status(static_cast<int>(-count), "reading a cached file");
  if (count < static_cast<std::int64_t>(out.size()))
    return Status(Code::kCorrupt, "cached file: ends too early");
  return header_.open(part, out);
}

Status ExtentDraft::publish(int directory, bool was_hit) {
  alignas(kHeaderBytes) std::array<std::byte, kHeaderBytes> page;
  header_.finish(info_, page);
  if (const int error = write_all_at(file_.get(), 0, page); error != 0)
    return errno_status(error, "writing a cached file");
  return show_nameless(file_.get(), directory, info_.name, was_hit);
}

}  // namespace headrace::tier
