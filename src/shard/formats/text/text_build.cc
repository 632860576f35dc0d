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

bool is_named(std::string_view key, std::initializer_list<std::string_view> endings) {
  for (const std::string_view coding : {".gz", ".zst", ".zstd", ".bz2", ".xz"})
    if (key.ends_with(coding)) key.remove_suffix(coding.size());
  return ends_with_any(key, endings);
}

bool is_lines_name(std::string_view key) {
  return is_named(key, {".jsonl", ".ndjson", ".jsonlines"});
}

bool is_json_name(std::string_view key) { return is_named(key, {".json"}); }

// Without a byte order mark, and blanks at both ends.
std::string_view content_of(std::span<const std::byte> head) {
  std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  return trim(text, kWhiteSpace);
}

// `content`: an array without elements, or cut off before the first.
bool is_empty_array(std::string_view content) {
  if (!content.starts_with('[')) return false;
  const std::string_view rest = trim(content.substr(1), kWhiteSpace);
  return rest.empty() || rest == "]";
}

/// What samples are.
struct TextForm {
  TextKind kind = TextKind::kText;
  bool is_array = false;       ///< kJson: the elements of one array a file, not its lines.
  bool begins_object = false;  ///< `decider` does.
  std::string decider = {};    ///< The first file that holds anything; empty: none does.

  /// Whether the file of this name, which begins with `head`, is JSON of another kind than
  /// `decider`: then neither of the two is damaged.
  bool is_other(std::string_view key, std::span<const std::byte> head) const {
    if (is_array) return !decider.empty() && content_of(head).starts_with('{');
    const bool may_be_array =
        kind == TextKind::kJson ? !is_lines_name(key) : is_json_name(key) && is_json_name(decider);
    return begins_object && may_be_array &&
           (looks_like_json_array(head) || is_empty_array(content_of(head)));
  }
};

/// A scan of a file that must be of the form of the others.
class AlikeScan final : public FileScan {
 public:
  AlikeScan(std::unique_ptr<FileScan> scan, const TextForm& form, std::string_view key)
      : scan_(std::move(scan)), form_(form), key_(key) {}

  std::uint64_t offset() const noexcept override { return scan_->offset(); }
  std::uint64_t needed_bytes() const noexcept override { return scan_->needed_bytes(); }
  std::uint64_t held_bytes() const noexcept override { return scan_->held_bytes(); }
  Status feed(std::span<const std::byte> bytes) override {
    if (offset() > 0 || !form_.is_other(key_, bytes)) return scan_->feed(bytes);
    return Status(Code::kInvalidArgument,
                  fmt::format("holds {}, and {} holds {}; name the files of one kind with a "
                              "pattern or a list",
                              form_.is_array ? "JSON objects" : "a JSON array", form_.decider,
                              form_.is_array ? "a JSON array" : "JSON objects"));
  }
  Status finish(std::uint64_t size_bytes) override { return scan_->finish(size_bytes); }
  FileSamples take() override { return scan_->take(); }

 private:
  const std::unique_ptr<FileScan> scan_;
  const TextForm& form_;
  const std::string_view key_;
};

class TextBuilder final : public FileScanJob {
 public:
  TextBuilder(const BuildContext& context, const std::vector<ObjectInfo>& objects, TextForm form)
      : context_(context), objects_(objects), form_(std::move(form)) {}

  Result<std::string> run() {
    HEADRACE_TRY(scan_files(context_, objects_, *this));
    auto layout = make_text_layout(form_.kind, fields_, context_.options.columns);
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
    return fmt::format("text 2 {} {}{}", form_.kind == TextKind::kJson, wants_fields(),
                       form_.is_array ? " array" : "");
  }

  std::unique_ptr<FileScan> start(std::size_t i) override {
    std::unique_ptr<FileScan> scan;
    if (form_.is_array) {
      scan = std::make_unique<ArrayScan>(wants_fields());
    } else {
      scan = std::make_unique<LineScan>(form_.kind, wants_fields());
    }
    return std::make_unique<AlikeScan>(std::move(scan), form_, objects_[i].key);
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
  const TextForm form_;
  IndexWriter writer_;
  TextFields fields_;
  bool is_decided_ = false;
};

// What the first file that holds anything looks like.
Result<TextForm> find_form(const BuildContext& context, const std::vector<ObjectInfo>& objects) {
  TextForm empty;  // Of files that hold nothing.
  for (const ObjectInfo& object : objects) {
    const auto read = read_head(context, object);
    // What is wrong with it is said when it is scanned.
    if (!read && context.broken != nullptr && blames_bytes(read.error().code())) continue;
    if (!read) return read.error().clone();
    const std::vector<std::byte>& head = *read;
    const std::string_view content = content_of(head);
    if (content.empty()) continue;
    const bool may_be_array = !is_lines_name(object.key);
    if (may_be_array && is_empty_array(content)) {
      // Of what, another file says.
      if (is_json_name(object.key)) empty = {.kind = TextKind::kJson, .is_array = true};
      continue;
    }
    TextForm form{.begins_object = content.starts_with('{'), .decider = object.key};
    form.is_array = may_be_array && looks_like_json_array(head);
    if (!form.is_array && is_json_name(object.key) && content.starts_with('[')) {
      return Status(Code::kInvalidArgument,
                    fmt::format("{}/{}: a JSON array whose first element is no object; "
                                "format='raw' delivers whole files",
                                context.store.url(), object.key));
    }
    // Lines of JSON that are no objects look like any text.
    if (form.is_array || looks_like_json_lines(head) || is_lines_name(object.key))
      form.kind = TextKind::kJson;
    return form;
  }
  return empty;
}

}  // namespace

Result<std::string> build_text_index(const BuildContext& context,
                                     const std::vector<ObjectInfo>& objects) {
  HEADRACE_TRY_ASSIGN(TextForm form, find_form(context, objects));
  return TextBuilder(context, objects, std::move(form)).run();
}

}  // namespace headrace::detail
