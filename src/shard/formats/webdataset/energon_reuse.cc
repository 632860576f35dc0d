// Samples are looked at whole, since only that shows which fields they have: the first, the last
// and others at even distances. When two have different fields, other samples may have others
// still, and nothing but a scan of everything finds those: the indexes of all tars are left alone
// then.
#include "shard/formats/webdataset/energon_reuse.h"

#include <algorithm>
#include <set>

#include "base/endian.h"
#include "shard/formats/webdataset/sample_grouper.h"
#include "shard/formats/webdataset/side_index.h"
#include "shard/formats/webdataset/tar.h"

namespace headrace::detail {
namespace {

// 8 bytes a sample: 8 million samples a tar.
constexpr std::uint64_t kMostIndexBytes = std::uint64_t{64} << 20;
// Samples larger than this are no little look any more.
constexpr std::uint64_t kMostLookBytes = std::uint64_t{4} << 20;
constexpr std::size_t kAllLooks = 64;
constexpr std::size_t kLeastLooks = 4;
// Reads of one tar: its looks, and the block behind its last sample.
constexpr std::uint64_t kMostTags = kAllLooks + 1;

bool is_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// The fields of a run of members when it is one sample that begins where the run does; else none.
std::set<std::string> fields_of(std::span<const std::byte> run) {
  SampleGrouper grouper;
  TarNameBuffer buffer;
  std::uint64_t offset = 0;
  while (offset < run.size()) {
    auto parsed = parse_tar_member(run.subspan(offset), buffer);
    if (!parsed || parsed->step != TarStep::kMember || parsed->member.globals.sets_name ||
        parsed->member.globals.sets_size || parsed->member.end > run.size() - offset ||
        !grouper.add(parsed->member, offset).ok()) {
      return {};
    }
    offset += parsed->member.end;
  }
  if (grouper.sample_count() != 1 || grouper.bounds()[0] != 0) return {};
  return {grouper.suffixes().begin(), grouper.suffixes().end()};
}

class Finder {
 public:
  Finder(const BuildContext& context, const std::vector<ObjectInfo>& objects, RangeFetcher& fetcher)
      : context_(context),
        objects_(objects),
        fetcher_(fetcher),
        most_look_bytes_(context.read_bytes(kMostLookBytes)) {
    found_.bounds.resize(objects.size());
  }

  Result<EnergonIndexes> run() {
    HEADRACE_TRY(read_indexes());
    for (std::size_t i = 0; i < objects_.size(); ++i)
      if (found_.bounds[i]) look(i);
    while (fetcher_.pending() > 0) {
      HEADRACE_TRY_ASSIGN(const RangeData data, fetcher_.next());
      take(data.tag / kMostTags, data.tag % kMostTags, data.bytes());
    }
    if (!are_alike_) std::fill(found_.bounds.begin(), found_.bounds.end(), std::nullopt);
    found_.suffixes.assign(fields_.begin(), fields_.end());
    return std::move(found_);
  }

 private:
  Status read_indexes() {
    const auto key_of = [](const std::string& key) {
      return key.ends_with(".tar") ? key + ".idx" : std::string();
    };
    const auto take = [&](std::size_t i, std::span<const std::byte> bytes) {
      found_.bounds[i] = parse_energon_index(bytes, objects_[i].size_bytes);
    };
    const std::uint64_t most = context_.read_bytes(kMostIndexBytes);
    return read_side_indexes(context_, objects_, fetcher_, most, key_of, take);
  }

  // The first sample, the last, and others between them.
  void look(std::size_t i) {
    const std::vector<std::uint64_t>& bounds = *found_.bounds[i];
    const std::size_t last = bounds.size() - 2;
    const std::size_t wanted = std::max(kLeastLooks, kAllLooks / objects_.size());
    const std::size_t count = std::min(wanted, last + 1);
    for (std::size_t l = 0; l < count; ++l) {
      const std::size_t sample = count == 1 ? 0 : l * last / (count - 1);
      const std::uint64_t length = bounds[sample + 1] - bounds[sample];
      if (length > most_look_bytes_) return found_.bounds[i].reset();
      start(i, bounds[sample], length, l);
    }
    const std::uint64_t rest = objects_[i].size_bytes - bounds.back();
    if (rest > 0) start(i, bounds.back(), std::min(rest, kTarBlockBytes), kAllLooks);
  }

  void start(std::size_t i, std::uint64_t offset, std::uint64_t length, std::uint64_t look) {
    fetcher_.start({.key = objects_[i].key,
                    .etag = objects_[i].etag,
                    .offset_bytes = offset,
                    .length_bytes = length,
                    .tag = i * kMostTags + look});
  }

  void take(std::size_t i, std::uint64_t look, std::span<const std::byte> bytes) {
    if (!found_.bounds[i]) return;
    if (look == kAllLooks) {
      if (!is_zero(bytes)) found_.bounds[i].reset();
      return;
    }
    std::set<std::string> fields = fields_of(bytes);
    if (fields.empty()) return found_.bounds[i].reset();
    if (fields_.empty()) fields_ = fields;
    are_alike_ = are_alike_ && fields == fields_;
  }

  const BuildContext& context_;
  const std::vector<ObjectInfo>& objects_;
  RangeFetcher& fetcher_;
  const std::uint64_t most_look_bytes_;
  EnergonIndexes found_;
  std::set<std::string> fields_;
  bool are_alike_ = true;
};

}  // namespace

std::optional<std::vector<std::uint64_t>> parse_energon_index(std::span<const std::byte> index,
                                                              std::uint64_t size_bytes) {
  if (index.size() % sizeof(std::uint64_t) != 0 || index.size() < 2 * sizeof(std::uint64_t))
    return std::nullopt;
  std::vector<std::uint64_t> bounds;
  bounds.reserve(index.size() / sizeof(std::uint64_t));
  for (std::size_t at = 0; at < index.size(); at += sizeof(std::uint64_t)) {
    const auto bound = load_le<std::uint64_t>(index.data() + at);
    // One that begins further on may lack samples: what lies before the first is not looked at.
    const bool ascends = bounds.empty() ? bound == 0 : bound > bounds.back();
    if (!ascends || bound > size_bytes || bound % kTarBlockBytes != 0) return std::nullopt;
    bounds.push_back(bound);
  }
  return bounds;
}

Result<EnergonIndexes> find_energon_indexes(const BuildContext& context,
                                            const std::vector<ObjectInfo>& objects) {
  if (context.side_files.empty()) {
    EnergonIndexes none;
    none.bounds.resize(objects.size());
    return none;
  }
  HEADRACE_TRY_ASSIGN(const auto fetcher,
                      RangeFetcher::create(context.store, context.pool, {.call = context.call}));
  return Finder(context, objects, *fetcher).run();
}

}  // namespace headrace::detail
