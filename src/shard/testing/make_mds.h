#pragma once
/// \file
/// Small MDS datasets for the tests of src/shard, written as docs/formats.md says.
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/testing/fake_store.h"

namespace headrace::testing {

struct MdsRecipe {
  std::size_t shard_count = 1;
  std::size_t samples_per_shard = 10;
  std::size_t sample_bytes = 30;  ///< Of the text column.
  bool is_fixed = false;          ///< The text column has a fixed size.
};

/// The text of the sample at a dataset position; its size varies by up to 3 bytes around `bytes`
/// unless fixed.
inline std::string mds_text(std::uint64_t position, std::size_t bytes, bool is_fixed = false) {
  const std::size_t size = is_fixed ? bytes : bytes + position % 4;
  return std::string(size, static_cast<char>('a' + position % 26));
}

inline void append_u32(std::string& out, std::size_t value) {
  const auto word = static_cast<std::uint32_t>(value);
  char bytes[4];
  std::memcpy(bytes, &word, 4);
  out.append(bytes, 4);
}

/// A raw shard of these samples.
inline std::string mds_shard(const std::vector<std::string>& samples,
                             const std::string& config = "{}") {
  std::string out;
  append_u32(out, samples.size());
  std::size_t at = 4 + 4 * (samples.size() + 1) + config.size();
  append_u32(out, at);
  for (const std::string& sample : samples) append_u32(out, at += sample.size());
  out += config;
  for (const std::string& sample : samples) out += sample;
  return out;
}

inline nlohmann::json mds_shard_entry(const std::string& basename, std::size_t bytes,
                                      std::size_t samples, nlohmann::json text_size = nullptr) {
  const char* encoding = text_size.is_null() ? "str" : "ascii";
  return {{"version", 2},
          {"format", "mds"},
          {"compression", nullptr},
          {"hashes", nlohmann::json::array()},
          {"size_limit", nullptr},
          {"samples", samples},
          {"column_names", {"t", "x"}},
          {"column_encodings", {encoding, "int"}},
          {"column_sizes", {std::move(text_size), 8}},
          {"raw_data",
           {{"basename", basename}, {"bytes", bytes}, {"hashes", nlohmann::json::object()}}},
          {"zip_data", nullptr}};
}

/// Writes index.json and shards with the columns t (text) and x (int, the dataset position).
inline void make_mds(FakeStore& store, const MdsRecipe& recipe) {
  nlohmann::json shards = nlohmann::json::array();
  std::uint64_t position = 0;
  for (std::size_t s = 0; s < recipe.shard_count; ++s) {
    std::vector<std::string> samples;
    for (std::size_t i = 0; i < recipe.samples_per_shard; ++i, ++position) {
      const std::string text = mds_text(position, recipe.sample_bytes, recipe.is_fixed);
      std::string sample;
      if (!recipe.is_fixed) append_u32(sample, text.size());
      sample += text;
      char number[8];
      std::memcpy(number, &position, 8);
      samples.push_back(sample.append(number, 8));
    }
    const std::string bytes = mds_shard(samples);
    char name[32];
    std::snprintf(name, sizeof(name), "shard.%05zu.mds", s);
    shards.push_back(
        mds_shard_entry(name, bytes.size(), samples.size(),
                        recipe.is_fixed ? nlohmann::json(recipe.sample_bytes) : nlohmann::json()));
    store.set(name, bytes);
  }
  store.set("index.json", nlohmann::json({{"version", 2}, {"shards", shards}}).dump());
}

}  // namespace headrace::testing
