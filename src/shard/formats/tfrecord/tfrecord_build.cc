#include <fmt/format.h>

#include <algorithm>

#include "shard/formats/tfrecord/record_scan.h"
#include "shard/formats/tfrecord/tfrecord_driver.h"
#include "shard/scan/scan_files.h"

namespace headrace::detail {
namespace {

class TfRecordBuilder final : public FileScanJob {
 public:
  TfRecordBuilder(const BuildContext& context, const std::vector<ObjectInfo>& objects)
      : context_(context), objects_(objects) {
    const std::vector<std::string>& columns = context.options.columns;
    scan_options_.wants_schema =
        std::find(columns.begin(), columns.end(), "record") == columns.end();
    scan_options_.is_lenient = context.options.lenient;
    scan_options_.whole_bytes = std::max(kLeastWholeBytes, context.read_bytes(kMostWholeBytes));
  }

  Result<std::string> run() {
    HEADRACE_TRY(scan_files(context_, objects_, *this));
    HEADRACE_TRY_ASSIGN(const ExampleLayout layout, choose_layout());
    IndexSource source;
    if (!objects_.empty()) source = {objects_[0].key, objects_[0].etag, objects_[0].size_bytes};
    return writer_.finish({.format = Format::kTfRecord,
                           .columns = example_columns(layout),
                           .source = std::move(source),
                           .block_bytes = context_.options.block_bytes,
                           .layout = layout_to_json(layout),
                           .broken = context_.left_out(),
                           .cut_ends = context_.cut_ends()});
  }

  std::string kind() const override {
    return fmt::format("tfrecord 3 {} {} {}", scan_options_.wants_schema, scan_options_.is_lenient,
                       scan_options_.whole_bytes);
  }

  std::unique_ptr<FileScan> start(std::size_t) override {
    return std::make_unique<RecordScan>(scan_options_);
  }

  // A plain file begins with a length and its checksum, which nothing compressed does.
  Compression form_of(std::span<const std::byte> head) override {
    if (looks_like_tfrecord(head)) return Compression::kNone;
    const Compression compression = sniff_compression(head);
    if (compression == Compression::kNone && looks_like_zlib(head)) return Compression::kZlib;
    return compression;
  }

  Status check(const FileSamples& samples) override {
    if (!has_schema(samples)) return Status();
    HEADRACE_TRY_ASSIGN(const RecordFacts facts, RecordFacts::from_text(samples.facts));
    // The first file with records decides what records are.
    if (!is_decided_) are_examples_ = facts.begins_with_examples && !facts.schema.is_empty();
    is_decided_ = true;
    if (!are_examples_ || facts.problem.empty()) return Status();
    return Status(Code::kCorrupt,
                  fmt::format("{}, but the records before are Examples; to read whole records, "
                              "open with columns=['record']",
                              facts.problem));
  }

  Status emit(std::size_t i, FileSamples samples, const FileForm& form) override {
    add_scanned_shard(writer_, objects_[i], samples, form);
    if (!are_examples_ || !has_schema(samples)) return Status();
    HEADRACE_TRY_ASSIGN(const RecordFacts facts, RecordFacts::from_text(samples.facts));
    return schema_.merge(facts.schema);
  }

 private:
  bool has_schema(const FileSamples& samples) const {
    return scan_options_.wants_schema && !samples.facts.empty() && samples.sample_count() > 0;
  }

  Result<ExampleLayout> choose_layout() const {
    if (!are_examples_) {
      const std::vector<std::string>& columns = context_.options.columns;
      const auto other =
          std::find_if(columns.begin(), columns.end(), [](const auto& c) { return c != "record"; });
      if (other == columns.end()) return ExampleLayout{};
      return Status(
          Code::kInvalidArgument,
          fmt::format("{}: there is no column '{}', only 'record'{}", context_.store.url(), *other,
                      scan_options_.wants_schema ? " (the records are no tf.train.Examples)"
                                                 : " (which stands alone)"));
    }
    auto layout = schema_.layout(context_.options.columns);
    if (!layout) return std::move(layout).error().annotate(context_.store.url());
    return layout;
  }

  const BuildContext& context_;
  const std::vector<ObjectInfo>& objects_;
  RecordScanOptions scan_options_;
  IndexWriter writer_;
  ExampleSchema schema_;
  bool is_decided_ = false;
  bool are_examples_ = false;
};

}  // namespace

Result<std::string> build_tfrecord_index(const BuildContext& context,
                                         const std::vector<ObjectInfo>& objects) {
  return TfRecordBuilder(context, objects).run();
}

}  // namespace headrace::detail
