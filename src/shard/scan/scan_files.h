#pragma once
/// \file
/// scan_files(): drives one FileScan for every object, many at once, inflating what is compressed.
///
/// Place: builders of formats that have to be read to be indexed.
///
/// Threads: the calling one.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/store.h"
#include "shard/dataset/build.h"
#include "shard/index/hri.h"
#include "shard/scan/file_scan.h"

namespace headrace::detail {

/// How a file lies in its store.
struct FileForm {
  Compression compression = Compression::kNone;
  std::uint64_t raw_bytes = 0;
};

/// By the first bytes of a file (10 are enough): gzip, zstd, bzip2, xz, or kNone. Zlib has no mark
/// of its own and is never the answer.
Compression sniff_compression(std::span<const std::byte> head) noexcept;
/// True when `head` may begin an RFC 1950 stream.
bool looks_like_zlib(std::span<const std::byte> head) noexcept;

class FileScanJob {
 public:
  virtual ~FileScanJob() = default;
  /// Names the format, the version of its facts and the options that shape them: what an earlier,
  /// unfinished build of the same kind has found is taken up again.
  virtual std::string kind() const = 0;
  /// The scan of object `i`; called in order of i.
  virtual std::unique_ptr<FileScan> start(std::size_t i) = 0;
  /// What is known of object `i` without reading it; nothing as a rule.
  virtual std::optional<FileSamples> known(std::size_t i) {
    static_cast<void>(i);
    return std::nullopt;
  }
  /// How object `i` is stored, by its first bytes.
  virtual Compression form_of(std::span<const std::byte> head) { return sniff_compression(head); }
  /// Whether object `i` is one of the dataset, by what was found in it; called in order of i,
  /// before emit(), which is for no other. Errors: kCorrupt, kUnsupported: it is broken.
  virtual Status check(const FileSamples& samples) {
    static_cast<void>(samples);
    return Status();
  }
  /// Takes what was found in object `i`; called in order of i.
  virtual Status emit(std::size_t i, FileSamples samples, const FileForm& form) = 0;
};

/// Reads every object that `job` wants read. A store that cannot tell sizes is believed the
/// listing. Broken objects are left out as the context says. Errors: those of the job's scans and
/// of the store, naming the object; kChanged (another size than the listing said); kCorrupt,
/// kUnsupported (compressed data); kUnsupported (an inflated file beyond 64 GiB: a compressed file
/// is read whole).
Status scan_files(const BuildContext& context, const std::vector<ObjectInfo>& objects,
                  FileScanJob& job);

/// What PartialIndex keeps of one file; parse_scanned() takes nothing else: kCorrupt.
std::string scanned_to_bytes(const FileSamples& samples, const FileForm& form);
struct ScannedFile {
  FileSamples samples;
  FileForm form;
  bool is_broken = false;  ///< It was left out.
};
Result<ScannedFile> parse_scanned(std::string_view bytes);

/// Adds the object and its shard to `writer`.
void add_scanned_shard(IndexWriter& writer, const ObjectInfo& object, const FileSamples& samples,
                       const FileForm& form);

}  // namespace headrace::detail
