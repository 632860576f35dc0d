// A log that is only appended to: name of the object's version, length, CRC-32C, bytes. A build
// that is killed leaves a whole prefix and perhaps a torn end, which the next one writes over.
//
// Nothing depends on it. Any failure ends the keeping, quietly: then the work is done again.
#include "shard/index/partial.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>

#include "base/atomic_file.h"
#include "base/crc32c.h"
#include "base/endian.h"
#include "base/read_at.h"

namespace headrace::detail {
namespace {

// u64 name, two halves; u32 length; u32 CRC-32C of the content.
constexpr std::size_t kRecordHeadBytes = 24;

std::string path_of(const std::string& dir, std::string_view url) {
  const XXH128_hash_t hash = XXH3_128bits(url.data(), url.size());
  return fmt::format("{}/{:016x}{:016x}.part", dir, hash.high64, hash.low64);
}

bool write_all(int fd, std::uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    offset += static_cast<std::uint64_t>(put);
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

std::uint32_t checksum_of(std::string_view bytes) {
  return crc32c(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

}  // namespace

PartialIndex::PartialIndex(const std::string& dir, std::string_view url, std::string_view kind)
    : kind_(kind) {
  if (dir.empty()) return;
  make_private_directories(dir);
  fd_ = ::open(path_of(dir, url).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd_ < 0) return;
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) {
    read_log();
  } else {
    stop();
  }
}

PartialIndex::~PartialIndex() { stop(); }

void PartialIndex::stop() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void PartialIndex::read_log() {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return stop();
  const auto size = static_cast<std::uint64_t>(info.st_size);
  char head[kRecordHeadBytes];
  while (size - end_bytes_ >= kRecordHeadBytes &&
         read_all_at(fd_, end_bytes_, std::as_writable_bytes(std::span(head)))) {
    const auto* at = reinterpret_cast<const std::byte*>(head);
    const Place place{end_bytes_ + kRecordHeadBytes, load_le<std::uint32_t>(at + 16),
                      load_le<std::uint32_t>(at + 20)};
    // The content is not read here: load() compares its sum when it is wanted.
    if (place.length_bytes > size - place.offset_bytes) break;
    places_[{load_le<std::uint64_t>(at), load_le<std::uint64_t>(at + 8)}] = place;
    end_bytes_ = place.offset_bytes + place.length_bytes;
  }
}

PartialIndex::Name PartialIndex::name_of(const ObjectInfo& object) const {
  const std::string text =
      fmt::format("{}\n{}\n{}\n{}\n{}{}", kind_, object.key.size(), object.etag.size(),
                  object.size_bytes, object.key, object.etag);
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return {hash.low64, hash.high64};
}

std::optional<std::string> PartialIndex::load(const ObjectInfo& object) const {
  if (fd_ < 0 || places_.empty() || object.etag.empty()) return std::nullopt;
  const auto found = places_.find(name_of(object));
  if (found == places_.end()) return std::nullopt;
  std::string bytes(found->second.length_bytes, '\0');
  if (!read_all_at(fd_, found->second.offset_bytes, std::as_writable_bytes(std::span(bytes))))
    return std::nullopt;
  if (checksum_of(bytes) != found->second.checksum) return std::nullopt;
  return bytes;
}

void PartialIndex::store(const ObjectInfo& object, std::string_view bytes) {
  if (fd_ < 0 || object.etag.empty() || bytes.size() > 0xffff'ffffULL) return;
  const Name name = name_of(object);
  const Place place{end_bytes_ + kRecordHeadBytes, static_cast<std::uint32_t>(bytes.size()),
                    checksum_of(bytes)};
  std::string head(kRecordHeadBytes, '\0');
  const auto put = [&head](std::size_t at, auto value) {
    std::memcpy(head.data() + at, &value, sizeof(value));
  };
  put(0, name.first);
  put(8, name.second);
  put(16, place.length_bytes);
  put(20, place.checksum);
  if (!write_all(fd_, end_bytes_, head) || !write_all(fd_, place.offset_bytes, bytes))
    return stop();
  end_bytes_ = place.offset_bytes + place.length_bytes;
  places_[name] = place;
}

void PartialIndex::remove(const std::string& dir, std::string_view url) {
  if (!dir.empty()) ::unlink(path_of(dir, url).c_str());
}

}  // namespace headrace::detail
