#include "shard/table/table_plan.h"

#include <nlohmann/json.hpp>

#include "shard/json_reader.h"
#include "shard/table/ipc_table.h"

namespace headrace::detail {
namespace {

Status bad_answer() {
  return Status(Code::kInternal, "the table decoder gave an answer that is none");
}

std::string dump(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

template <class T>
bool read_numbers(simdjson::dom::element entry, std::vector<T>& out) {
  simdjson::dom::array items;
  if (entry.get_array().get(items)) return false;
  for (const simdjson::dom::element item : items) {
    std::uint64_t value = 0;
    if (item.get_uint64().get(value)) return false;
    out.push_back(static_cast<T>(value));
  }
  return true;
}

bool read_column(simdjson::dom::element entry, Column& column) {
  std::string_view name, encoding, dtype;
  simdjson::dom::element shape;
  if (entry["name"].get_string().get(name) || entry["encoding"].get_string().get(encoding) ||
      entry["dtype"].get_string().get(dtype) || entry["shape"].get(shape) ||
      entry["size"].get_uint64().get(column.fixed_size_bytes)) {
    return false;
  }
  column.name = name;
  column.encoding = encoding;
  column.dtype = dtype;
  return read_numbers(shape, column.shape);
}

}  // namespace

Result<TableDescription> describe_table(const TableQuestion& question) {
  HEADRACE_TRY_ASSIGN(const auto decoder, table_decoder());
  const auto names = [](std::span<const std::string> list) {
    return std::vector<std::string>(list.begin(), list.end());
  };
  const std::string spec = dump({{"columns", names(question.columns)},
                                 {"order", names(question.order)},
                                 {"common", question.common},
                                 {"url", question.url}});
  HEADRACE_TRY_ASSIGN(const std::string answer, decoder->describe({.kind = question.kind,
                                                                   .spec = spec,
                                                                   .head = question.head,
                                                                   .body = question.annotated}));
  simdjson::dom::parser parser;
  HEADRACE_TRY_ASSIGN(const auto root, parse_json(parser, answer));
  TableDescription out;
  std::string_view decode_spec;
  simdjson::dom::array entries;
  simdjson::dom::element list;
  if (root["spec"].get_string().get(decode_spec) || root["columns"].get_array().get(entries))
    return bad_answer();
  out.spec = decode_spec;
  for (const simdjson::dom::element entry : entries) {
    if (!read_column(entry, out.columns.emplace_back())) return bad_answer();
  }
  if (!root["leaves"].get(list) && !read_numbers(list, out.leaves)) return bad_answer();
  if (!root["fragments"].get(list) && !read_numbers(list, out.fragments)) return bad_answer();
  if (root["version"].get_uint64().get(out.version)) out.version = 0;
  if (root["row_bytes"].get_uint64().get(out.row_bytes)) out.row_bytes = 0;
  return out;
}

Result<std::vector<bool>> prune_row_groups(std::span<const std::byte> footer_file,
                                           std::string_view where, std::size_t group_count) {
  HEADRACE_TRY_ASSIGN(const auto decoder, table_decoder());
  HEADRACE_TRY_ASSIGN(
      const std::string answer,
      decoder->describe({.kind = "prune", .spec = where, .head = footer_file, .body = {}}));
  simdjson::dom::parser parser;
  HEADRACE_TRY_ASSIGN(const auto root, parse_json(parser, answer));
  std::vector<std::size_t> kept;
  if (!read_numbers(root, kept)) return bad_answer();
  std::vector<bool> out(group_count, false);
  for (const std::size_t group : kept) {
    if (group >= group_count) return bad_answer();
    out[group] = true;
  }
  return out;
}

Result<TablePlan> describe_ipc(std::span<const std::byte> schema,
                               std::span<const std::string> order) {
  HEADRACE_TRY_ASSIGN(TableDescription table,
                      describe_table({.kind = "ipc", .head = schema, .order = order}));
  return TablePlan{std::move(table.spec), std::move(table.columns)};
}

Result<std::shared_ptr<const DecodedTable>> decode_ipc(const TablePlan& plan,
                                                       std::span<const std::byte> schema,
                                                       std::span<const std::byte> messages) {
  HEADRACE_TRY_ASSIGN(const auto decoder, table_decoder());
  HEADRACE_TRY_ASSIGN(
      auto stream,
      decoder->decode({.kind = "ipc", .spec = plan.spec, .head = schema, .body = messages}));
  return DecodedTable::from_stream(std::move(stream), plan.columns, {});
}

}  // namespace headrace::detail
