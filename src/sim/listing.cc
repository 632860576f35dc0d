// Keys come out in the order of S3, byte by byte, without sorting a whole bucket: names in a
// folder are sorted with a '/' behind those of folders, so that walking them depth first gives the
// keys in order. Escaped keys, which lie elsewhere, are sorted apart and put in between
// (emit_escaped_before()). A page ends as soon as it is full, and the next one walks only into
// folders that can hold something behind `after`.
#include "sim/listing.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <utility>

#include "sim/key_path.h"

namespace headrace::sim {
namespace {

// Small folders are read anew each time; entries are dropped all at once beyond the limit (about 60
// bytes each).
constexpr std::size_t kMinCachedEntries = 256;
constexpr std::size_t kMaxCachedEntries = 4'000'000;
// A folder changed less than this ago may change again within the same time stamp. Linux stamps
// with its tick, at most 10 ms.
constexpr std::int64_t kSettledNs = 100'000'000;

std::int64_t wall_ns() {
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

FolderCache::Entries read_folder(const std::string& path) {
  FolderCache::Entries entries;
  DIR* dir = ::opendir(path.c_str());
  if (dir == nullptr) return entries;
  while (const dirent* item = ::readdir(dir)) {
    if (item->d_name[0] == '.') continue;
    bool is_folder = item->d_type == DT_DIR;
    if (item->d_type == DT_LNK || item->d_type == DT_UNKNOWN) {
      struct stat st;
      if (::stat((path + '/' + item->d_name).c_str(), &st) != 0) continue;
      is_folder = S_ISDIR(st.st_mode);
      if (!is_folder && !S_ISREG(st.st_mode)) continue;
    } else if (!is_folder && item->d_type != DT_REG) {
      continue;
    }
    entries.push_back({item->d_name});
    if (is_folder) entries.back().name += '/';
  }
  ::closedir(dir);
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return entries;
}

/// Keys that are stored escaped, sorted, with their paths.
std::vector<std::pair<std::string, std::string>> escaped_keys(const std::string& top,
                                                              std::string_view prefix) {
  std::vector<std::pair<std::string, std::string>> keys;
  std::error_code error;
  std::filesystem::recursive_directory_iterator walk(top, error);
  for (; !error && walk != std::filesystem::recursive_directory_iterator(); walk.increment(error)) {
    const std::string path = walk->path();
    std::error_code ignored;
    if (!walk->is_regular_file(ignored)) continue;
    auto key = key_of_escaped_path(std::string_view(path).substr(top.size() + 1));
    if (key && key->starts_with(prefix)) keys.emplace_back(*std::move(key), path);
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

/// Walks the tree in key order and fills one page.
class Lister {
 public:
  Lister(const Storage& storage, FolderCache& folders, std::string_view bucket,
         const ListQuery& query)
      : folders_(folders),
        query_(query),
        storage_(storage),
        bucket_(bucket),
        skip_prefix_(prefix_holding_after(query)) {
    escaped_ = escaped_keys(storage.hidden_path(bucket, "keys"), query.prefix);
  }

  Listing run() {
    if (query_.max_count == 0) return {};
    // Start in the deepest folder that holds the whole prefix.
    const std::size_t slash = query_.prefix.rfind('/');
    const std::string base =
        slash == std::string::npos ? std::string() : query_.prefix.substr(0, slash + 1);
    if (base.empty()) {
      walk(storage_.bucket_path(bucket_), "");
    } else if (is_path_key(std::string_view(base).substr(0, base.size() - 1))) {
      walk(storage_.natural_path(bucket_, base.substr(0, base.size() - 1)), base);
    }
    if (!is_full_) emit_escaped_before({});
    return std::move(page_);
  }

 private:
  /// The common prefix that `after` is or lies in: it is not greater, so S3 does not list it, even
  /// when keys behind `after` begin with it. Empty: none. The delimiter is looked for behind the
  /// prefix: "dir/" is a key where the prefix is "dir/".
  static std::string prefix_holding_after(const ListQuery& query) {
    if (query.delimiter.empty() || !query.after.starts_with(query.prefix)) return {};
    const std::size_t at = query.after.find(query.delimiter, query.prefix.size());
    if (at == std::string::npos) return {};
    return query.after.substr(0, at + query.delimiter.size());
  }

  bool is_wanted(std::string_view key) const {
    if (!key.starts_with(query_.prefix) || key <= query_.after) return false;
    return skip_prefix_.empty() || !key.starts_with(skip_prefix_);
  }

  /// True when no key that begins with `folder` can be wanted.
  bool is_outside(std::string_view folder) const {
    if (!folder.starts_with(query_.prefix) && !query_.prefix.starts_with(folder)) return true;
    if (!skip_prefix_.empty() && folder.starts_with(skip_prefix_)) return true;
    return folder < query_.after && !query_.after.starts_with(folder);
  }

  bool is_page_full() {
    if (page_.objects.size() + page_.common_prefixes.size() < query_.max_count) return false;
    page_.is_truncated = is_full_ = true;
    return true;
  }

  /// Walks folders once on any path: symbolic links may lead back up.
  class Visit {
   public:
    Visit(std::vector<std::pair<dev_t, ino_t>>& stack, const std::string& path) : stack_(stack) {
      struct stat st;
      if (::stat(path.c_str(), &st) != 0) return;
      const std::pair<dev_t, ino_t> id(st.st_dev, st.st_ino);
      is_new_ = std::find(stack.begin(), stack.end(), id) == stack.end();
      if (is_new_) stack.push_back(id);
    }
    ~Visit() {
      if (is_new_) stack_.pop_back();
    }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    bool is_new() const noexcept { return is_new_; }

   private:
    std::vector<std::pair<dev_t, ino_t>>& stack_;
    bool is_new_ = false;
  };

  void walk(const std::string& path, const std::string& prefix) {
    const Visit visit(visiting_, path);
    if (!visit.is_new()) return;
    const auto entries = folders_.read(path);
    for (const FolderCache::Entry& entry : *entries) {
      const std::string key = prefix + entry.name;
      if (!entry.is_folder()) {
        if (!is_wanted(key)) continue;
        emit_escaped_before(key);
        if (!is_full_) emit(key, path + '/' + entry.name);
      } else if (!is_outside(key)) {
        const std::string folder = path + '/' + entry.name.substr(0, entry.name.size() - 1);
        if (query_.delimiter == "/" && key.size() > query_.prefix.size() &&
            key.starts_with(query_.prefix)) {
          if (!has_objects(folder)) continue;
          emit_escaped_before(key);
          if (!is_full_) emit_prefix(key);
        } else {
          walk(folder, key);
        }
      }
      if (is_full_) return;
    }
  }

  bool has_objects(const std::string& path) {
    const Visit visit(visiting_, path);
    if (!visit.is_new()) return false;
    const auto entries = folders_.read(path);
    for (const FolderCache::Entry& entry : *entries) {
      if (!entry.is_folder() ||
          has_objects(path + '/' + entry.name.substr(0, entry.name.size() - 1))) {
        return true;
      }
    }
    return false;
  }

  /// Empty `key`: all that are left.
  void emit_escaped_before(std::string_view key) {
    for (; escaped_index_ < escaped_.size() && !is_full_; ++escaped_index_) {
      const auto& [escaped, path] = escaped_[escaped_index_];
      if (!key.empty() && escaped >= key) return;
      if (is_wanted(escaped)) emit(escaped, path);
    }
  }

  void emit(const std::string& key, const std::string& path) {
    if (!query_.delimiter.empty()) {
      const std::size_t at = key.find(query_.delimiter, query_.prefix.size());
      if (at != std::string::npos) return emit_prefix(key.substr(0, at + query_.delimiter.size()));
    }
    FileInfo info;
    if (!stat_object(path, info) || is_page_full()) return;
    page_.objects.push_back({key, info});
    page_.last = key;
    page_.last_is_prefix = false;
  }

  void emit_prefix(const std::string& prefix) {
    if (!page_.common_prefixes.empty() && page_.common_prefixes.back() == prefix) return;
    if (is_page_full()) return;
    page_.common_prefixes.push_back(prefix);
    page_.last = prefix;
    page_.last_is_prefix = true;
  }

  FolderCache& folders_;
  const ListQuery& query_;
  const Storage& storage_;
  const std::string bucket_;
  const std::string skip_prefix_;
  std::vector<std::pair<std::string, std::string>> escaped_;
  std::size_t escaped_index_ = 0;
  Listing page_;
  std::vector<std::pair<dev_t, ino_t>> visiting_;
  bool is_full_ = false;
};

}  // namespace

std::shared_ptr<const FolderCache::Entries> FolderCache::read(const std::string& path) {
  struct stat st;
  if (::stat(path.c_str(), &st) != 0) return std::make_shared<const Entries>();
  const FileInfo info = info_of(st);
  {
    const MutexLock lock(mutex_);
    const auto found = cached_.find(path);
    if (found != cached_.end() && found->second.modified_ns == info.modified_ns &&
        found->second.inode == info.inode) {
      return found->second.entries;
    }
  }
  // Asked for with the time stamp of before the folder was read: a change during the reading makes
  // the stamp newer, and the next look reads again.
  const bool is_settled = info.modified_ns + kSettledNs < wall_ns();
  auto entries = std::make_shared<const Entries>(read_folder(path));
  if (!is_settled || entries->size() < kMinCachedEntries) return entries;
  const MutexLock lock(mutex_);
  if (entry_count_ + entries->size() > kMaxCachedEntries) {
    cached_.clear();
    entry_count_ = 0;
  }
  Cached& cached = cached_[path];
  if (cached.entries) entry_count_ -= cached.entries->size();
  cached = {info.modified_ns, info.inode, entries};
  entry_count_ += entries->size();
  return entries;
}

Listing list_objects(const Storage& storage, FolderCache& folders, std::string_view bucket,
                     const ListQuery& query) {
  return Lister(storage, folders, bucket, query).run();
}

}  // namespace headrace::sim
