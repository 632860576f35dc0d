#pragma once
/// \file
/// What of the settings of a source (headrace/object_settings.h) its copy gets, and a line of the
/// log for what the target cannot keep.
///
/// Threads: every function from any thread.
#include <memory>
#include <string>

#include "headrace/object_settings.h"
#include "headrace/store.h"

namespace headrace::copy_detail {

class KeptSettings {
 public:
  /// Both outlive it.
  KeptSettings(const Store& from, const Store& to) : from_(from), to_(to) {}

  /// Of the copy of `from_key`: those of the target store, and where they are empty those of the
  /// source that the target can keep. `source`: what the source tells of itself. nullptr: it is a
  /// file, whose type is guessed by its name.
  std::shared_ptr<const ObjectSettings> of(const std::string& from_key,
                                           const ObjectDetails* source) const;
  /// A local file was made of an object: only its bytes are kept.
  void tell_file(const std::string& from_key, const ObjectDetails& source) const;
  /// Whether tell_file() would tell anybody.
  static bool tells_files() noexcept;

 private:
  void drop_what_target_lacks(const std::string& from_key, ObjectSettings& settings) const;

  const Store& from_;
  const Store& to_;
};

/// Whether an object has the settings that were wanted of it, as far as stores tell. What was not
/// wanted may be whatever its store gives by itself.
bool has_settings(const ObjectSettings& found, const ObjectSettings& wanted);

}  // namespace headrace::copy_detail
