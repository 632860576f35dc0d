#include <fmt/format.h>
#include <fmt/ranges.h>

#include "shard/formats/csv/csv_driver.h"
#include "shard/formats/csv/csv_layout.h"
#include "shard/formats/csv/csv_scan.h"
#include "shard/scan/scan_files.h"

namespace headrace::detail {
namespace {

class CsvBuilder final : public FileScanJob {
 public:
  CsvBuilder(const BuildContext& context, const std::vector<ObjectInfo>& objects, char delimiter)
      : context_(context), objects_(objects), delimiter_(delimiter) {}

  Result<std::string> run() {
    HEADRACE_TRY(scan_files(context_, objects_, *this));
    if (header_.empty()) {
      return Status(Code::kCorrupt, fmt::format("{}: no header in any file, the first is {}",
                                                context_.store.url(), objects_[0].key));
    }
    auto layout = make_csv_layout(delimiter_, std::move(header_), context_.options.columns);
    if (!layout) return std::move(layout).error().annotate(context_.store.url());
    return writer_.finish({.format = Format::kCsv,
                           .columns = csv_columns(*layout),
                           .source = {objects_[0].key, objects_[0].etag, objects_[0].size_bytes},
                           .block_bytes = context_.options.block_bytes,
                           .layout = layout_to_json(*layout),
                           .broken = context_.left_out()});
  }

  std::string kind() const override { return fmt::format("csv 1 {}", int{delimiter_}); }

  std::unique_ptr<FileScan> start(std::size_t) override {
    return std::make_unique<CsvScan>(delimiter_);
  }

  Status emit(std::size_t i, FileSamples samples, const FileForm& form) override {
    if (!samples.facts.empty()) {
      HEADRACE_TRY_ASSIGN(std::vector<std::string> header, header_from_text(samples.facts));
      HEADRACE_TRY(take_header(i, std::move(header)));
    }
    add_scanned_shard(writer_, objects_[i], samples, form);
    return Status();
  }

 private:
  Status take_header(std::size_t i, std::vector<std::string> header) {
    if (header_.empty()) {
      header_ = std::move(header);
      header_file_ = i;
    }
    if (header.empty() || header == header_) return Status();
    return Status(
        Code::kInvalidArgument,
        fmt::format("its header is {}, that of {} is {}; files of one dataset have the "
                    "same header",
                    fmt::join(header, ","), objects_[header_file_].key, fmt::join(header_, ",")));
  }

  const BuildContext& context_;
  const std::vector<ObjectInfo>& objects_;
  const char delimiter_;
  IndexWriter writer_;
  std::vector<std::string> header_;
  std::size_t header_file_ = 0;
};

}  // namespace

Result<std::string> build_csv_index(const BuildContext& context,
                                    const std::vector<ObjectInfo>& objects) {
  const char delimiter = csv_delimiter_of(objects.front().key).value_or(',');
  for (const ObjectInfo& object : objects) {
    if (csv_delimiter_of(object.key).value_or(',') == delimiter) continue;
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: the values of {} and {} are separated by different characters; "
                              "name the files that are meant with a pattern or a list",
                              context.store.url(), objects.front().key, object.key));
  }
  return CsvBuilder(context, objects, delimiter).run();
}

}  // namespace headrace::detail
