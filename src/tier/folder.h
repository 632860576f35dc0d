#pragma once
/// \file
/// Directories and files of the cache: made when missing, and the names in them. What is made in a
/// directory is for whom that is for.
///
/// Threads: any.
#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "headrace/status.h"

namespace headrace::tier {

/// Who may use what the cache makes.
enum class Access {
  kOwner,  ///< Who made it: modes 0700 and 0600.
  kGroup,  ///< And the group of its directory: 02770 and 0660, whatever the umask says.
};

/// For whom an open directory is. kGroup: its group may write, and its setgid bit hands the group
/// on to what is made there.
Access access_of(int folder) noexcept;
constexpr mode_t file_mode(Access access) noexcept {
  return access == Access::kGroup ? 0660 : 0600;
}

/// Opens `path`, seen from the directory `parent`; with `make`, made when it is missing. Errors:
/// those of making and opening it.
Result<Fd> open_folder(int parent, const std::string& path, bool make);
/// The same, and where it is missing it is made for `access`.
Result<Fd> open_folder_for(Access access, int parent, const std::string& path);

/// Opens a file to read and write it; made empty when it is missing. Errors: those of making and
/// opening it.
Result<Fd> open_file(int folder, const std::string& name);

/// Calls `visit` with each name in an open directory. Errors: those of reading it.
Status visit_names(int directory, const std::function<void(const char*)>& visit);

/// How names begin of what is being made and has not got its own name yet.
inline constexpr std::string_view kUnfinished = ".new-";
/// Such a name, which no other process gives: numbers of processes would not do, as containers that
/// share the directory have the same.
std::string unfinished_name();

}  // namespace headrace::tier
