#pragma once
/// \file
/// FormatDriver: all that the engine knows of a format. Constants and pointers to functions, each
/// defined in the format's own folder; formats/all_formats.cc lists them, and nothing else does.
///
/// Place: listing, detection, opening, indexes and views ask the drivers, and tell no formats apart
/// themselves. How to add one: docs/extending.md, "A format".
///
/// A member that is not set says that the format has nothing of the kind.
///
/// Threads: constants; the functions are pure, but for build(), which runs in the calling thread.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/dataset.h"

namespace headrace::detail {

struct BuildContext;
struct DatasetParts;
struct IndexSource;
class ContentDigest;
class IndexView;

/// Options that only some formats read, and that change what an index holds. An index made with
/// other values is not used for a format that reads them.
struct ReadOptions {
  bool columns = false;
  bool labels = false;  ///< DatasetOptions::labels and manifest.
  bool lenient = false;
  bool row_groups_where = false;
  bool tokens = false;  ///< DatasetOptions::tokens_per_sample and token_dtype.
};

/// How wide the values of a sample are, by its columns.
struct SampleShape {
  std::string_view column;        ///< The column that is asked for.
  std::uint64_t fixed_bytes = 0;  ///< Of the columns of a fixed size.
  std::size_t varying_count = 0;  ///< Columns whose size varies.
  std::size_t column_count = 0;
};

/// Of a format whose shards only an `index.json` can read: that is asked for before anything is
/// listed, and shards without a sound one are an error (lost_index.h).
struct IndexJsonDriver {
  std::string_view title;  ///< Of its datasets, in messages.
  std::string_view list;  ///< Top-level list of shards: an index.json that has it is of the format.
  std::string_view remedy;  ///< What to do about shards without one, in messages.
  std::string_view hint;  ///< Behind "no index.json" where the format was asked for; may be empty.
  /// True for a file that lies beside shards which themselves look like any file.
  bool (*claims_side_file)(std::string_view key) noexcept = nullptr;
  /// `source` is the index.json whose text is `json`. Returns the bytes of the index. Errors:
  /// kCorrupt, kUnsupported, kDenied, kChanged, those of the store.
  Result<std::string> (*build)(const BuildContext& context, std::string_view json,
                               const IndexSource& source);
  /// The same for an index.json above kMostIndexJsonBytes, which nobody has read yet.
  Result<std::string> (*build_large)(const BuildContext& context, const ObjectInfo& info,
                                     const IndexSource& source);
};

/// What a file beside data is.
enum class Beside : std::uint8_t {
  kNote,    ///< Something about them.
  kData,    ///< Samples, as they are.
  kUnclear  ///< May be either.
};

struct FormatDriver {
  Format id = Format::kAuto;  ///< Stands in index files.
  std::string_view name;      ///< What users write as format=.
  /// Names of the kinds of files that it reads, which users may write instead: `build` and `make`
  /// then refuse all others (DatasetOptions::kind).
  std::span<const std::string_view> kinds = {};

  // What it claims by name: asked where content says nothing.
  std::span<const std::string_view> endings = {};                ///< Of keys.
  bool (*claims_name)(std::string_view key) noexcept = nullptr;  ///< Keys besides those.
  /// True when all objects of a listing are one dataset of the format, whatever each looks like.
  bool (*claims_listing)(std::span<const ObjectInfo> objects) noexcept = nullptr;

  // What it looks like by content.
  /// Whether the first bytes of an object (inflated, up to kDetectBytes) have the format's mark.
  /// Asked in the order of the table: surer marks stand first there.
  bool (*looks_like)(std::span<const std::byte> head) noexcept = nullptr;
  /// Files may lack the mark. Where format= names the format, a file without it beside some that
  /// have it is then an error: it might be one.
  bool may_lack_mark = false;
  /// What messages call its files, where the build takes none without the mark (".tar").
  std::string_view marked_kind = {};
  bool is_never_compressed = false;  ///< What begins like a compressed file and inflates is none.
  bool may_be_zlib = false;  ///< Files may be zlib streams, which have no mark of their own.
  /// Every object is a sample, whatever it holds: what a listing is where no format is found. One
  /// driver has this.
  bool takes_all = false;
  /// Its files may be about those of a format with an index.json, and are then no second format.
  bool may_describe_others = false;
  /// Whether objects in which nothing has a mark may as well be files of this format as samples
  /// each. Then nobody can know, and it is an error that asks, with `unsure_hint`.
  bool (*may_be_listing)(std::span<const ObjectInfo> objects) noexcept = nullptr;
  std::string_view unsure_hint = {};  ///< "flat tokens, format='tokens' with tokens_per_sample=".
  std::string_view mixed_hint = {};  ///< Ends the message on several formats where it is the first.

  // Files beside the data.
  /// Of files that never hold samples; the build gets them as BuildContext::side_files.
  std::span<const std::string_view> side_endings = {};
  /// Of files that hold samples of this format, or notes where others do.
  std::span<const std::string_view> note_endings = {};
  /// Whether a file of this name, which lies beside data of any format as a rule, may hold samples
  /// where data of this one were found: then it is looked into. Set with judge_beside.
  bool (*may_be_beside)(std::string_view name) noexcept = nullptr;
  /// What such a file is, by its first bytes, up to kBesideBytes (`is_whole`: that is all of it).
  Beside (*judge_beside)(std::span<const std::byte> head, bool is_whole) noexcept = nullptr;
  std::string_view companion_key = {};  ///< A side file that the build gets among the objects.
  /// The key of the file beside `key` that its index is made with; empty: it has none.
  std::string (*side_key)(std::string_view key) = nullptr;
  std::string_view side_mark = {};  ///< First bytes of such a file: they tell the format.
  /// Such files of an index with this layout, as they were. Errors: kCorrupt.
  Result<std::vector<IndexSource>> (*side_sources)(std::string_view layout) = nullptr;

  // Objects without bytes: damage, unless this says that such a file holds no samples.
  bool (*may_be_empty)(const DatasetOptions& options, std::string_view key) noexcept = nullptr;
  std::string_view empty_hint = {};  ///< Ends the message on such an object.

  // Options.
  ReadOptions reads = {};
  /// Whether an index with this layout, found beside the dataset, is what the options ask for; not
  /// set: unless they shape an index of the format (shapes_index()).
  bool (*is_as_asked)(const DatasetOptions& options, std::string_view layout) = nullptr;

  // What an index of the format must be like.
  std::size_t least_columns = 0;
  bool sample_is_object = false;  ///< A shard is as many objects as samples, none compressed.
  /// Refuses columns that DatasetOptions::allow_unsafe would let in. Errors: kUnsupported.
  Status (*refuse_unsafe)(const std::vector<Column>& columns) = nullptr;
  /// Adds what a layout that names versions of objects says of the content; not set: its text.
  void (*add_layout)(ContentDigest& digest, const IndexView& view) = nullptr;
  /// Bytes of a plain sample beside the one value of a column whose size varies; nullopt where
  /// the size of a sample does not tell that of the value.
  std::optional<std::uint64_t> (*overhead_bytes)(const SampleShape& shape) noexcept = nullptr;

  // One of these two is set.
  const IndexJsonDriver* index_json = nullptr;
  /// Reads what is needed of `objects`, the data files in order, and returns the bytes of the
  /// index. Errors: kCorrupt, kUnsupported, kInvalidArgument, kNotFound, kChanged, those of the
  /// store.
  Result<std::string> (*build)(const BuildContext& context,
                               const std::vector<ObjectInfo>& objects) = nullptr;

  /// The dataset of an index of the format. Errors: kCorrupt, kUnsupported (the layout).
  Result<std::shared_ptr<const Dataset>> (*make)(DatasetParts parts,
                                                 const DatasetOptions& options) = nullptr;

  /// By `endings` or claims_name().
  bool claims(std::string_view key) const noexcept;
};

/// What judge_beside() is given: enough for two samples, most of the time.
inline constexpr std::size_t kBesideBytes = 65536;
/// What of an object's first bytes looks_like() is asked about.
inline constexpr std::size_t kDetectBytes = 1024;

/// Every format that lies in stores, in the order in which content is asked about.
std::span<const FormatDriver* const> all_formats() noexcept;
/// nullptr: kAuto, kSamples, or no format of this build.
const FormatDriver* driver_of(Format format) noexcept;
/// The one that takes_all.
const FormatDriver& fallback_format() noexcept;
/// kUnsupported: what is said of a dataset whose format has no driver.
Status unknown_format(std::string_view url, Format format);

/// True when `key` ends with one of `endings`.
bool ends_with_any(std::string_view key, std::span<const std::string_view> endings) noexcept;

}  // namespace headrace::detail
