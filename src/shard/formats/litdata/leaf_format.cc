#include "shard/formats/litdata/leaf_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace headrace::detail {
namespace {

constexpr LeafDtype kNone{};
// No decoder knows it: bytes, for callers that said they trust them.
constexpr std::string_view kPickled = "litdata:pickle";

// Numbers of torch dtypes. Source: the table in
// litdata/constants.py, whose order never changes because files hold the numbers.
constexpr std::array<LeafDtype, 21> kTorch{
    {{"float32", 4},   {"float32", 4},     {"float64", 8},     {"float64", 8}, {"complex64", 8},
     {"complex64", 8}, {"complex128", 16}, {"complex128", 16}, {"float16", 2}, {"float16", 2},
     {"bfloat16", 2},  {"uint8", 1},       {"int8", 1},        {"int16", 2},   {"int16", 2},
     {"int32", 4},     {"int32", 4},       {"int64", 8},       {"int64", 8},   {"bool", 1},
     {"uint16", 2}}};
// Numbers of numpy dtypes, same source; "" for object, bytes, str, void.
constexpr std::array<LeafDtype, 18> kNumpy{{{"int8", 1},
                                            {"int16", 2},
                                            {"int32", 4},
                                            {"int64", 8},
                                            {"uint8", 1},
                                            {"uint16", 2},
                                            {"uint32", 4},
                                            {"uint64", 8},
                                            {"float16", 2},
                                            {"float32", 4},
                                            {"float64", 8},
                                            {"complex64", 8},
                                            {"complex128", 16},
                                            {"bool", 1},
                                            kNone,
                                            kNone,
                                            kNone,
                                            kNone}};

// Files and blobs, handed on under the name that the index gives them.
constexpr std::array<std::string_view, 11> kFiles{
    "pil", "jpeg", "image", "video", "audio", "tifffile", "tiff", "nifti", "mesh", "pdf", "file"};

struct Plain {
  std::string_view format, encoding, dtype;
  std::uint64_t size_bytes;
};
constexpr std::array<Plain, 10> kPlain{{{"int", "int", "int64", 8},
                                        {"float", "float", "float64", 8},
                                        {"bool", "bool", "bool", 1},
                                        {"str", "str", "", 0},
                                        {"text", "str", "", 0},
                                        {"json", "json", "", 0},
                                        {"numpy", "litdata:numpy", "", 0},
                                        {"tensor", "litdata:tensor", "", 0},
                                        {"graph", "litdata:graph", "", 0},
                                        {"jpeg_array", "list[bytes]", "", 0}}};

bool is_headless(std::string_view name) {
  return name == "no_header_tensor" || name == "no_header_numpy";
}

}  // namespace

Result<LeafDtype> headless_dtype(std::string_view data_format) {
  const std::size_t colon = data_format.find(':');
  const std::string_view name = data_format.substr(0, colon);
  if (!is_headless(name) || colon == std::string_view::npos) {
    return Status(Code::kUnsupported,
                  fmt::format("data_format '{}' is not an array of numbers", data_format));
  }
  const std::span<const LeafDtype> table =
      name == "no_header_tensor" ? std::span<const LeafDtype>(kTorch) : kNumpy;
  const std::string_view digits = data_format.substr(colon + 1);
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number >= table.size())
    return Status(Code::kCorrupt, fmt::format("data_format '{}': no such dtype", data_format));
  if (table[number].name.empty()) {
    return Status(Code::kUnsupported,
                  fmt::format("data_format '{}': arrays of objects are not read", data_format));
  }
  return table[number];
}

Status describe_litdata_leaf(std::string_view data_format, bool allow_unsafe, Column& column) {
  const std::string_view name = data_format.substr(0, data_format.find(':'));
  if (name == "pickle" || data_format == "graph:pickle") {
    if (!allow_unsafe) {
      return Status(Code::kUnsupported,
                    fmt::format("column '{}' is pickled (data_format {}), which can run any code "
                                "when decoded; allow_unsafe lets its bytes through",
                                column.name, data_format));
    }
    column.encoding = kPickled;
    return Status();
  }
  if (is_headless(name)) {
    HEADRACE_TRY_ASSIGN(const LeafDtype dtype, headless_dtype(data_format));
    column.encoding = fmt::format("array:{}", dtype.name);
    return Status();
  }
  for (const Plain& plain : kPlain) {
    if (plain.format != name) continue;
    column.encoding = plain.encoding;
    column.dtype = plain.dtype;
    column.fixed_size_bytes = plain.size_bytes;
    return Status();
  }
  const bool is_file = std::find(kFiles.begin(), kFiles.end(), name) != kFiles.end();
  column.encoding = is_file ? data_format : std::string_view("bytes");
  return Status();
}

bool is_pickled_leaf(const Column& column) noexcept { return column.encoding == kPickled; }

}  // namespace headrace::detail
