#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/strings.h"
#include "shard/formats/text/array_scan.h"
#include "shard/formats/text/line_scan.h"
#include "shard/formats/text/text_driver.h"
#include "shard/scan/read_head.h"
#include "shard/scan/scan_files.h"

namespace headrace::detail {
namespace {

bool ends_with_any(std::string_view key, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [key](std::string_view e) { return key.ends_with(e); });
}

bool is_json_name(std::string_view key) {
  for (const std::string_view coding : {".gz", ".zst", ".zstd", ".bz2", ".xz"})
    if (key.ends_with(coding)) key.remove_suffix(coding.size());
  return ends_with_any(key, {".jsonl", ".ndjson", ".jsonlines"});
}

/// What samples are.
struct TextForm {
  TextKind kind = TextKind::kText;
  bool is_array = false;  ///< kJson: the elements of one array a file, not its lines.
};

class TextBuilder final : public FileScanJob {
 public:
  TextBuilder(const BuildContext& context, const std::vector<ObjectInfo>& objects, TextForm form)
      : context_(context), objects_(objects), kind_(form.kind), is_array_(form.is_array) {}

  Result<std::string> run() {
    HEADRACE_TRY(scan_files(context_, objects_, *this));
    auto layout = make_text_layout(kind_, fields_, context_.options.columns);
    if (!layout) return std::move(layout).error().annotate(context_.store.url());
    IndexSource source;
    if (!objects_.empty()) source = {objects_[0].key, objects_[0].etag, objects_[0].size_bytes};
    return writer_.finish({.format = Format::kText,
                           .columns = text_columns(*layout),
                           .source = std::move(source),
                           .block_bytes = context_.options.block_bytes,
                           .layout = layout_to_json(*layout),
                           .broken = context_.left_out()});
  }

  std::string kind() const override {
    return fmt::format("text 2 {} {}{}", kind_ == TextKind::kJson, wants_fields(),
                       is_array_ ? " array" : "");
  }

  std::unique_ptr<FileScan> start(std::size_t) override {
    if (is_array_) return std::make_unique<ArrayScan>(wants_fields());
    return std::make_unique<LineScan>(kind_, wants_fields());
  }

  Status check(const FileSamples& samples) override {
    if (samples.facts.empty() || samples.sample_count() == 0) return Status();
    HEADRACE_TRY_ASSIGN(const TextFields fields, TextFields::from_text(samples.facts));
    // The first file with lines decides what lines are.
    if (!std::exchange(is_decided_, true)) fields_.are_objects = fields.are_objects;
    if (!fields_.are_objects || fields.problem.empty()) return Status();
    return Status(
        Code::kCorrupt,
        fmt::format("{}; to read whole lines, whatever they are, open with columns=['json']",
                    fields.problem));
  }

  Status emit(std::size_t i, FileSamples samples, const FileForm& form) override {
    add_scanned_shard(writer_, objects_[i], samples, form);
    if (samples.facts.empty() || samples.sample_count() == 0 || !fields_.are_objects)
      return Status();
    HEADRACE_TRY_ASSIGN(const TextFields fields, TextFields::from_text(samples.facts));
    fields_.merge(fields);
    return Status();
  }

 private:
  // Whole lines alone need no look at them.
  bool wants_fields() const {
    const std::vector<std::string>& columns = context_.options.columns;
    return !(columns.size() == 1 && columns[0] == "json");
  }

  const BuildContext& context_;
  const std::vector<ObjectInfo>& objects_;
  const TextKind kind_;
  const bool is_array_;
  IndexWriter writer_;
  TextFields fields_;
  bool is_decided_ = false;
};

// What the first file that holds anything looks like.
Result<TextForm> find_form(const BuildContext& context, const std::vector<ObjectInfo>& objects) {
  for (const ObjectInfo& object : objects) {
    const auto read = read_head(context, object);
    // What is wrong with it is said when it is scanned.
    if (!read && context.broken != nullptr && blames_bytes(read.error().code())) continue;
    if (!read) return read.error().clone();
    const std::vector<std::byte>& head = *read;
    const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
    if (trim(text, kWhiteSpace).empty()) continue;
    if (looks_like_json_array(head) && !is_json_name(object.key))
      return TextForm{TextKind::kJson, true};
    // Lines of JSON that are no objects look like any text.
    const bool is_json = looks_like_json_lines(head) || is_json_name(object.key);
    return TextForm{is_json ? TextKind::kJson : TextKind::kText};
  }
  return TextForm{};
}

}  // namespace

Result<std::string> build_text_index(const BuildContext& context,
                                     const std::vector<ObjectInfo>& objects) {
  HEADRACE_TRY_ASSIGN(const TextForm form, find_form(context, objects));
  return TextBuilder(context, objects, form).run();
}

}  // namespace headrace::detail
