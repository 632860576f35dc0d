#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "shard/formats/raw/manifest.h"
#include "shard/formats/raw/raw_driver.h"
#include "shard/formats/raw/raw_layout.h"

namespace headrace::detail {
namespace {

// More folders than this are no classes, but a folder a sample.
constexpr std::size_t kMostClasses = std::size_t{1} << 20;

// The index of files that were added one by one.
class RawWriter {
 public:
  void add(const ObjectInfo& object) {
    writer_.add_object(object.key, object.etag, object.size_bytes);
    bounds_.push_back(bounds_.back() + object.size_bytes);
  }
  /// The record of the file that is added next.
  void add_row(std::string_view row) { writer_.add_key(bounds_.size() - 1, row); }

  std::string finish(IndexWriter::Summary summary) {
    // One shard for everything: files have no grouping of their own, and blocks come from sizes.
    ShardRecord shard;
    shard.sample_count = bounds_.size() - 1;
    shard.stored_bytes = shard.raw_bytes = bounds_.back();
    shard.bounds = writer_.bounds().append(bounds_);
    writer_.add_shard(shard);
    const Column first[] = {{.name = "data", .encoding = "bytes", .dtype = {}, .shape = {}},
                            {.name = "key", .encoding = "str", .dtype = {}, .shape = {}}};
    summary.columns.insert(summary.columns.begin(), std::begin(first), std::end(first));
    summary.format = Format::kRaw;
    return writer_.finish(summary);
  }

 private:
  IndexWriter writer_;
  std::vector<std::uint64_t> bounds_{0};
};

IndexSource source_of(const ObjectInfo& object) {
  return {object.key, object.etag, object.size_bytes};
}

IndexWriter::Summary summary_of(const BuildContext& context) {
  IndexWriter::Summary summary;
  summary.block_bytes = context.options.block_bytes;
  return summary;
}

std::string build_plain(const BuildContext& context, const std::vector<ObjectInfo>& objects) {
  RawWriter writer;
  for (const ObjectInfo& object : objects) writer.add(object);
  IndexWriter::Summary summary = summary_of(context);
  if (!objects.empty()) summary.source = source_of(objects[0]);
  return writer.finish(std::move(summary));
}

Result<std::string> build_labelled(const BuildContext& context,
                                   const std::vector<ObjectInfo>& objects) {
  RawWriter writer;
  Column label{.name = "label", .encoding = "int64", .dtype = "int64", .shape = {}};
  label.fixed_size_bytes = sizeof(std::int64_t);
  const ObjectInfo* first = nullptr;
  for (const ObjectInfo& object : objects) {
    const std::string_view folder = first_folder(object.key);
    // Files beside the folders have no class.
    if (folder.empty()) continue;
    if (label.classes.empty() || label.classes.back() != folder) label.classes.emplace_back(folder);
    if (first == nullptr) first = &object;
    writer.add(object);
  }
  // In the order of keys "a-b/" comes before "a/".
  std::sort(label.classes.begin(), label.classes.end());
  label.classes.erase(std::unique(label.classes.begin(), label.classes.end()), label.classes.end());
  if (first == nullptr || label.classes.size() > kMostClasses) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("{}: labels='folder' wants a folder for each class; there are {} folders with "
                    "files in them",
                    context.store.url(), label.classes.size()));
  }
  IndexWriter::Summary summary = summary_of(context);
  summary.columns = {std::move(label)};
  summary.source = source_of(*first);
  summary.layout = kFolderLabels;
  return writer.finish(std::move(summary));
}

Result<std::string> build_from_manifest(const BuildContext& context,
                                        const std::vector<ObjectInfo>& objects) {
  const std::string& name = context.options.manifest;
  std::unordered_map<std::string_view, const ObjectInfo*> by_key;
  for (const ObjectInfo& object : objects) by_key[object.key] = &object;
  const auto found = by_key.find(name);
  if (found == by_key.end())
    return Status(Code::kNotFound,
                  fmt::format("{}: the manifest is not there", context.store.object_url(name)));
  HEADRACE_TRY_ASSIGN(std::string text, read_object(context.store, context.pool, name,
                                                    kMostManifestBytes, context.call));
  auto manifest = parse_manifest(name, std::move(text));
  if (!manifest) return std::move(manifest).error().annotate(context.store.object_url(name));
  RawWriter writer;
  for (const Manifest::Row& row : manifest->rows) {
    const auto file = by_key.find(row.key);
    if (file == by_key.end())
      return Status(Code::kNotFound, fmt::format("{}: not there; record {} of {} names it",
                                                 context.store.object_url(row.key),
                                                 &row - manifest->rows.data(), name));
    if (!row.bytes.empty()) writer.add_row(row.bytes);
    writer.add(*file->second);
  }
  IndexWriter::Summary summary = summary_of(context);
  summary.columns = std::move(manifest->columns);
  summary.source = source_of(*found->second);
  summary.layout = manifest_layout(summary.source, manifest->row_layout);
  return writer.finish(std::move(summary));
}

}  // namespace

Result<std::string> build_raw_index(const BuildContext& context,
                                    const std::vector<ObjectInfo>& objects) {
  const DatasetOptions& options = context.options;
  auto index = !options.manifest.empty() ? build_from_manifest(context, objects)
               : !options.labels.empty() ? build_labelled(context, objects)
                                         : Result<std::string>(build_plain(context, objects));
  if (index) context.report(1, 1);
  return index;
}

}  // namespace headrace::detail
