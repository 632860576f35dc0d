#include <fmt/format.h>

#include <optional>
#include <set>
#include <utility>

#include "shard/formats/webdataset/dali_reuse.h"
#include "shard/formats/webdataset/energon_reuse.h"
#include "shard/formats/webdataset/tar_scan.h"
#include "shard/formats/webdataset/webdataset_driver.h"
#include "shard/scan/scan_files.h"

namespace headrace::detail {
namespace {

class WebDatasetBuilder final : public FileScanJob {
 public:
  WebDatasetBuilder(const BuildContext& context, const std::vector<ObjectInfo>& objects)
      : context_(context), objects_(objects) {}

  Result<std::string> run() {
    HEADRACE_TRY_ASSIGN(dali_, find_dali_indexes(context_, objects_));
    HEADRACE_TRY_ASSIGN(energon_, find_energon_indexes(context_, objects_));
    HEADRACE_TRY(scan_files(context_, objects_, *this));
    std::vector<Column> columns;
    columns.push_back({.name = "__key__", .encoding = "str", .dtype = {}, .shape = {}});
    for (const std::string& suffix : suffixes_) {
      columns.push_back({.name = suffix, .encoding = "bytes", .dtype = {}, .shape = {}});
    }
    const ObjectInfo& first = objects_.front();
    return writer_.finish({.format = Format::kWebDataset,
                           .columns = std::move(columns),
                           .source = {first.key, first.etag, first.size_bytes},
                           .block_bytes = context_.options.block_bytes,
                           .broken = context_.left_out(),
                           .cut_ends = context_.cut_ends()});
  }

  std::string kind() const override { return context_.options.lenient ? "tar 3 lenient" : "tar 3"; }

  std::unique_ptr<FileScan> start(std::size_t) override {
    return std::make_unique<TarScan>(context_.options.lenient);
  }

  std::optional<FileSamples> known(std::size_t i) override {
    if (auto index = std::exchange(dali_[i], std::nullopt))
      return samples_of(std::move(index->bounds), std::move(index->suffixes));
    if (auto bounds = std::exchange(energon_.bounds[i], std::nullopt))
      return samples_of(*std::move(bounds), energon_.suffixes);
    return std::nullopt;
  }

  Status emit(std::size_t i, FileSamples samples, const FileForm& form) override {
    HEADRACE_TRY_ASSIGN(const TarFacts facts, TarFacts::from_text(samples.facts));
    suffixes_.insert(facts.suffixes.begin(), facts.suffixes.end());
    if (suffixes_.size() > kMostSuffixes) {
      return Status(Code::kUnsupported,
                    fmt::format("more than {} different fields", kMostSuffixes));
    }
    add_scanned_shard(writer_, objects_[i], samples, form);
    return Status();
  }

 private:
  static FileSamples samples_of(std::vector<std::uint64_t> bounds,
                                std::vector<std::string> suffixes) {
    return {.bounds = std::move(bounds),
            .has_gaps = false,
            .facts = TarFacts{.suffixes = std::move(suffixes)}.to_text()};
  }

  const BuildContext& context_;
  const std::vector<ObjectInfo>& objects_;
  std::vector<std::optional<DaliIndex>> dali_;
  EnergonIndexes energon_;
  IndexWriter writer_;
  std::set<std::string> suffixes_;
};

}  // namespace

Result<std::string> build_webdataset_index(const BuildContext& context,
                                           const std::vector<ObjectInfo>& objects) {
  return WebDatasetBuilder(context, objects).run();
}

}  // namespace headrace::detail
