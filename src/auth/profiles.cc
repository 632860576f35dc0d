#include "auth/profiles.h"

namespace headrace::auth {
namespace {

Result<ProfileFile> read_profile_file(const std::string& path, const FileReader& read_file) {
  ProfileFile file;
  file.path = path;
  if (path.empty()) return file;
  const auto text = read_file(path);
  if (!text) return file;
  file.exists = true;
  HEADRACE_TRY_ASSIGN(file.sections, parse_config(*text, path));
  return file;
}

/// Path of a shared file: the variable, else the one below HOME; a leading "~/" is HOME.
std::string file_path(const Environment& environment, const char* variable,
                      const char* below_home) {
  const std::string home = environment.get("HOME");
  std::string path = environment.get(variable);
  if (path.empty()) return home.empty() ? std::string() : home + below_home;
  if (path.starts_with("~/")) path.replace(0, 1, home);
  return path;
}

}  // namespace

std::string value_of(const ConfigSection* section, const std::string& key) {
  if (section == nullptr) return {};
  const auto it = section->find(key);
  return it == section->end() ? std::string() : it->second;
}

const ConfigSection* ProfileFile::section(const std::string& name) const {
  const auto it = sections.find(name);
  return it == sections.end() ? nullptr : &it->second;
}

std::string ProfileFile::described() const {
  if (path.empty()) return "a home directory (HOME is not set)";
  return path + (exists ? "" : " (no such file)");
}

Result<Profiles> Profiles::load(const Environment& environment, const FileReader& read_file) {
  Profiles profiles;
  profiles.home_ = environment.get("HOME");
  std::string variable;
  for (const char* name : {"AWS_PROFILE", "AWS_DEFAULT_PROFILE"}) {
    if (std::string value = environment.get(name); !value.empty() && variable.empty()) {
      profiles.chosen_ = value;
      variable = name;
    }
  }
  profiles.is_named_ = !variable.empty();
  HEADRACE_TRY_ASSIGN(
      profiles.config_,
      read_profile_file(file_path(environment, "AWS_CONFIG_FILE", "/.aws/config"), read_file));
  HEADRACE_TRY_ASSIGN(
      profiles.shared_,
      read_profile_file(file_path(environment, "AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials"),
                        read_file));
  if (profiles.is_named_ && !profiles.exists(profiles.chosen_)) {
    return Status(Code::kDenied, variable + " names the profile \"" + profiles.chosen_ +
                                     "\", which is neither in " + profiles.config_.described() +
                                     " nor in " + profiles.shared_.described());
  }
  return profiles;
}

const ConfigSection* Profiles::in_config(const std::string& profile) const {
  const ConfigSection* section = config_.section("profile " + profile);
  if (section == nullptr && profile == "default") section = config_.section("default");
  return section;
}

const ConfigSection* Profiles::in_shared(const std::string& profile) const {
  return shared_.section(profile);
}

FoundSetting Profiles::find(const std::string& profile, const std::string& key) const {
  if (std::string text = value_of(in_shared(profile), key); !text.empty())
    return {text, place(profile, shared_)};
  if (std::string text = value_of(in_config(profile), key); !text.empty())
    return {text, place(profile, config_)};
  return {};
}

std::string Profiles::place(const std::string& profile, const ProfileFile& file) const {
  return "profile \"" + profile + "\" in " + file.path;
}

std::string Profiles::place(const std::string& profile) const {
  return place(profile, in_config(profile) != nullptr ? config_ : shared_);
}

}  // namespace headrace::auth
