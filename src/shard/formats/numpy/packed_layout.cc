#include "shard/formats/numpy/packed_layout.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "shard/formats/numpy/shard_rows.h"

namespace headrace::detail {
namespace {

constexpr const char* kName = "members";
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
  return nlohmann::json{{kName, std::move(shards)}}.dump();
}

bool is_packed_layout(std::string_view text) { return text.starts_with(kBegin); }

Result<PackedLayout> parse_packed_layout(std::string_view text, const IndexView& index) {
  PackedLayout layout(index.shards().size());
  std::vector<std::uint64_t> left;
  for (const ShardRecord& shard : index.shards()) left.push_back(shard.raw_bytes);
  HEADRACE_TRY(read_shard_rows(
      text, kName, index, [&](std::size_t shard, std::size_t column, simdjson::dom::element value) {
        PackedMember member;
        if (!read_member(value, member) ||
            !fits(member, index.shards()[shard], index.columns()[column].fixed_size_bytes) ||
            member.raw_bytes > left[shard])
          return false;
        left[shard] -= member.raw_bytes;
        layout[shard].push_back(member);
        return true;
      }));
  if (std::any_of(left.begin(), left.end(), [](std::uint64_t bytes) { return bytes != 0; }))
    return bad_shard_rows(kName);
  return layout;
}

}  // namespace headrace::detail
