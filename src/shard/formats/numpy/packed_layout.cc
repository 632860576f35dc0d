#include "shard/formats/numpy/packed_layout.h"

#include <nlohmann/json.hpp>

#include "shard/codec/json_reader.h"

namespace headrace::detail {
namespace {

constexpr std::string_view kBegin = R"({"members":)";

bool read_member(simdjson::dom::element entry, PackedMember& out) {
  simdjson::dom::array fields;
  if (entry.get_array().get(fields)) return false;
  std::uint64_t numbers[6] = {};
  std::size_t count = 0;
  for (const simdjson::dom::element field : fields) {
    if (count == 6 || field.get_uint64().get(numbers[count++])) return false;
  }
  out = {.offset_bytes = numbers[0],
         .stored_bytes = numbers[1],
         .raw_bytes = numbers[2],
         .header_bytes = numbers[3],
         .crc32 = static_cast<std::uint32_t>(numbers[4]),
         .is_deflated = numbers[5] != 0};
  return count == 6;
}

bool fits(const PackedMember& member, const ShardRecord& shard, std::uint64_t width) {
  std::uint64_t rows_bytes = 0, raw_bytes = 0;
  return member.offset_bytes <= shard.stored_bytes &&
         member.stored_bytes <= shard.stored_bytes - member.offset_bytes &&
         !__builtin_mul_overflow(shard.sample_count, width, &rows_bytes) &&
         !__builtin_add_overflow(rows_bytes, member.header_bytes, &raw_bytes) &&
         raw_bytes == member.raw_bytes;
}

}  // namespace

std::string format_packed_layout(const PackedLayout& layout) {
  nlohmann::json shards = nlohmann::json::array();
  for (const auto& members : layout) {
    nlohmann::json entry = nlohmann::json::array();
    for (const PackedMember& m : members)
      entry.push_back({m.offset_bytes, m.stored_bytes, m.raw_bytes, m.header_bytes, m.crc32,
                       m.is_deflated ? 1 : 0});
    shards.push_back(std::move(entry));
  }
  return nlohmann::json{{"members", std::move(shards)}}.dump();
}

bool is_packed_layout(std::string_view text) { return text.starts_with(kBegin); }

Result<PackedLayout> parse_packed_layout(std::string_view text, const IndexView& index) {
  const auto corrupt = [] {
    return Status(Code::kCorrupt, "index: its arrays do not lie inside their objects");
  };
  simdjson::dom::parser parser;
  HEADRACE_TRY_ASSIGN(const simdjson::dom::element root, parse_json(parser, text));
  simdjson::dom::array shards;
  if (root["members"].get_array().get(shards)) return corrupt();
  PackedLayout layout;
  for (const simdjson::dom::element entry : shards) {
    simdjson::dom::array fields;
    if (entry.get_array().get(fields) || layout.size() == index.shards().size()) return corrupt();
    const ShardRecord& shard = index.shards()[layout.size()];
    auto& members = layout.emplace_back();
    std::uint64_t left = shard.raw_bytes;
    for (const simdjson::dom::element field : fields) {
      PackedMember member;
      if (members.size() == index.columns().size() || !read_member(field, member) ||
          !fits(member, shard, index.columns()[members.size()].fixed_size_bytes) ||
          member.raw_bytes > left) {
        return corrupt();
      }
      left -= member.raw_bytes;
      members.push_back(member);
    }
    if (members.size() != index.columns().size() || left != 0) return corrupt();
  }
  if (layout.size() != index.shards().size()) return corrupt();
  return layout;
}

}  // namespace headrace::detail
