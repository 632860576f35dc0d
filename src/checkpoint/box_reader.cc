// Ranges come in any order; each is proved block by block and then copied to where it belongs, by
// the thread that takes it. A block that does not match is read once more over a connection of its
// own: bytes that were damaged on the way are not damaged in the store. Blocks that lie there
// otherwise than they were, encrypted or compressed, are opened one by one, into memory that their
// lengths alone ask for, before they are proved.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "checkpoint/block_packer.h"
#include "checkpoint/block_sealer.h"
#include "checkpoint/box_plan.h"
#include "headrace/checkpoint.h"

namespace headrace::checkpoint {
namespace {

constexpr std::uint64_t kRequestBytes = std::uint64_t{8} << 20;
/// Between two ranges: less than a first byte costs at 100 MB/s, and little of what is read.
constexpr std::uint64_t kHoleBytes = std::uint64_t{16} << 10;

std::uint64_t request_bytes(const StoreClient& client) {
  const std::uint64_t share = client.pool()->limit_bytes() / 8;
  return std::clamp(share / kSumBlockBytes * kSumBlockBytes, kSumBlockBytes, kRequestBytes);
}

Status mismatch(const std::string& what, std::uint64_t offset_bytes, std::uint64_t length_bytes,
                const char* proof = "CRC32C") {
  return Status(Code::kCorrupt, what + ": bytes " + std::to_string(offset_bytes) + " to " +
                                    std::to_string(offset_bytes + length_bytes) +
                                    " do not match their " + proof);
}

/// Whether blocks of a box's piece, from `block` on, are what the sums say.
Status prove(const std::string& what, const WantedBox& box, std::uint64_t block,
             std::span<const std::byte> bytes) {
  for (; box.has_sums && !bytes.empty(); ++block) {
    const auto some = bytes.first(std::min<std::uint64_t>(kSumBlockBytes, bytes.size()));
    if (crc32c(some) != box.sums[block])
      return mismatch(what, box.place.offset_bytes + block * kSumBlockBytes, some.size());
    bytes = bytes.subspan(some.size());
  }
  return {};
}

/// Whether the bytes of a request are what the sums say.
Status prove_all(const std::string& what, std::span<const WantedBox> boxes,
                 const BoxRequest& request, std::span<const std::byte> bytes) {
  for (const BlockRun& run : request.runs) {
    HEADRACE_TRY(prove(what, boxes[run.box], run.blocks.first,
                       bytes.subspan(run.offset_bytes - request.offset_bytes, run.length_bytes)));
  }
  return {};
}

void copy_all(std::span<const WantedBox> boxes, const BoxRequest& request,
              std::span<const std::byte> bytes) {
  for (const BlockRun& run : request.runs) {
    copy_box(boxes[run.box], run.blocks.first * kSumBlockBytes,
             bytes.subspan(run.offset_bytes - request.offset_bytes, run.length_bytes));
  }
}

/// Whether a box of an encrypted file has a tag for each block, and one of another file none.
Status check_tags(const WantedBox& box, bool is_sealed) {
  const std::uint64_t blocks = (box.place.length_bytes + kSumBlockBytes - 1) / kSumBlockBytes;
  if (box.tags.size() == (is_sealed ? blocks : 0)) return {};
  return Status(Code::kInvalidArgument, "a box of a tensor: its piece has another number of tags");
}

/// Decrypts a block that lies at `at` in the file, where it is encrypted, and decompresses it,
/// where it is compressed, to `to`; and proves it: by its tag, and any that has none, or was
/// compressed, by its sum.
Status open_block(const std::string& what, const WantedBox& box, std::uint64_t block,
                  std::uint64_t at, std::span<const std::byte> from, std::span<std::byte> to,
                  BlockSealer* sealer) {
  std::array<std::byte, kSumBlockBytes> room;
  const std::size_t stored_bytes = from.size();
  if (sealer != nullptr) {
    const auto opened = std::span(room).first(stored_bytes);
    if (!sealer->open(at, from, opened, box.tags[block]))
      return mismatch(what, at, stored_bytes, "tag");
    from = opened;
  }
  if (from.size() == to.size()) {
    std::memcpy(to.data(), from.data(), to.size());
  } else if (!unpack_block(from, to)) {
    return Status(Code::kCorrupt, what + ": bytes " + std::to_string(at) + " to " +
                                      std::to_string(at + stored_bytes) +
                                      " are no compressed block of " + std::to_string(to.size()) +
                                      " bytes");
  }
  const bool is_proved = sealer != nullptr && box.stored_bytes.empty();
  if (!is_proved && box.has_sums && crc32c(to) != box.sums[block])
    return mismatch(what, at, stored_bytes);
  return {};
}

/// Opens the blocks of a request, run by run, and copies what is proved. Runs may have blocks in
/// common: each is opened into memory of its own.
Status open_all(const std::string& what, std::span<const WantedBox> boxes,
                const BoxRequest& request, std::span<const std::byte> bytes, BlockSealer* sealer) {
  std::vector<std::byte> plain;
  for (const BlockRun& run : request.runs) {
    const WantedBox& box = boxes[run.box];
    const auto stored = bytes.subspan(run.offset_bytes - request.offset_bytes, run.length_bytes);
    plain.resize((run.blocks.end - run.blocks.first) * kSumBlockBytes);
    std::size_t from = 0;
    std::size_t to = 0;
    for (std::uint64_t block = run.blocks.first; block < run.blocks.end; ++block) {
      const std::size_t stored_bytes = stored_block_bytes(box, block);
      const std::size_t plain_bytes = block_bytes(box, block);
      HEADRACE_TRY(open_block(what, box, block, run.offset_bytes + from,
                              stored.subspan(from, stored_bytes),
                              std::span(plain).subspan(to, plain_bytes), sealer));
      from += stored_bytes;
      to += plain_bytes;
    }
    copy_box(box, run.blocks.first * kSumBlockBytes, std::span(plain).first(to));
  }
  return {};
}

/// Proves what a request has brought, and copies it.
Status take(const std::string& what, std::span<const WantedBox> boxes, const BoxRequest& request,
            std::span<const std::byte> bytes, BlockSealer* sealer) {
  const bool is_compressed = std::ranges::any_of(
      request.runs, [&](const BlockRun& run) { return !boxes[run.box].stored_bytes.empty(); });
  if (sealer != nullptr || is_compressed) return open_all(what, boxes, request, bytes, sealer);
  HEADRACE_TRY(prove_all(what, boxes, request, bytes));
  copy_all(boxes, request, bytes);
  return {};
}

/// What opens the blocks of an encrypted file, by what stands at its beginning.
Status read_seal_page(StoreClient& client, const std::string& key, const std::string& etag,
                      const std::string& what, const SealKey& seal_key, const Pause& pause,
                      std::optional<BlockSealer>& out) {
  return client.read(client.read_options(pause), [&](RangeFetcher& fetcher) -> Status {
    fetcher.start({.key = key,
                   .etag = etag,
                   .offset_bytes = 0,
                   .length_bytes = seal::kSealHeaderBytes,
                   .tag = 0});
    HEADRACE_TRY_ASSIGN(const RangeData data, fetcher.next());
    const auto bytes = data.bytes();
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    auto salt = seal::read_seal_header(text, &seal_key);
    // Whoever knows the tags has the key of the file: one that says otherwise is not that file.
    if (!salt) return Status(Code::kCorrupt, what + ": " + std::string(salt.error().message()));
    out.emplace(seal_key, *salt);
    return {};
  });
}

}  // namespace

std::uint32_t sum_of(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
  return crc32c(bytes, before);
}

Result<ReadTotals> read_boxes(StoreClient& client, const std::string& key, const std::string& etag,
                              std::span<const WantedBox> boxes, const SealKey* seal_key,
                              const Pause& pause) {
  for (const WantedBox& box : boxes) {
    HEADRACE_TRY(check_box(box));
    HEADRACE_TRY(check_tags(box, seal_key != nullptr));
  }
  const std::vector<BoxRequest> requests = plan_requests(boxes, request_bytes(client), kHoleBytes);
  const std::string what = client.store().object_url(key);
  ReadTotals totals;
  std::optional<BlockSealer> sealer;
  if (seal_key != nullptr) {
    HEADRACE_TRY(read_seal_page(client, key, etag, what, *seal_key, pause, sealer));
    totals = {.requests = 1, .bytes = seal::kSealHeaderBytes};
  }
  std::vector<bool> is_again(requests.size());
  const auto start = [&](RangeFetcher& fetcher, std::size_t i) {
    fetcher.start({.key = key,
                   .etag = etag,
                   .offset_bytes = requests[i].offset_bytes,
                   .length_bytes = requests[i].length_bytes,
                   .is_fresh = is_again[i],
                   .tag = i});
    ++totals.requests;
    totals.bytes += requests[i].length_bytes;
  };
  HEADRACE_TRY(client.read(client.read_options(pause), [&](RangeFetcher& fetcher) -> Status {
    for (std::size_t i = 0; i < requests.size(); ++i) start(fetcher, i);
    while (fetcher.pending() > 0) {
      HEADRACE_TRY_ASSIGN(const RangeData data, fetcher.next());
      const BoxRequest& request = requests[data.tag];
      Status status = take(what, boxes, request, data.bytes(), sealer ? &*sealer : nullptr);
      if (status.ok()) continue;
      if (is_again[data.tag]) return status;
      is_again[data.tag] = true;
      start(fetcher, data.tag);
    }
    return {};
  }));
  return totals;
}

Status copy_blocks(const std::string& object, std::span<const WantedBox> boxes,
                   std::span<const HeldBlocks> held) {
  for (const HeldBlocks& each : held) {
    if (each.box >= boxes.size()) return Status(Code::kInvalidArgument, object + ": no such box");
    const WantedBox& box = boxes[each.box];
    HEADRACE_TRY(check_box(box));
    const std::uint64_t from = each.first_block * kSumBlockBytes;
    if (from > box.place.length_bytes || each.bytes.size() > box.place.length_bytes - from)
      return Status(Code::kInvalidArgument, object + ": blocks outside of their piece");
    HEADRACE_TRY(prove(object, box, each.first_block, each.bytes));
    copy_box(box, from, each.bytes);
  }
  return {};
}

Status verify_file(StoreClient& client, const std::string& key, std::uint64_t size_bytes,
                   std::uint32_t crc32c_wanted, const Pause& pause) {
  const std::uint64_t part_bytes = request_bytes(client);
  std::vector<std::uint32_t> sums((size_bytes + part_bytes - 1) / part_bytes);
  const auto length_of = [&](std::uint64_t i) {
    return std::min(part_bytes, size_bytes - i * part_bytes);
  };
  HEADRACE_TRY(client.read(client.read_options(pause), [&](RangeFetcher& fetcher) -> Status {
    for (std::uint64_t i = 0; i < sums.size(); ++i) {
      fetcher.start({.key = key,
                     .etag = {},
                     .offset_bytes = i * part_bytes,
                     .length_bytes = length_of(i),
                     .tag = i});
    }
    while (fetcher.pending() > 0) {
      HEADRACE_TRY_ASSIGN(const RangeData data, fetcher.next());
      if (data.object_size_bytes != 0 && data.object_size_bytes != size_bytes) {
        return Status(Code::kCorrupt, client.store().object_url(key) + ": has " +
                                          std::to_string(data.object_size_bytes) +
                                          " bytes instead of " + std::to_string(size_bytes));
      }
      sums[data.tag] = crc32c(data.bytes());
    }
    return {};
  }));
  std::uint32_t sum = 0;
  for (std::uint64_t i = 0; i < sums.size(); ++i) sum = crc32c_combine(sum, sums[i], length_of(i));
  if (sum == crc32c_wanted) return {};
  return mismatch(client.store().object_url(key), 0, size_bytes);
}

}  // namespace headrace::checkpoint
