// The unpacker is Python (pyarrow) and answers in JSON, which is checked like a file: a number
// that is none, or one out of range, is an error of its own (bad_answer()) and never an index into
// something.
//
// A call of the unpacker costs about 0.2 ms, and what it unpacks takes memory of its own
// meanwhile. Record batches are therefore joined into steps of about 4 MiB: fewer calls than one a
// batch, less memory than all at once. Both ipc_workspace_bytes() and unpack_ipc() go by
// for_each_step(), so that memory is taken for exactly the steps that follow.
#include "shard/formats/table/table_plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "shard/codec/json_reader.h"
#include "shard/formats/table/ipc_table.h"

namespace headrace::detail {
namespace {

Status bad_answer() {
  return Status(Code::kInternal, "the table unpacker gave an answer that is none");
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
  HEADRACE_TRY_ASSIGN(const auto unpacker, table_unpacker());
  const auto names = [](std::span<const std::string> list) {
    return std::vector<std::string>(list.begin(), list.end());
  };
  nlohmann::json likes = nlohmann::json::array();
  for (const Column& column : question.likes)
    likes.push_back({{"name", column.name},
                     {"encoding", column.encoding},
                     {"dtype", column.dtype},
                     {"shape", column.shape},
                     {"size", column.fixed_size_bytes}});
  const std::string spec = dump({{"columns", names(question.columns)},
                                 {"likes", std::move(likes)},
                                 {"order", names(question.order)},
                                 {"common", question.common},
                                 {"url", question.url}});
  HEADRACE_TRY_ASSIGN(const std::string answer, unpacker->describe({.kind = question.kind,
                                                                    .spec = spec,
                                                                    .head = question.head,
                                                                    .body = question.annotated}));
  simdjson::dom::parser parser;
  HEADRACE_TRY_ASSIGN(const auto root, parse_json(parser, answer));
  TableDescription out;
  std::string_view unpack_spec;
  simdjson::dom::array entries;
  simdjson::dom::element list;
  if (root["spec"].get_string().get(unpack_spec) || root["columns"].get_array().get(entries))
    return bad_answer();
  out.spec = unpack_spec;
  for (const simdjson::dom::element entry : entries) {
    if (!read_column(entry, out.columns.emplace_back())) return bad_answer();
  }
  if (!root["leaves"].get(list) && !read_numbers(list, out.leaves)) return bad_answer();
  if (!root["fragments"].get(list) && !read_numbers(list, out.fragments)) return bad_answer();
  simdjson::dom::array unknown;
  if (!root["unknown"].get_array().get(unknown)) {
    for (const simdjson::dom::element entry : unknown) {
      std::string_view name;
      if (entry.get_string().get(name)) return bad_answer();
      out.unknown.emplace_back(name);
    }
  }
  if (root["version"].get_uint64().get(out.version)) out.version = 0;
  if (root["row_bytes"].get_uint64().get(out.row_bytes)) out.row_bytes = 0;
  return out;
}

Result<std::vector<bool>> prune_row_groups(std::span<const std::byte> footer_file,
                                           std::string_view where, std::size_t group_count) {
  HEADRACE_TRY_ASSIGN(const auto unpacker, table_unpacker());
  HEADRACE_TRY_ASSIGN(
      const std::string answer,
      unpacker->describe({.kind = "prune", .spec = where, .head = footer_file, .body = {}}));
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
                               std::span<const std::string> order, std::span<const Column> likes) {
  HEADRACE_TRY_ASSIGN(
      TableDescription table,
      describe_table({.kind = "ipc", .head = schema, .order = order, .likes = likes}));
  return TablePlan{std::move(table.spec), std::move(table.columns), std::move(table.unknown)};
}

namespace {

/// Record batches are unpacked together up to this size: a call costs about 0.2 ms.
constexpr std::size_t kIpcStepBytes = std::size_t{4} << 20;
/// What an unpacker takes besides the bytes of the batches.
constexpr std::uint64_t kIpcOverheadBytes = std::uint64_t{1} << 20;

/// Goes through `messages`: step(dictionaries so far, batches to be unpacked together).
template <class Step>
Status for_each_step(std::span<const std::byte> messages, const Step& step) {
  std::vector<IpcMessage> dictionaries, batches;
  std::size_t size = 0;
  while (!messages.empty()) {
    HEADRACE_TRY_ASSIGN(const IpcMessage message, next_ipc_message(messages));
    if (message.is_dictionary) {
      dictionaries.push_back(message);
      continue;
    }
    const std::size_t message_size =
        std::max<std::size_t>(message.bytes.size(), message.inflated_bytes);
    if (!batches.empty() && size + message_size > kIpcStepBytes) {
      HEADRACE_TRY(step(dictionaries, batches));
      batches.clear();
      size = 0;
    }
    batches.push_back(message);
    size += message_size;
  }
  return batches.empty() ? Status() : step(dictionaries, batches);
}

}  // namespace

Result<std::uint64_t> ipc_workspace_bytes(std::span<const std::byte> messages) {
  std::uint64_t most = 0;
  HEADRACE_TRY(for_each_step(messages, [&](const auto& dictionaries, const auto& batches) {
    std::uint64_t sum = 0;
    // Copied, perhaps together with the dictionaries before that; then inflated.
    for (const IpcMessage& message : dictionaries)
      sum += 3 * message.bytes.size() + message.inflated_bytes;
    for (const IpcMessage& message : batches) {
      sum += (dictionaries.empty() ? 1 : 2) * message.bytes.size() + message.inflated_bytes;
    }
    most = std::max(most, sum);
    return Status();
  }));
  return most + kIpcOverheadBytes;
}

Status unpack_ipc(std::string_view spec, std::span<const std::byte> schema,
                  std::span<const std::byte> messages, TableBuilder& builder) {
  HEADRACE_TRY_ASSIGN(const auto unpacker, table_unpacker());
  return for_each_step(messages, [&](const auto& dictionaries, const auto& batches) {
    // Without dictionaries all messages are batches, one behind the other: nothing is copied.
    const std::byte* begin = batches.front().bytes.data();
    const std::byte* end = batches.back().bytes.data() + batches.back().bytes.size();
    std::span<const std::byte> body(begin, end);
    std::string joined;
    if (!dictionaries.empty()) {
      for (const auto* list : {&dictionaries, &batches}) {
        for (const IpcMessage& message : *list)
          joined.append(reinterpret_cast<const char*>(message.bytes.data()), message.bytes.size());
      }
      body = std::as_bytes(std::span(joined));
    }
    return unpacker->unpack({.kind = "ipc", .spec = spec, .head = schema, .body = body}, builder);
  });
}

}  // namespace headrace::detail
