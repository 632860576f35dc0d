// An index that somebody else wrote is a hint until it was compared with its tar: the first and
// the last member must stand where it says, with the name or suffix and the size that it says, and
// behind the last there must be zeros or the end of the file. Three reads of a block a tar,
// instead of the whole tar; all tars at the same time. An index that does not fit is no error: the
// tar is scanned as if it had none.
//
// Indexes of tars that were rewritten are what this finds: a size or a member at either end has
// then changed as a rule.
#include "shard/formats/webdataset/dali_reuse.h"

#include <algorithm>
#include <string>

#include "shard/formats/webdataset/member_name.h"
#include "shard/formats/webdataset/side_index.h"
#include "shard/formats/webdataset/tar.h"

namespace headrace::detail {
namespace {

// An index line takes about 40 bytes a member: a million members.
constexpr std::uint64_t kMostIndexBytes = std::uint64_t{64} << 20;

// Reads of one tar, in the order of their tags.
enum Look : std::uint64_t { kFirst, kLast, kTail, kLooks };

bool is_member(std::span<const std::byte> header, const DaliMember& member) {
  TarNameBuffer buffer;
  auto parsed = parse_tar_member(header, buffer);
  if (!parsed || parsed->step != TarStep::kMember || !parsed->member.is_regular ||
      parsed->member.data_bytes != member.data_bytes) {
    return false;
  }
  if (!member.name.empty()) return parsed->member.name == member.name;
  const auto split = split_member_name(parsed->member.name);
  return split && is_same_suffix(split->suffix, member.suffix);
}

class Finder {
 public:
  Finder(const BuildContext& context, const std::vector<ObjectInfo>& objects, RangeFetcher& fetcher)
      : context_(context), objects_(objects), fetcher_(fetcher), found_(objects.size()) {}

  Result<std::vector<std::optional<DaliIndex>>> run() {
    HEADRACE_TRY(read_indexes());
    for (std::size_t i = 0; i < objects_.size(); ++i)
      if (found_[i]) look(i);
    while (fetcher_.pending() > 0) {
      HEADRACE_TRY_ASSIGN(const RangeData data, fetcher_.next());
      const std::size_t i = data.tag / kLooks;
      if (found_[i] && !is_right(*found_[i], data.tag % kLooks, data.bytes())) found_[i].reset();
    }
    return std::move(found_);
  }

 private:
  Status read_indexes() {
    const auto key_of = [](const std::string& key) {
      return key.substr(0, key.rfind('.')) + ".idx";
    };
    const auto take = [&](std::size_t i, std::span<const std::byte> bytes) {
      auto index = parse_dali_index({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                                    objects_[i].size_bytes);
      if (index) found_[i] = *std::move(index);
    };
    const std::uint64_t most = std::min(kMostIndexBytes, context_.read_bytes(kMostIndexBytes));
    return read_side_indexes(context_, objects_, fetcher_, most, key_of, take);
  }

  void look(std::size_t i) {
    const DaliIndex& index = *found_[i];
    const std::uint64_t offsets[] = {index.first.data_begin - kTarBlockBytes,
                                     index.last.data_begin - kTarBlockBytes, index.bounds.back()};
    for (std::uint64_t l = 0; l < kLooks; ++l) {
      const std::uint64_t rest = objects_[i].size_bytes - offsets[l];
      if (rest == 0) continue;  // A tar without an end mark.
      fetcher_.start({.key = objects_[i].key,
                      .etag = objects_[i].etag,
                      .offset_bytes = offsets[l],
                      .length_bytes = std::min(rest, kTarBlockBytes),
                      .tag = i * kLooks + l});
    }
  }

  static bool is_right(const DaliIndex& index, std::uint64_t look,
                       std::span<const std::byte> bytes) {
    if (look == kFirst) return is_member(bytes, index.first);
    if (look == kLast) return is_member(bytes, index.last);
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
  }

  const BuildContext& context_;
  const std::vector<ObjectInfo>& objects_;
  RangeFetcher& fetcher_;
  std::vector<std::optional<DaliIndex>> found_;
};

}  // namespace

Result<std::vector<std::optional<DaliIndex>>> find_dali_indexes(
    const BuildContext& context, const std::vector<ObjectInfo>& objects) {
  if (context.side_files.empty()) return std::vector<std::optional<DaliIndex>>(objects.size());
  HEADRACE_TRY_ASSIGN(const auto fetcher,
                      RangeFetcher::create(context.store, context.pool, {.call = context.call}));
  return Finder(context, objects, *fetcher).run();
}

}  // namespace headrace::detail
