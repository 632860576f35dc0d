#include "store/azure/azure_uploads.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>

#include "base/base64.h"
#include "base/strings.h"

namespace headrace::azure {
namespace {

constexpr std::size_t kUploadIdBytes = 24;
constexpr std::size_t kBlockTextBytes = 30;  // a multiple of 3: no padding in base64
constexpr std::size_t kRememberedAborts = 1024;

}  // namespace

Result<std::string> new_upload_id() {
  std::array<std::byte, kUploadIdBytes / 2> random;
  // As few bytes as this never come in part (getrandom(2)).
  ssize_t count = 0;
  do {
    count = ::getrandom(random.data(), random.size(), 0);
  } while (count < 0 && errno == EINTR);
  if (count != static_cast<ssize_t>(random.size()))
    return Status(Code::kInternal, "the kernel gives no random numbers");
  return to_hex(random);
}

bool is_upload_id(std::string_view text) noexcept {
  return text.size() == kUploadIdBytes && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

BlockId block_id(std::string_view upload_id, std::uint32_t part_number) {
  std::array<std::byte, kBlockTextBytes> text;
  std::transform(upload_id.begin(), upload_id.end(), text.begin(),
                 [](char c) { return static_cast<std::byte>(c); });
  text[kUploadIdBytes] = std::byte{'-'};
  for (std::size_t i = kBlockTextBytes; --i > kUploadIdBytes; part_number /= 10)
    text[i] = static_cast<std::byte>('0' + part_number % 10);
  BlockId out;
  encode_base64(text, out);
  return out;
}

std::optional<std::uint32_t> part_of_block(std::string_view block_id, std::string_view upload_id) {
  const auto text = decode_base64(block_id);
  if (!text || text->size() != kBlockTextBytes || !text->starts_with(upload_id))
    return std::nullopt;
  if ((*text)[kUploadIdBytes] != '-') return std::nullopt;
  return parse_decimal<std::uint32_t>(std::string_view(*text).substr(kUploadIdBytes + 1));
}

void AbortedUploads::add(std::string_view upload_id) {
  MutexLock lock(mutex_);
  if (std::find(ids_.begin(), ids_.end(), upload_id) != ids_.end()) return;
  if (ids_.size() == kRememberedAborts) ids_.pop_front();
  ids_.emplace_back(upload_id);
}

bool AbortedUploads::contains(std::string_view upload_id) const {
  MutexLock lock(mutex_);
  return std::find(ids_.begin(), ids_.end(), upload_id) != ids_.end();
}

}  // namespace headrace::azure
