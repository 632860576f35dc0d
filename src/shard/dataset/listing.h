#pragma once
/// \file
/// Which objects below a root may hold samples.
///
/// Threads: the calling one.
#include <string>
#include <string_view>
#include <vector>

#include "shard/dataset/build.h"

namespace headrace::detail {

struct Candidates {
  /// Every visible object: in byte order of the key, or as DatasetOptions::keys has them. Hidden
  /// files, `index.hri`, `MANIFEST.sha256` and directory marks are never among them.
  std::vector<ObjectInfo> all;
  /// Those of `all` that are no side files: .idx .json .yaml .txt ..., README, _SUCCESS, and others
  /// whose name begins with '_'. With options.keys: all.
  std::vector<ObjectInfo> data;
  /// `data` and those named .jsonl or .txt (FormatDriver::note_endings): what a dataset of lines
  /// may lie in.
  std::vector<ObjectInfo> lines;
};

/// What a pack puts at the root before its first shard, and behind its last: its plan, and the word
/// that all of it is there.
inline constexpr std::string_view kPackPlan = ".hrpack.json";
inline constexpr std::string_view kPackFinished = ".hrpack.done.json";

/// Lists the root, or looks up options.keys. Errors: kNotFound (nothing there, a key is missing);
/// kInvalidArgument (a pack into the root was not finished: nobody would miss what is not there);
/// those of the store.
Result<Candidates> list_candidates(const BuildContext& context);

/// False for what is never a sample: hidden files, `index.hri`, `MANIFEST.sha256`, marks of
/// directories.
bool may_be_sample(const ObjectInfo& object) noexcept;

/// True for names of files about the data: README, LICENSE, dataset_infos.json, _SUCCESS, ...
bool is_about_data(std::string_view name) noexcept;

/// True for names of files beside data that some format reads on the side (`.idx`).
bool has_side_ending(std::string_view key) noexcept;
/// True for names of files that hold samples only where nothing says otherwise (`.txt`).
bool may_be_note(std::string_view key) noexcept;

/// Looks up these keys: one by one, or by a listing where they are many. Those that are not there
/// are left out, or (`must_exist`) kNotFound. Errors: those of the store.
Result<std::vector<ObjectInfo>> look_up(const BuildContext& context,
                                        const std::vector<std::string>& keys, bool must_exist);

/// Pure part of the above.
Candidates sort_candidates(std::vector<ObjectInfo> listing);

/// A text that differs when any key, size or version of the objects does, or an option that shapes
/// an index.
std::string manifest_of(const std::vector<ObjectInfo>& objects, const DatasetOptions& options);

/// True when the options choose what an index of `format` holds: one made with other options, or
/// found beside the dataset, is then not the one asked for. kAuto: of any format.
bool shapes_index(const DatasetOptions& options, Format format) noexcept;

}  // namespace headrace::detail
