#pragma once
/// \file
/// Lines: JSON, or any text.
///
/// Threads: functions; a build runs in the calling thread.
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shard/dataset/build.h"
#include "shard/dataset/format_driver.h"
#include "shard/dataset/indexed_dataset.h"

namespace headrace::detail {

extern const FormatDriver kTextDriver;

bool looks_like_json_lines(std::span<const std::byte> head) noexcept;

/// FormatDriver::may_be_beside and judge_beside of lines.
bool may_be_json_beside(std::string_view name) noexcept;
Beside judge_json_beside(std::span<const std::byte> head, bool is_whole) noexcept;

/// An array whose first element is an object.
bool looks_like_json_array(std::span<const std::byte> head) noexcept;

Result<std::string> build_text_index(const BuildContext& context,
                                     const std::vector<ObjectInfo>& objects);

/// Of lines and of separated values.
Result<std::shared_ptr<const Dataset>> make_text_dataset(DatasetParts parts);

}  // namespace headrace::detail
