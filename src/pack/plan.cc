// Everything about the shards is decided here, from names and sizes: so shards can be made in any
// order and by any number of workers, and a run that was stopped finds the same ones.
//
// - image_bytes must be exact, to the byte: finished shards are known by their size. It follows
//   file_image_bytes() and the writers' own rule: a shard is closed before the sample that would
//   make it longer than shard_bytes, and holds at least one.
// - What decides the bytes is in the digest: options, names, sizes and versions. Lengths go before
//   texts, so two lists never look alike by where one name ends.
// - The token stream is cut by arithmetic: byte b of a file is token b, and each file ends with
//   one more.
#include "pack/plan.h"

#include <simdjson.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>

#include "base/strings.h"
#include "pack/digest.h"
#include "pack/json_text.h"
#include "pack/shard_image.h"
#include "pack/shard_names.h"
#include "pack/tar_format.h"

namespace headrace::pack_detail {
namespace {

// MDS offsets are 32 bits.
constexpr std::uint64_t kMdsLimitBytes = UINT32_MAX;
constexpr int kDefaultZstdLevel = 3;  // That of mosaicml-streaming.

std::string hex(std::uint64_t value) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

Status parse_compression(const std::string& text, PackPlan& plan) {
  if (text.empty()) return {};
  if (plan.layout == Layout::kTarFiles) {
    return Status(Code::kUnsupported, "pack: compression '" + text + "' of webdataset shards");
  }
  const std::string_view view(text);
  if (view.substr(0, 4) != "zstd" || (view.size() > 4 && view[4] != ':')) {
    return Status(Code::kUnsupported,
                  "pack: compression '" + text + "': known is zstd or zstd:LEVEL");
  }
  plan.zstd_level = kDefaultZstdLevel;
  if (view.size() > 4) {
    const auto level = parse_decimal<std::uint32_t>(view.substr(5));
    if (!level || *level < 1 || *level > 22) {
      return Status(Code::kInvalidArgument, "pack: compression '" + text + "': levels are 1 to 22");
    }
    plan.zstd_level = static_cast<int>(*level);
  }
  plan.compression = text;
  return {};
}

Status parse_options(const PackOptions& options, PackPlan& plan) {
  if (options.format != "mds" && options.format != "webdataset") {
    return Status(Code::kUnsupported,
                  "pack: format '" + options.format + "': known are mds, webdataset");
  }
  const bool is_mds = options.format == "mds";
  plan.layout = !is_mds ? Layout::kTarFiles
                        : (options.tokens_per_sample > 0 ? Layout::kMdsTokens : Layout::kMdsFiles);
  if (!is_mds && options.tokens_per_sample > 0) {
    return Status(Code::kUnsupported, "pack: tokens are written as mds only");
  }
  if (!is_mds && !options.hash.empty()) {
    return Status(Code::kUnsupported, "pack: a webdataset has no place for hashes");
  }
  if (options.shard_bytes == 0 || (is_mds && options.shard_bytes > kMdsLimitBytes)) {
    return Status(Code::kInvalidArgument, "pack: shard_bytes is not in 1 .. 2^32 - 1");
  }
  plan.shard_bytes = options.shard_bytes;
  plan.tokens_per_sample = options.tokens_per_sample;
  HEADRACE_TRY(parse_compression(options.compression, plan));
  if (!options.hash.empty()) {
    auto probe = Digest::create(options.hash);
    if (!probe) return std::move(probe).error().annotate("pack");
    plan.hash = options.hash;
  }
  if (is_mds) plan.mds_config = python_json(mds_config_json(plan));
  return {};
}

Status too_large(const PackPlan& plan, std::uint64_t file) {
  const ObjectInfo& info = plan.files[file];
  return Status(Code::kInvalidArgument, "pack: " + info.key + " has " +
                                            std::to_string(info.size_bytes) +
                                            " bytes; a sample of mds is less than 4 GiB");
}

/// Files from `first` on that are one sample.
std::uint64_t sample_files(const PackPlan& plan, std::uint64_t first) {
  if (plan.layout != Layout::kTarFiles || plan.is_numbered) return 1;
  const std::string_view group = webdataset_group(plan.files[first].key);
  std::uint64_t end = first + 1;
  while (end < plan.files.size() && webdataset_group(plan.files[end].key) == group) ++end;
  return end - first;
}

/// Fills shards with whole samples: the rule of both formats' own writers.
Status plan_files(PackPlan& plan) {
  const bool is_mds = plan.layout == Layout::kMdsFiles;
  const std::uint64_t empty_bytes = is_mds ? 8 + plan.mds_config.size() : kTarEndBytes;
  ShardPlan shard;
  shard.image_bytes = empty_bytes;
  for (std::uint64_t i = 0; i < plan.files.size();) {
    const std::uint64_t count = sample_files(plan, i);
    std::uint64_t bytes = is_mds ? 4 : 0;
    for (std::uint64_t f = i; f < i + count; ++f) bytes += file_image_bytes(plan, f);
    if (shard.file_count > 0 && shard.image_bytes + bytes > plan.shard_bytes) {
      plan.shards.push_back(shard);
      shard = {.first_file = i,
               .file_count = 0,
               .first_sample = plan.sample_count,
               .sample_count = 0,
               .image_bytes = empty_bytes};
    }
    shard.image_bytes += bytes;
    shard.file_count += count;
    shard.sample_count += 1;
    plan.sample_count += 1;
    if (is_mds && shard.image_bytes > kMdsLimitBytes) return too_large(plan, i);
    i += count;
  }
  plan.shards.push_back(shard);
  return {};
}

/// Cuts the token stream into samples, and these into shards of equal counts.
Status plan_tokens(PackPlan& plan) {
  plan.first_token.reserve(plan.files.size() + 1);
  std::uint64_t tokens = 0;
  for (const ObjectInfo& file : plan.files) {
    plan.first_token.push_back(tokens);
    tokens += file.size_bytes + 1;
  }
  plan.first_token.push_back(tokens);
  plan.sample_count = tokens / plan.tokens_per_sample;
  if (plan.sample_count == 0) {
    return Status(Code::kNotFound, "pack: " + std::to_string(tokens) +
                                       " tokens in all are less than one sample of " +
                                       std::to_string(plan.tokens_per_sample));
  }
  const std::uint64_t head_bytes = 8 + plan.mds_config.size();
  const std::uint64_t sample_bytes = 2 * std::uint64_t{plan.tokens_per_sample} + 4;
  if (head_bytes + sample_bytes > kMdsLimitBytes) {
    return Status(Code::kInvalidArgument, "pack: tokens_per_sample is too large for mds");
  }
  const std::uint64_t room = plan.shard_bytes - std::min(plan.shard_bytes, head_bytes);
  const std::uint64_t most = std::max<std::uint64_t>(room / sample_bytes, 1);
  std::uint64_t file = 0;
  for (std::uint64_t sample = 0; sample < plan.sample_count; sample += most) {
    const std::uint64_t count = std::min(most, plan.sample_count - sample);
    // Files that end before the shard's first token belong to the shards before.
    while (plan.first_token[file + 1] <= sample * plan.tokens_per_sample) ++file;
    ShardPlan shard{.first_file = file,
                    .file_count = 0,
                    .first_sample = sample,
                    .sample_count = count,
                    .image_bytes = head_bytes + count * sample_bytes};
    const std::uint64_t end = (sample + count) * plan.tokens_per_sample;
    while (file < plan.files.size() && plan.first_token[file + 1] <= end) {
      ++file;
      ++shard.file_count;
    }
    plan.shards.push_back(shard);
  }
  return {};
}

/// Samples carry the names of their files as text.
Status check_names(const std::vector<ObjectInfo>& files) {
  for (const ObjectInfo& file : files) {
    if (simdjson::validate_utf8(file.key)) continue;
    return Status(Code::kInvalidArgument,
                  "pack: the file name '" + printable(file.key) +
                      "' is not UTF-8, so that readers could not decode its sample; rename it");
  }
  return {};
}

/// True unless readers see in these names exactly the samples that are meant.
bool needs_numbers(const std::vector<ObjectInfo>& files) {
  TarSamples samples;
  return !std::all_of(files.begin(), files.end(), [&](const ObjectInfo& file) {
    return samples.add(file.key);
  }) || !samples.finish();
}

void update(XXH3_state_t* state, std::string_view text) {
  const std::uint64_t length = text.size();
  XXH3_128bits_update(state, &length, sizeof(length));
  XXH3_128bits_update(state, text.data(), text.size());
}

std::string plan_digest(const PackPlan& plan) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  XXH3_128bits_reset(state.get());
  update(state.get(), "headrace pack 1");
  update(state.get(), plan.format());
  update(state.get(),
         std::to_string(plan.shard_bytes) + " " + std::to_string(plan.tokens_per_sample));
  update(state.get(), plan.compression);
  update(state.get(), plan.hash);
  // Only where it makes a difference: all other plans keep the digest they had before.
  if (plan.layout == Layout::kTarFiles && plan.sample_count != plan.files.size())
    update(state.get(), "samples of several files");
  for (const ObjectInfo& file : plan.files) {
    update(state.get(), file.key);
    update(state.get(), file.etag);
    XXH3_128bits_update(state.get(), &file.size_bytes, sizeof(file.size_bytes));
  }
  const XXH128_hash_t value = XXH3_128bits_digest(state.get());
  return hex(value.high64) + hex(value.low64);
}

}  // namespace

ShardFacts PackPlan::facts_of(std::uint64_t shard) const {
  const ShardPlan& one = shards[shard];
  const std::string name = shard_names(format(), is_compressed()).name_of(shard);
  return {name, one.sample_count, one.image_bytes, one.image_bytes, {}, {}, {}};
}

Result<PackPlan> make_plan(std::vector<ObjectInfo> files, const PackOptions& options) {
  PackPlan plan;
  HEADRACE_TRY(parse_options(options, plan));
  if (files.empty()) return Status(Code::kNotFound, "pack: no files");
  const auto by_key = [](const ObjectInfo& a, const ObjectInfo& b) { return a.key < b.key; };
  // Most stores list in order.
  if (!std::is_sorted(files.begin(), files.end(), by_key))
    std::sort(files.begin(), files.end(), by_key);
  plan.files = std::move(files);
  for (const ObjectInfo& file : plan.files) plan.source_bytes += file.size_bytes;
  if (plan.layout != Layout::kMdsTokens) HEADRACE_TRY(check_names(plan.files));
  if (plan.layout == Layout::kTarFiles) plan.is_numbered = needs_numbers(plan.files);
  HEADRACE_TRY(plan.layout == Layout::kMdsTokens ? plan_tokens(plan) : plan_files(plan));
  plan.digest = plan_digest(plan);
  return plan;
}

}  // namespace headrace::pack_detail
