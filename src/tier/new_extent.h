#pragma once
/// \file
/// NewExtent: the file of an extent before it has its name: all of its bytes are there, and nobody
/// sees it. So the long part of keeping an extent (its bytes) is apart from the short one (its
/// name), which others may wait for.
///
/// Threads: one at a time.
#include <cstddef>
#include <span>
#include <string>

#include "base/fd.h"
#include "headrace/status.h"
#include "tier/extent_header.h"
#include "tier/extent_name.h"
#include "tier/file_locks.h"

namespace headrace::tier {

/// What a file is written from, where it lies: the extent's bytes, and around them pages of its
/// own.
struct FileParts {
  static constexpr std::size_t kPagesBytes = 2 * kHeaderBytes;

  /// The header, and the last page where the bytes end within one. Begins at a page.
  std::span<std::byte> pages;
  std::span<std::byte> data;
};

/// Fills in `parts.pages` for the bytes; with a key, encrypts these. \pre parts.pages has
/// kPagesBytes.
void seal_extent(const ExtentInfo& info, const FileParts& parts, const SealKey* key);

/// A file without a name in `directory`, to read and write, for whom that is. `is_direct`: past the
/// page cache, where the file system can. Errors: those of making it.
Result<Fd> make_nameless(int directory, bool is_direct);
/// Shows such a file, once it is complete, as an extent that has come now. `was_hit`: and as if it
/// had been read again already. Errors: kChanged (an extent of this name is there already), those
/// of the directory.
Status show_nameless(int file, int directory, const ExtentName& name, bool was_hit);

class NewExtent {
 public:
  /// Whether the file system of a directory makes files without a name that can get one: some do
  /// not, and one that nodes share has told that they have it and lost them (JuiceFS 1.4). Leaves a
  /// file with an unfinished_name() when it is killed.
  static bool can_be_nameless(int directory);
  /// Writes what seal_extent() made into a file in `directory` (a bucket), for whom that is:
  /// whoever is killed leaves nothing, or, unless `is_nameless`, a file for remove_if_dead(). Past
  /// the page cache where there is much, it begins at a page, and the file system can. Errors:
  /// those of writing.
  static Result<NewExtent> write(Fd directory, const FileParts& parts, bool is_nameless);
  NewExtent(NewExtent&& other) noexcept;
  NewExtent& operator=(NewExtent&&) = delete;
  ~NewExtent();

  /// Shows it all at once, as show_nameless() does.
  Status publish(const ExtentName& name, bool was_hit) const;

 private:
  /// Without bytes.
  static Result<NewExtent> make(Fd directory, bool is_direct, bool is_nameless);
  NewExtent(Fd directory, FileLocks file, std::string temporary);

  Fd directory_;
  FileLocks file_;
  std::string temporary_;  // Its name until then, where the file system makes none without.
};

/// Deletes a file with an unfinished_name() unless somebody is writing it. False: it is still
/// there.
bool remove_if_dead(int directory, const char* unfinished);

}  // namespace headrace::tier
