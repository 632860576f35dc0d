#pragma once
/// \file
/// The two shared AWS files (~/.aws/config, ~/.aws/credentials) as one set of profiles. Pure over
/// an Environment and a file reader.
#include <functional>
#include <optional>
#include <string>

#include "auth/config_file.h"
#include "headrace/environment.h"
#include "headrace/status.h"

namespace headrace::auth {

/// Returns the text of a file, or nullopt when it does not exist or cannot be read.
using FileReader = std::function<std::optional<std::string>(const std::string& path)>;

/// A setting and the place that it came from, for messages. `text` is empty when nothing was found.
struct FoundSetting {
  std::string text;
  std::string source;
};

using ConfigSection = std::map<std::string, std::string>;

/// One of the shared files.
struct ProfileFile {
  std::string path;  ///< Empty: HOME is not set.
  bool exists = false;
  ConfigSections sections;

  const ConfigSection* section(const std::string& name) const;
  /// "/home/u/.aws/config (no such file)".
  std::string described() const;
};

/// Both files and the profile that was chosen. Where a key is in both, the credentials file wins.
class Profiles {
 public:
  /// Errors: kDenied (AWS_PROFILE names one that does not exist), kInvalidArgument (malformed).
  static Result<Profiles> load(const Environment& environment, const FileReader& read_file);

  const std::string& chosen() const noexcept { return chosen_; }
  bool is_named() const noexcept { return is_named_; }  ///< By AWS_PROFILE.
  const ProfileFile& config() const noexcept { return config_; }
  const ProfileFile& shared() const noexcept { return shared_; }

  /// The section of a profile; nullptr when the file has none. The config file names them
  /// "profile dev", all but "default"; the credentials file "dev".
  const ConfigSection* in_config(const std::string& profile) const;
  const ConfigSection* in_shared(const std::string& profile) const;
  bool exists(const std::string& profile) const {
    return in_config(profile) != nullptr || in_shared(profile) != nullptr;
  }

  /// Value of `key` in a profile, with its place; empty text when it has none.
  FoundSetting find(const std::string& profile, const std::string& key) const;
  std::string value(const std::string& profile, const std::string& key) const {
    return find(profile, key).text;
  }
  /// "profile \"dev\" in /home/u/.aws/config".
  std::string place(const std::string& profile, const ProfileFile& file) const;
  /// The same of a profile wherever it is.
  std::string place(const std::string& profile) const;
  const std::string& home() const noexcept { return home_; }

 private:
  std::string home_;
  std::string chosen_ = "default";
  bool is_named_ = false;
  ProfileFile config_, shared_;
};

/// `key` of `section`, or empty; `section` may be nullptr.
std::string value_of(const ConfigSection* section, const std::string& key);

}  // namespace headrace::auth
