#pragma once
/// \file
/// The index of a finished dataset. Pure.
#include <span>
#include <string>
#include <string_view>

#include "headrace/target_record.h"

namespace headrace::pack_detail {

/// True for formats whose datasets are what an "index.json" lists: "mds" and "litdata". Datasets of
/// the others are all the files of a folder.
bool has_index(std::string_view format) noexcept;

/// Text of "index.json"; empty for formats without one.
/// `config_json`: as ShardBuilder::config_json() tells it.
std::string index_text(std::string_view format, const std::string& config_json,
                       std::span<const ShardFacts> facts);

}  // namespace headrace::pack_detail
