// What is read of each file: of an .npy the first 4 KiB; of an .npz the end with its directory,
// and 4 KiB at each member. Longer headers cost one more read. Files are looked at some hundred at
// a time, so that opening costs a few first-byte times rather than one a file.
//
// An array must fill its file or member exactly: a size that is off by anything means a file that
// was cut off or written over.
#include "shard/formats/numpy/array_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "headrace/range_fetcher.h"
#include "shard/codec/inflate.h"
#include "shard/formats/numpy/zip_directory.h"

namespace headrace::detail {
namespace {

// Header of an array and, in a zip, the local header before it: numpy pads a header to 64 bytes,
// and the name of a member is a few more.
constexpr std::uint64_t kHeadReadBytes = 4096;

// Methods of zip members.
constexpr unsigned kStored = 0, kDeflated = 8;

constexpr std::uint64_t kMarkBytes = 4;
bool is_zip_mark(std::string_view head) {
  // A local header, or the end record of a zip without members.
  return head.starts_with("PK\3\4") || head.starts_with("PK\5\6");
}

bool is_npy_mark(std::string_view head) { return head.starts_with("\x93NUM"); }

// One read of an object, or of a member of it.
struct Want {
  std::size_t object = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;
};

class ArrayReader {
 public:
  ArrayReader(const BuildContext& context, const std::vector<ObjectInfo>& objects,
              RangeFetcher& fetcher)
      : context_(context),
        objects_(objects),
        fetcher_(fetcher),
        arrays_(objects.size()),
        is_broken_(objects.size()) {}

  Result<StoredArrays> run() {
    HEADRACE_TRY_ASSIGN(const bool is_zip, find_kind());
    HEADRACE_TRY(read_objects(is_zip));
    for (std::size_t i = 0; i < objects_.size(); ++i) {
      if (!is_broken_[i]) HEADRACE_TRY(named(i, choose(arrays_[i])));
    }
    bool is_packed = false;
    for (const auto& arrays : arrays_) {
      for (const StoredArray& array : arrays) is_packed = is_packed || array.packed.is_deflated;
    }
    return StoredArrays{is_zip, is_packed, std::move(arrays_), std::move(is_broken_)};
  }

 private:
  std::uint64_t rest_of(std::size_t object, std::uint64_t offset_bytes) const {
    const std::uint64_t size = objects_[object].size_bytes;
    return offset_bytes < size ? size - offset_bytes : 0;
  }

  // All at once; bytes come in the order of `wants`.
  Result<std::vector<std::string>> fetch(const std::vector<Want>& wants) {
    std::vector<RangeRead> reads;
    for (const Want& want : wants) {
      reads.push_back({.key = objects_[want.object].key,
                       .etag = objects_[want.object].etag,
                       .offset_bytes = want.offset_bytes,
                       .length_bytes = want.length_bytes});
    }
    return fetch_all(fetcher_, std::move(reads));
  }
  Result<std::string> fetch_one(const Want& want) {
    HEADRACE_TRY_ASSIGN(auto all, fetch({want}));
    return std::move(all[0]);
  }

  Result<std::string> mark_of(std::size_t object) {
    return fetch_one({object, 0, std::min(rest_of(object, 0), kMarkBytes)});
  }

  // Whether they are .npz files, as the first that is either says.
  Result<bool> find_kind() {
    for (; of_kind_ < objects_.size(); ++of_kind_) {
      HEADRACE_TRY_ASSIGN(const std::string head, mark_of(of_kind_));
      if (is_zip_mark(head)) return true;
      if (is_npy_mark(head)) return false;
    }
    of_kind_ = 0;
    return false;
  }

  // Of a file that begins with `head`: of the other kind, or of none.
  Status other_kind(std::string_view head) const {
    if (!is_zip_mark(head) && !is_npy_mark(head))
      return Status(Code::kCorrupt, "is neither an .npz nor an .npy file");
    return Status(
        Code::kInvalidArgument,
        fmt::format("is {}, unlike {}; open .npy and .npz files apart",
                    is_zip_mark(head) ? "an .npz file" : "no .npz file", objects_[of_kind_].key));
  }

  Status named(std::size_t object, Status status) const {
    if (status.ok()) return status;
    return std::move(status).annotate(context_.store.object_url(objects_[object].key));
  }

  Status read_objects(bool is_zip) {
    // Heads are 4 KiB, tails 64 KiB: some at a time.
    constexpr std::size_t kAtOnce = 256;
    for (std::size_t begin = 0; begin < objects_.size(); begin += kAtOnce) {
      const std::size_t end = std::min(objects_.size(), begin + kAtOnce);
      std::vector<Want> wants;
      for (std::size_t i = begin; i < end; ++i) wants.push_back(is_zip ? tail_of(i) : head_of(i));
      HEADRACE_TRY_ASSIGN(const auto found, fetch(wants));
      for (std::size_t i = begin; i < end; ++i) {
        const std::string& bytes = found[i - begin];
        Status status = is_zip ? read_zip(i, bytes) : read_file(i, bytes);
        is_broken_[i] = !status.ok();
        if (!status.ok()) arrays_[i].clear();
        HEADRACE_TRY(context_.leave_out(objects_[i], std::move(status)));
        context_.report(i + 1, objects_.size());
      }
    }
    return Status();
  }

  Want head_of(std::size_t object) const {
    return {object, 0, std::min(rest_of(object, 0), kHeadReadBytes)};
  }
  Want tail_of(std::size_t object) const {
    const std::uint64_t length = std::min(objects_[object].size_bytes, kZipTailBytes);
    return {object, objects_[object].size_bytes - length, length};
  }

  Status read_file(std::size_t object, const std::string& head) {
    if (is_zip_mark(head)) return other_kind(head);
    StoredArray array{.name = "data", .header = {}, .offset_bytes = 0};
    HEADRACE_TRY(read_header(object, head, 0, array));
    if (rest_of(object, array.offset_bytes) != array.header.data_bytes())
      return wrong_size(object, array);
    arrays_[object].push_back(std::move(array));
    return Status();
  }

  Status wrong_size(std::size_t object, const StoredArray& array) const {
    return Status(
        Code::kCorrupt,
        fmt::format("its array takes {} bytes from byte {}, the file has {}",
                    array.header.data_bytes(), array.offset_bytes, objects_[object].size_bytes));
  }

  // `head` begins at `begin`, where the .npy does; it is read again when its header is longer.
  Status read_header(std::size_t object, std::string_view head, std::uint64_t begin,
                     StoredArray& array) {
    HEADRACE_TRY_ASSIGN(const std::uint64_t bytes,
                        npy_header_bytes(std::as_bytes(std::span(head))));
    std::string again;
    if (bytes > head.size()) {
      HEADRACE_TRY_ASSIGN(again,
                          fetch_one({object, begin, std::min(bytes, rest_of(object, begin))}));
      head = again;
    }
    HEADRACE_TRY_ASSIGN(array.header, parse_npy_header(std::as_bytes(std::span(head))));
    array.offset_bytes = begin + array.header.data_offset;
    return Status();
  }

  Status read_zip(std::size_t object, const std::string& tail) {
    const std::uint64_t size = objects_[object].size_bytes;
    auto place = find_zip_directory(std::as_bytes(std::span(tail)), size);
    if (!place) {
      HEADRACE_TRY_ASSIGN(const std::string head, mark_of(object));
      return is_zip_mark(head) ? std::move(place).error() : other_kind(head);
    }
    std::string far;
    std::string_view directory = tail;
    if (place->offset_bytes >= size - tail.size()) {
      directory.remove_prefix(place->offset_bytes - (size - tail.size()));
    } else if (place->length_bytes > 0) {
      HEADRACE_TRY_ASSIGN(far, fetch_one({object, place->offset_bytes, place->length_bytes}));
      directory = far;
    }
    HEADRACE_TRY_ASSIGN(const auto members,
                        parse_zip_directory(std::as_bytes(std::span(directory)), *place, size));
    return read_members(object, members);
  }

  Status read_members(std::size_t object, const std::vector<ZipMember>& members) {
    std::vector<Want> wants;
    for (const ZipMember& member : members) {
      wants.push_back({object, member.header_offset,
                       std::min(rest_of(object, member.header_offset), kHeadReadBytes)});
    }
    HEADRACE_TRY_ASSIGN(const auto heads, fetch(wants));
    for (std::size_t i = 0; i < members.size(); ++i) {
      StoredArray array;
      array.name = members[i].name;
      if (array.name.ends_with(".npy")) array.name.resize(array.name.size() - 4);
      if (!is_wanted(array.name)) continue;
      if (Status status = read_member(object, members[i], heads[i], array); !status.ok())
        return std::move(status).annotate(fmt::format("member '{}'", members[i].name));
      arrays_[object].push_back(std::move(array));
    }
    return Status();
  }

  Status read_member(std::size_t object, const ZipMember& member, std::string_view head,
                     StoredArray& array) {
    if (member.is_encrypted) return Status(Code::kUnsupported, "encrypted");
    if (member.method != kStored && member.method != kDeflated) {
      return Status(Code::kUnsupported,
                    fmt::format("compressed with method {}; numpy.savez and savez_compressed write "
                                "what is read",
                                member.method));
    }
    if (!member.name.ends_with(".npy"))
      return Status(Code::kUnsupported, "not an array (.npy); name the others with columns=");
    HEADRACE_TRY_ASSIGN(const std::uint64_t skip,
                        zip_local_header_bytes(std::as_bytes(std::span(head))));
    const std::uint64_t begin = member.header_offset + skip;
    array.packed = {.offset_bytes = begin,
                    .stored_bytes = member.stored_bytes,
                    .raw_bytes = member.raw_bytes,
                    .crc32 = member.crc32,
                    .is_deflated = member.method == kDeflated};
    if (array.packed.is_deflated) return read_deflated(object, array);
    std::string again;
    if (skip + kNpyPrefixBytes > head.size()) {
      HEADRACE_TRY_ASSIGN(
          again, fetch_one({object, begin, std::min(rest_of(object, begin), kHeadReadBytes)}));
      head = again;
    } else {
      head.remove_prefix(skip);
    }
    HEADRACE_TRY(read_header(object, head, begin, array));
    if (array.header.data_offset + array.header.data_bytes() != member.stored_bytes ||
        rest_of(object, begin) < member.stored_bytes) {
      return wrong_size(object, array);
    }
    array.packed.header_bytes = array.header.data_offset;
    return Status();
  }

  Status read_deflated(std::size_t object, StoredArray& array) {
    PackedMember& member = array.packed;
    if (rest_of(object, member.offset_bytes) < member.stored_bytes)
      return Status(Code::kCorrupt, "lies outside the file");
    // What deflate cannot shrink grows by five bytes in 16 KiB.
    for (const std::uint64_t length : {kHeadReadBytes, kMostNpyHeaderBytes + kHeadReadBytes}) {
      HEADRACE_TRY_ASSIGN(
          const std::string stored,
          fetch_one({object, member.offset_bytes, std::min(member.stored_bytes, length)}));
      const std::string head =
          inflate_begin(std::as_bytes(std::span(stored)), kNpyPrefixBytes + kMostNpyHeaderBytes);
      if (head.size() < kNpyPrefixBytes) return Status(Code::kCorrupt, "deflate: bad or cut off");
      HEADRACE_TRY_ASSIGN(member.header_bytes, npy_header_bytes(std::as_bytes(std::span(head))));
      if (head.size() < member.header_bytes && length < member.stored_bytes) continue;
      HEADRACE_TRY_ASSIGN(array.header, parse_npy_header(std::as_bytes(std::span(head))));
      break;
    }
    member.header_bytes = array.header.data_offset;
    if (member.header_bytes + array.header.data_bytes() == member.raw_bytes) return Status();
    return Status(Code::kCorrupt,
                  fmt::format("its array takes {} bytes from byte {}, the member inflates to {}",
                              array.header.data_bytes(), member.header_bytes, member.raw_bytes));
  }

  bool is_wanted(const std::string& name) const {
    const auto& columns = context_.options.columns;
    return columns.empty() || std::find(columns.begin(), columns.end(), name) != columns.end();
  }

  Status choose(const std::vector<StoredArray>& arrays) const {
    for (const std::string& column : context_.options.columns) {
      if (std::none_of(arrays.begin(), arrays.end(),
                       [&](const StoredArray& array) { return array.name == column; })) {
        return Status(Code::kInvalidArgument, fmt::format("has no column '{}'", column));
      }
    }
    return Status();
  }

  const BuildContext& context_;
  const std::vector<ObjectInfo>& objects_;
  RangeFetcher& fetcher_;
  std::vector<std::vector<StoredArray>> arrays_;
  std::vector<bool> is_broken_;
  std::size_t of_kind_ = 0;  ///< The object that says which kind they are.
};

}  // namespace

Result<StoredArrays> read_arrays(const BuildContext& context,
                                 const std::vector<ObjectInfo>& objects) {
  HEADRACE_TRY_ASSIGN(const auto fetcher,
                      RangeFetcher::create(context.store, context.pool, {.call = context.call}));
  return ArrayReader(context, objects, *fetcher).run();
}

}  // namespace headrace::detail
