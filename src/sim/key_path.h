#pragma once
/// \file
/// Which file holds which key. Pure.
///
/// A key that can be a path is one: "a/b.bin" is the file a/b.bin in the bucket's folder. Any other
/// ("a//b", "a/", "../x",
/// ".hidden", long components) lives escaped below kHiddenFolder, as does a key whose path is
/// blocked by another ("a" where "a/b" exists). Names that begin with a dot are never listed or
/// served by themselves.
#include <optional>
#include <string>
#include <string_view>

namespace headrace::sim {

/// In every bucket that was written to: keys/, tmp/, uploads/.
constexpr std::string_view kHiddenFolder = ".headrace-sim";

/// S3's limit of a key, bytes.
constexpr std::size_t kMaxKeyBytes = 1024;

/// True when `key` can be a path below the bucket's folder.
bool is_path_key(std::string_view key) noexcept;

/// Path of the escaped form of `key` relative to kHiddenFolder/keys: the key percent-encoded, cut
/// into pieces of 200 characters; folders end in '+', the file in '='. No two keys collide and no
/// key's file is another's folder.
std::string escaped_key_path(std::string_view key);

/// Undoes escaped_key_path(); nullopt for foreign names.
std::optional<std::string> key_of_escaped_path(std::string_view path);

/// 1 .. 63 characters of a-z 0-9 . - _ and A-Z, first a letter or digit: S3's rules, widened to
/// names that folders have.
bool is_bucket_name(std::string_view name) noexcept;

/// What CreateBucket takes: S3's rules. 3 .. 63 characters of a-z 0-9 . -, a letter or digit at
/// both ends and beside each dot, not in the form of an IPv4 address.
bool is_new_bucket_name(std::string_view name) noexcept;

}  // namespace headrace::sim
