#include "copy/overlap.h"

#include <filesystem>
#include <system_error>

#include "headrace/copy.h"
#include "store/place.h"

namespace headrace::copy_detail {
namespace {

/// Without links, with a slash at the end; of what does not exist as far as it does.
std::string real_directory(const std::string& path) {
  std::error_code error;
  const auto absolute = std::filesystem::absolute(path, error);
  const auto real = std::filesystem::weakly_canonical(absolute, error);
  std::string text = error ? absolute.string() : real.string();
  if (!text.ends_with('/')) text += '/';
  return text;
}

/// Where its objects are, with a slash at the end.
std::string root_of(const Store& store, bool is_local) {
  return is_local ? real_directory(store.local_directory()) : place_of(store);
}

}  // namespace

Overlap::Overlap(const Store& from, const Store& to) {
  const bool is_local = !from.local_directory().empty() && !to.local_directory().empty();
  const std::string source = root_of(from, is_local);
  const std::string target = root_of(to, is_local);
  is_any_ = source.starts_with(target) || target.starts_with(source);
  if (!is_any_) return;
  if (source.size() > target.size()) to_extra_ = source.substr(target.size());
  if (target.size() > source.size()) from_extra_ = target.substr(source.size());
}

std::optional<std::string> Overlap::source_key(std::string_view to_key) const {
  if (!is_any_ || !to_key.starts_with(to_extra_)) return std::nullopt;
  return from_extra_ + std::string(to_key.substr(to_extra_.size()));
}

std::optional<std::string> Overlap::target_key(std::string_view from_key) const {
  if (!is_any_ || !from_key.starts_with(from_extra_)) return std::nullopt;
  return to_extra_ + std::string(from_key.substr(from_extra_.size()));
}

}  // namespace headrace::copy_detail

namespace headrace {

bool is_same_object(const Store& from, std::string_view from_key, const Store& to,
                    std::string_view to_key) {
  return copy_detail::Overlap(from, to).source_key(to_key) == from_key;
}

}  // namespace headrace
