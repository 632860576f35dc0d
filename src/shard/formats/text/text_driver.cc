#include "shard/formats/text/text_driver.h"

#include "shard/dataset/empty_shard.h"

namespace headrace::detail {
namespace {

constexpr std::string_view kLineEndings[] = {".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson",
                                             ".ndjson.gz"};
constexpr std::string_view kLineNoteEndings[] = {".jsonl", ".txt"};

}  // namespace

constinit const FormatDriver kTextDriver{
    .id = Format::kText,
    .name = "text",
    .endings = kLineEndings,
    .looks_like =
        [](std::span<const std::byte> head) noexcept {
          return looks_like_json_lines(head) || looks_like_json_array(head);
        },
    .may_lack_mark = true,
    .may_describe_others = true,
    .note_endings = kLineNoteEndings,
    .may_be_beside = may_be_json_beside,
    .judge_beside = judge_json_beside,
    .may_be_empty = [](const DatasetOptions&,
                       std::string_view key) noexcept { return !is_compressed_name(key); },
    .reads = {.columns = true},
    .build = build_text_index,
    .make = by_parts_alone<make_text_dataset>,
};

}  // namespace headrace::detail
