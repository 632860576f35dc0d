// Who may read a cache: keys and modes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/temporary_directory.h"
#include "tier/disk_cache.h"

namespace headrace::tier {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::shared_ptr<const SealKey> key_of(int first) {
  return std::make_shared<const SealKey>(SealKey::Bytes{static_cast<std::byte>(first)});
}

ExtentInfo info_of(const std::string& url, std::uint64_t length) {
  return {.name = {object_id("h:1", url, "e"), 0, length},
          .object_size_bytes = length,
          .url = url,
          .etag = "e"};
}

class CacheAccess : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kSize = 100'000;

  CacheOptions options(std::shared_ptr<const SealKey> key = nullptr,
                       bool is_for_reads = true) const {
    return {.directory = place_, .key = std::move(key), .is_for_reads = is_for_reads};
  }
  static std::shared_ptr<DiskCache> open(const CacheOptions& options) {
    auto cache = DiskCache::create(options);
    EXPECT_TRUE(cache) << cache.error().message();
    return cache ? *std::move(cache) : nullptr;
  }
  static std::string message(const CacheOptions& options, Code code) {
    auto cache = DiskCache::create(options);
    if (cache) return "a cache";
    EXPECT_EQ(cache.error().code(), code) << cache.error().message();
    return std::string(cache.error().message());
  }
  static void keep(DiskCache& cache, const std::string& url) {
    cache.keep(info_of(url, kSize), std::vector<std::byte>(kSize, std::byte{42}), {}, Slab());
    cache.flush();
  }
  static bool has(DiskCache& cache, const std::string& url) {
    std::vector<std::byte> out(kSize);
    bool is_found = false;
    cache.read(info_of(url, kSize), out, TimePoint::max(),
               [&](Tier::Found found, std::uint64_t) { is_found = found == Tier::Found::kAll; });
    return is_found && out == std::vector<std::byte>(kSize, std::byte{42});
  }
  std::vector<std::filesystem::path> paths() const {
    std::vector<std::filesystem::path> out{place_};
    for (const auto& entry : std::filesystem::recursive_directory_iterator(place_))
      out.push_back(entry.path());
    return out;
  }
  std::vector<std::filesystem::path> extents() const {
    std::vector<std::filesystem::path> out;
    for (const auto& path : paths()) {
      if (parse_file_name(path.filename().string())) out.push_back(path);
    }
    return out;
  }
  static unsigned mode(const std::filesystem::path& path) {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0);
    return info.st_mode & 07777;
  }

  TemporaryDirectory directory_;
  const std::string place_ = directory_.path() + "/cache";
};

// --- keys ---

TEST_F(CacheAccess, TheKeyReadsWhatItHasWritten) {
  const auto key = key_of(1);
  keep(*open(options(key)), "s3://b/k");
  EXPECT_TRUE(has(*open(options(key)), "s3://b/k"));
  EXPECT_EQ(open(options(key))->usage()->key_id, key->id());
}

TEST_F(CacheAccess, AnotherKeyIsToldFromNone) {
  const auto key = key_of(1), other = key_of(2);
  keep(*open(options(key)), "s3://b/k");
  EXPECT_THAT(message(options(other), Code::kDenied),
              AllOf(HasSubstr(place_), HasSubstr(key->id()), HasSubstr(other->id())));
  EXPECT_THAT(message(options(), Code::kDenied),
              AllOf(HasSubstr(key->id()), HasSubstr("cache_key=")));
  EXPECT_TRUE(has(*open(options(key)), "s3://b/k")) << "and nothing was lost";
}

TEST_F(CacheAccess, AnErrorOfTheKeyIsOneWhileItIsOpenToo) {
  const auto cache = open(options(key_of(1)));
  EXPECT_THAT(message(options(key_of(2)), Code::kDenied), HasSubstr("encrypted under"));
  EXPECT_THAT(message(options(), Code::kDenied), HasSubstr("encrypted under"));
  const auto looked_at = open(options(nullptr, false));
  EXPECT_THAT(message(options(), Code::kDenied), HasSubstr("encrypted under"));
  EXPECT_EQ(open(options(key_of(1))), cache);
}

TEST_F(CacheAccess, ADirectoryThatIsNotEncryptedStaysSo) {
  { const auto cache = open(options()); }
  EXPECT_THAT(message(options(key_of(1)), Code::kInvalidArgument), HasSubstr("without a key"));
  // Nor when nothing is left but its files.
  keep(*open(options()), "s3://b/k");
  std::filesystem::remove(place_ + "/v1/ledger");
  EXPECT_THAT(message(options(key_of(1)), Code::kInvalidArgument), HasSubstr("without a key"));
  EXPECT_TRUE(has(*open(options()), "s3://b/k"));
}

TEST_F(CacheAccess, ADamagedKeyIdIsAnError) {
  const auto key = key_of(1);
  { const auto cache = open(options(key)); }
  const std::string path = place_ + "/v1/key-id";
  for (const std::string& content :
       {std::string(), std::string("AES-256-GCM 1 12"), "AES-256-GCM 2 " + key->id() + "\n"}) {
    std::ofstream(path, std::ios::binary) << content;
    EXPECT_THAT(message(options(key), Code::kCorrupt), HasSubstr("key-id"));
    EXPECT_THAT(message(options(), Code::kCorrupt), HasSubstr("key-id"));
  }
}

TEST_F(CacheAccess, FilesOfAnotherKindAreFetchedAgain) {
  const auto key = key_of(1);
  keep(*open(options(key)), "s3://b/k");
  CacheOptions plain = options();
  plain.directory = directory_.path() + "/plain";
  keep(*open(plain), "s3://b/k");
  const auto sealed_file = extents().at(0);
  const auto plain_file = std::filesystem::path(plain.directory) / "v1" /
                          sealed_file.parent_path().filename() / sealed_file.filename();
  const auto swap = directory_.path() + "/swap";
  std::filesystem::rename(sealed_file, swap);
  std::filesystem::rename(plain_file, sealed_file);
  std::filesystem::rename(swap, plain_file);
  EXPECT_FALSE(has(*open(plain), "s3://b/k"));
  EXPECT_FALSE(has(*open(options(key)), "s3://b/k"));
  EXPECT_FALSE(std::filesystem::exists(sealed_file));
  EXPECT_FALSE(std::filesystem::exists(plain_file));
}

TEST_F(CacheAccess, IsLookedAtWithoutItsKey) {
  const auto key = key_of(1);
  {
    const auto cache = open(options(key));
    keep(*cache, "s3://b/k");
    keep(*cache, "s3://b/l");
  }
  const auto looked_at = open(options(nullptr, false));
  EXPECT_EQ(looked_at->usage()->extent_count, 2U);
  EXPECT_EQ(looked_at->usage()->key_id, key->id());
  std::vector<std::string> urls;
  EXPECT_TRUE(looked_at->list([&](const CachedExtent& e) { urls.push_back(e.url); }).ok());
  EXPECT_THAT(urls, ::testing::UnorderedElementsAre("s3://b/k", "s3://b/l"));
  EXPECT_EQ(looked_at->verify(nullptr)->broken_count, 0U);
  std::filesystem::resize_file(extents().at(0), kHeaderBytes + 10);
  EXPECT_EQ(looked_at->verify(nullptr)->broken_count, 1U);
  EXPECT_EQ(open(options(key, false))->verify(nullptr)->broken_count, 0U);
  EXPECT_GT(*looked_at->remove("s3://b/"), 0U);
  EXPECT_TRUE(extents().empty());
}

// --- modes ---

class Umask {
 public:
  explicit Umask(mode_t mask) : before_(::umask(mask)) {}
  ~Umask() { ::umask(before_); }

 private:
  const mode_t before_;
};

/// Everything that a cache makes.
void use(DiskCache& cache) {
  cache.keep(info_of("s3://b/k", 100'000), std::vector<std::byte>(100'000), {}, Slab());
  cache.keep(info_of("s3://b/long", 400'000), std::vector<std::byte>(400'000), {}, Slab());
  cache.flush();
  EXPECT_TRUE(cache.pin("s3://b/").ok());
}

TEST_F(CacheAccess, IsItsOwnersAlone) {
  const Umask mask(0);
  const auto cache = open(options(key_of(1)));
  use(*cache);
  const auto plan = cache->publish_plan({{info_of("s3://b/k", 10).name, 1, 2}});
  for (const auto& path : paths())
    EXPECT_EQ(mode(path), std::filesystem::is_directory(path) ? 0700U : 0600U) << path;
}

TEST_F(CacheAccess, IsItsGroupsWhateverTheUmask) {
  const Umask mask(077);
  CacheOptions shared = options(key_of(1));
  shared.is_group_shared = true;
  const auto cache = open(shared);
  use(*cache);
  const auto plan = cache->publish_plan({{info_of("s3://b/k", 10).name, 1, 2}});
  ASSERT_EQ(extents().size(), 2U);
  for (const auto& path : paths()) {
    EXPECT_EQ(mode(path), std::filesystem::is_directory(path) ? 02770U : 0660U) << path;
    EXPECT_EQ(path.string().find(".new-"), std::string::npos) << path;
  }
}

TEST_F(CacheAccess, ASlashAtTheEndOfItsNameChangesNothing) {
  for (const mode_t bits : {mode_t{022}, mode_t{077}}) {
    for (const bool is_shared : {false, true}) {
      const Umask mask(bits);
      CacheOptions named = options();
      named.directory += is_shared ? "//" : "/";
      named.is_group_shared = is_shared;
      { const auto cache = open(named); }
      EXPECT_EQ(mode(place_), is_shared ? 02770U : 0700U);
      std::filesystem::remove_all(place_);
    }
  }
}

TEST_F(CacheAccess, WhoCameLaterSharesItToo) {
  const Umask mask(077);
  CacheOptions shared = options();
  shared.is_group_shared = true;
  { const auto cache = open(shared); }
  use(*open(options()));
  for (const auto& path : paths())
    EXPECT_EQ(mode(path), std::filesystem::is_directory(path) ? 02770U : 0660U) << path;
}

TEST_F(CacheAccess, AnOwnersDirectoryIsNotSharedLater) {
  { const auto cache = open(options()); }
  CacheOptions shared = options();
  shared.is_group_shared = true;
  EXPECT_THAT(message(shared, Code::kInvalidArgument), HasSubstr("not shared with its group"));
}

// Another user of the group reads, counts as a reader, adds and evicts.
TEST_F(CacheAccess, AnotherUserOfTheGroupUsesIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be two users";
  constexpr gid_t kGroup = 54'321;
  std::filesystem::create_directory(place_);
  ASSERT_EQ(::chown(place_.c_str(), 0, kGroup), 0);
  ASSERT_EQ(::chmod(place_.c_str(), 02770), 0);
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
  CacheOptions shared = options();
  shared.is_group_shared = true;
  keep(*open(shared), "s3://b/k");
  const pid_t other = ::fork();
  if (other == 0) {
    ::umask(077);
    if (::setgroups(0, nullptr) != 0 || ::setgid(kGroup) != 0 || ::setuid(54'322) != 0) ::_exit(2);
    auto cache = DiskCache::create(options());
    if (!cache) ::_exit(3);
    if (!has(**cache, "s3://b/k")) ::_exit(4);
    keep(**cache, "s3://b/other");
    if (!has(**cache, "s3://b/other")) ::_exit(5);
    struct stat info {};
    for (const auto& path : extents()) {
      if (::stat(path.c_str(), &info) != 0 || info.st_gid != kGroup) ::_exit(6);
      if (info.st_uid == 0 && info.st_mtim.tv_sec == 0) ::_exit(7);  // It was read again.
    }
    const auto gone = (*cache)->remove("s3://b/k");
    ::_exit(gone && *gone > 0 ? 0 : 8);
  }
  int state = 0;
  ASSERT_EQ(::waitpid(other, &state, 0), other);
  ASSERT_TRUE(WIFEXITED(state));
  EXPECT_EQ(WEXITSTATUS(state), 0);
  EXPECT_FALSE(has(*open(options()), "s3://b/k"));
  EXPECT_TRUE(has(*open(options()), "s3://b/other"));
}

}  // namespace
}  // namespace headrace::tier
