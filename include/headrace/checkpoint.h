#pragma once
/// \file
/// Checkpoint data files: pieces of tensors written to a store in one pass, with sums, and read
/// back proved. docs/design/0049.
///
/// A data file is a safetensors file (docs of the safetensors package, format of 0.8): u64
/// little-endian length of the header, the header as JSON, padded with spaces so that the data
/// begins at a multiple of 4096 bytes, and the pieces without holes. Its sums lie elsewhere: a
/// CRC32C for each kSumBlockBytes of each piece, the last block of a piece being shorter.
///
/// An encrypted data file (docs/design/0057) has a page with the key's id and a salt in place of
/// the header, and the blocks of its pieces encrypted where they lie; their tags lie with the sums,
/// which are those of the bytes before that.
///
/// A compressed data file (docs/design/0058) has a page that says so in place of the header, and
/// the blocks of its pieces one after the other, each as few bytes as it takes; how many lies with
/// the sums, which are those of the bytes before that. It may be encrypted: each block as it is
/// then.
///
/// Place: src/checkpoint/, over StoreClient. Who owns which piece, manifests and commits are the
/// caller's (python/headrace/checkpoint/).
///
/// Threads: each object has one owner at a time.
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/range_fetcher.h"
#include "headrace/seal_key.h"
#include "headrace/status.h"
#include "headrace/store_client.h"

namespace headrace::checkpoint {

/// Bytes of a piece that have a sum of their own: what has to be read to prove one byte.
inline constexpr std::uint64_t kSumBlockBytes = std::uint64_t{16} << 10;

/// Proves a block of an encrypted file.
using SealTag = std::array<std::byte, 16>;

/// An array of one file: a tensor, or the part of one that a rank has.
struct Piece {
  std::string name;                  ///< Once in a file; not "__metadata__".
  std::string dtype;                 ///< As safetensors spells it: "F32", "BF16", "U8", ...
  std::vector<std::uint64_t> shape;  ///< Row-major; empty: one element.
};

/// Where a piece lies in its file.
struct PlacedPiece {
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;
};

/// CRC32C of `bytes`, or of what has the sum `before` and them. Pure.
std::uint32_t sum_of(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

/// Bits of an element of a safetensors dtype. Errors: kInvalidArgument.
Result<std::uint32_t> bits_of_dtype(std::string_view dtype);

/// What the file of some pieces looks like. Pure.
class DataLayout {
 public:
  /// `metadata` goes into the header as it is. Errors: kInvalidArgument (a name twice, a dtype that
  /// is not known, elements that do not end on a byte, a header above 100,000,000 bytes).
  static Result<DataLayout> make(std::vector<Piece> pieces,
                                 const std::map<std::string, std::string>& metadata);
  /// Of an encrypted file, with a new salt. Errors: those of make() that are not the header's.
  static Result<DataLayout> make_sealed(std::vector<Piece> pieces,
                                        std::shared_ptr<const SealKey> key);
  /// Of a compressed file, with a new salt where there is a key: of what is staged for it, which
  /// has holes. Errors: those of make_sealed().
  static Result<DataLayout> make_compressed(std::vector<Piece> pieces,
                                            std::shared_ptr<const SealKey> key);

  /// The file up to its first data.
  const std::string& header() const noexcept { return header_; }
  const std::vector<Piece>& pieces() const noexcept { return pieces_; }
  /// Of each piece, as given. Of a compressed file: where it is staged, so that no block lies
  /// across a multiple of kSumBlockBytes; where it lies is known when it is written
  /// (DataFile::places).
  const std::vector<PlacedPiece>& places() const noexcept { return places_; }
  /// Pieces in the order in which they lie: wide elements first, so that each is aligned.
  const std::vector<std::uint32_t>& order() const noexcept { return order_; }
  /// Of a compressed file the most that it can have.
  std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  bool is_compressed() const noexcept { return is_compressed_; }
  /// Nullptr: the file is not encrypted.
  const SealKey* key() const noexcept { return key_.get(); }

 private:
  /// Places the pieces from size_bytes_ on; set_header() puts that before them.
  Status set_pieces(std::vector<Piece> pieces);
  std::uint64_t next_place(std::uint64_t length_bytes) const noexcept;
  void set_header(std::string header);

  std::shared_ptr<const SealKey> key_;
  std::string header_;
  std::vector<Piece> pieces_;
  std::vector<PlacedPiece> places_;
  std::vector<std::uint32_t> order_;
  std::uint64_t size_bytes_ = 0;
  bool is_compressed_ = false;
};

/// What was seen of a piece's values while it was copied.
struct PieceValues {
  /// Elements that are NaN or infinite: of F16, BF16, F32 and F64; parts of C64.
  std::uint64_t not_finite = 0;
  bool is_zero = false;  ///< All bytes are; also where there is none.
};

/// Secret of a process, under which it fingerprints blocks: 16 bytes of chance.
using FingerprintKey = std::array<std::byte, 16>;

/// GMAC-AES-128 of a block under a FingerprintKey. Two blocks that differ have the same with a
/// chance below 2^-117, whoever chose their bytes, as long as the key and they stay in the process.
using Fingerprint = std::array<std::byte, 16>;

/// What has been written.
struct DataFile {
  std::uint64_t size_bytes = 0;
  std::uint32_t crc32c = 0;  ///< Of the whole file.
  std::string etag;
  std::vector<PlacedPiece> places;  ///< Of each piece in the order given; lengths are the piece's.
  /// Likewise: a sum for each kSumBlockBytes, and in an encrypted file a
  /// tag.
  std::vector<std::vector<std::uint32_t>> sums;
  std::vector<std::vector<SealTag>> tags;
  /// Of each piece, in a compressed file: how many bytes each block has there.
  std::vector<std::vector<std::uint16_t>> stored_bytes;
  std::vector<PieceValues> values;  ///< Of each piece; nothing is seen without `scan_values`.
  /// Of each piece one for each kSumBlockBytes; empty without `fingerprint_key`.
  std::vector<std::vector<Fingerprint>> fingerprints;
};

enum class WrittenCheck : std::uint8_t {
  kAuto,      ///< By the sum that the store tells of the object; read back where it tells none.
  kReadBack,  ///< Read back.
  kNone,      ///< The store's answers are believed.
};

struct WriteOptions {
  std::uint64_t part_bytes = std::uint64_t{16} << 20;  ///< At least 5 MiB for most stores.
  std::uint32_t copy_threads = 2;                      ///< As many others compress.
  std::uint32_t parts_in_flight = 16;
  bool scan_values = true;
  WrittenCheck check = WrittenCheck::kAuto;
  std::optional<FingerprintKey> fingerprint_key = {};  ///< For find_unchanged().
};

/// Bytes of a piece in memory, those from `from_bytes` on.
struct StageSource {
  std::span<const std::byte> bytes;
  std::uint64_t from_bytes = 0;
};

/// Lets the pool's thread get memory ready for a data file of `size_bytes`, in parts of
/// `part_bytes`: a copy into memory that nobody has touched yet takes several times as long.
/// DataWriter::finish() does so for the next file, which is mostly as large; who knows of the first
/// one earlier does it before. Does not wait.
void prepare_memory(SlabPool& pool, std::uint64_t size_bytes, std::uint64_t part_bytes);

/// Writes one data file. Memory comes from the client's pool, a part at a time, and goes back when
/// the part has arrived.
class DataWriter {
 public:
  /// Begins to write `key`, which nobody else writes. Files below a directory of this machine are
  /// written past the page cache where that is possible, and are on the disk when finish() returns.
  /// Errors: those of Store::create_upload(); kInvalidArgument (parts larger than the memory, or,
  /// of a compressed file, than half of it).
  static Result<std::unique_ptr<DataWriter>> begin(std::shared_ptr<StoreClient> client,
                                                   std::string key, DataLayout layout,
                                                   const WriteOptions& options);
  /// What is not finished is discarded.
  virtual ~DataWriter() = default;
  DataWriter(const DataWriter&) = delete;
  DataWriter& operator=(const DataWriter&) = delete;

  /// Parts of the file, all of part_bytes() but the last; of a compressed one, before that.
  virtual std::uint32_t part_count() const noexcept = 0;
  virtual std::uint64_t part_bytes() const noexcept = 0;
  /// Copies the parts [first_part, end_part) of the file; `sources`, in the order of the layout's
  /// pieces(), have at least what of each lies there. When it returns, that may change. Waits where
  /// there is no memory until parts have left. \pre The parts before were staged, these not.
  /// Errors: those of parts that have failed meanwhile; kExhausted; kInvalidArgument (a source that
  /// lacks bytes).
  virtual Status stage(std::span<const StageSource> sources, std::uint32_t first_part,
                       std::uint32_t end_part, const Pause& pause) = 0;
  /// All parts at once.
  Status stage(std::span<const StageSource> sources, const Pause& pause) {
    return stage(sources, 0, part_count(), pause);
  }
  /// Waits for what stage() took, makes the file visible, and checks it. \pre All was staged.
  /// Errors: those of the store; kCorrupt (the store has something else; it is removed).
  virtual Result<DataFile> finish(const Pause& pause) = 0;

 protected:
  DataWriter() = default;
};

/// What a piece was when it was written: DataFile's of it, of a writer with the same
/// FingerprintKey.
struct WrittenPiece {
  std::uint64_t length_bytes = 0;
  std::span<const std::uint32_t> sums;
  std::span<const Fingerprint> fingerprints;
};

/// Which pieces (addresses of `length_bytes` each) have the bytes that were written, by the sum and
/// the fingerprint of every block. A piece is read up to its first block that differs. Errors:
/// kInternal (no AES in this OpenSSL).
Result<std::vector<bool>> find_unchanged(std::span<const std::byte* const> sources,
                                         std::span<const WrittenPiece> pieces,
                                         const FingerprintKey& key, std::uint32_t threads,
                                         const Pause& pause);

/// A part of a shared file that has arrived.
struct SharedPart {
  UploadedPart part;
  std::uint32_t crc32c = 0;
};

/// Bytes of a part.
struct PartRun {
  std::uint64_t to_bytes = 0;  ///< In the part.
  std::uint64_t length_bytes = 0;
  const std::byte* from = nullptr;
};

struct SharedOptions {
  std::string key;
  std::uint64_t size_bytes = 0;  ///< Of the file; above 0.
  std::uint64_t part_bytes = 0;  ///< Of each part but the last; whole pages of 4096 bytes.
  /// token() of the process that has begun the file; empty: this one does.
  std::string joins = {};
  WrittenCheck check = WrittenCheck::kAuto;
};

/// One file that several processes write, each some of its parts: a multipart upload, or a file in
/// a directory that all of them see. Memory comes from the client's pool, a part at a time.
class SharedFile {
 public:
  /// Errors: those of Store::create_upload(); kInvalidArgument (parts larger than the memory, or
  /// too many), kNotFound (joins a file that is not on this machine).
  static Result<std::unique_ptr<SharedFile>> open(std::shared_ptr<StoreClient> client,
                                                  SharedOptions options);
  /// What this process has begun and not published is discarded.
  virtual ~SharedFile() = default;
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  /// By which others join. A file of one part needs none: whoever puts it publishes it.
  virtual std::string token() const = 0;
  /// Copies a part from its runs, which cover it in order, and sends it. Waits where there is no
  /// memory. Errors: those of parts that have failed meanwhile.
  virtual Status put(std::uint32_t part, std::span<const PartRun> runs, const Pause& pause) = 0;
  /// Waits until all parts that this process has put have arrived, and returns them.
  virtual Result<std::vector<SharedPart>> settle(const Pause& pause) = 0;
  /// By the process that began: makes the file of all processes' parts visible, and checks it.
  /// Returns its version. Errors: kCorrupt (the store has something else; it is removed), kInternal
  /// (a part is missing), those of the store.
  virtual Result<std::string> publish(std::span<const SharedPart> parts, const Pause& pause) = 0;

 protected:
  SharedFile() = default;
};

/// Copies a data file, whose bytes are known, from one store to another; it appears only when it is
/// proved. Memory is that of `from`. Returns its version. Errors: kCorrupt
/// (the source does not match `crc32c`; nothing is written), those of both stores.
Result<std::string> copy_file(StoreClient& from, const std::string& from_key,
                              const std::shared_ptr<StoreClient>& to, const std::string& to_key,
                              std::uint64_t size_bytes, std::uint32_t crc32c,
                              const WriteOptions& options, const Pause& pause);

/// Sum blocks of a piece: [first, end).
struct BlockRange {
  std::uint64_t first = 0;
  std::uint64_t end = 0;
  friend bool operator==(const BlockRange&, const BlockRange&) = default;
};

/// A box of a piece that is wanted, and where it goes.
struct WantedBox {
  PlacedPiece place;                    ///< Of the piece in its file.
  std::span<const std::uint32_t> sums;  ///< Of the piece.
  bool has_sums = true;                 ///< False: there are none; its bytes are believed.
  std::span<const SealTag> tags = {};   ///< Of the piece, in an encrypted file.
  /// Of the piece, in a compressed file: DataFile's.
  std::span<const std::uint16_t> stored_bytes = {};
  std::uint32_t element_bytes = 0;
  std::vector<std::uint64_t> shape;  ///< Of the piece.
  std::vector<std::uint64_t> start;  ///< Of the box in the piece; as many as the shape has.
  std::vector<std::uint64_t> count;  ///< Of the box.
  std::byte* to = nullptr;           ///< Its first element.
  /// From one element to the next along each dimension, of the destination.
  std::vector<std::int64_t> to_strides_bytes;
  /// Of the blocks that it needs only those in one of these, which rise and do not overlap; none:
  /// all.
  std::span<const BlockRange> only = {};
};

struct ReadTotals {
  std::uint64_t requests = 0;
  std::uint64_t bytes = 0;
};

/// Reads boxes of the pieces of one file, every byte that has a sum proved before it is copied.
/// Ranges that are close together are one request. `etag`: of the file; empty: any. Errors:
/// kCorrupt (which piece and block), kInvalidArgument (a box outside its piece), those of kGet.
/// `seal_key`: the boxes have tags, and a file that is not encrypted under it is corrupt.
Result<ReadTotals> read_boxes(StoreClient& client, const std::string& key, const std::string& etag,
                              std::span<const WantedBox> boxes, const SealKey* seal_key,
                              const Pause& pause);

/// The blocks that a box needs, in order, as few ranges as there are; `only` does not count. Pure.
/// Errors: kInvalidArgument (a box outside its piece).
Result<std::vector<BlockRange>> needed_blocks(const WantedBox& box);

/// Whole blocks of the piece of a box, next to one another, in memory.
struct HeldBlocks {
  std::uint32_t box = 0;          ///< Which one.
  std::uint64_t first_block = 0;  ///< Of the piece.
  std::span<const std::byte> bytes;
};

/// Copies what boxes want of bytes that somebody else has read of `object`; each block that has a
/// sum is proved before. Errors: kCorrupt (which), kInvalidArgument.
Status copy_blocks(const std::string& object, std::span<const WantedBox> boxes,
                   std::span<const HeldBlocks> held);

/// Writes a small object; below a directory of this machine it is on the disk then. `if_absent`:
/// kChanged when it is there; when the answer to an earlier attempt was lost it may be this call's
/// own. Returns its version.
Result<std::string> write_small(StoreClient& client, const std::string& key, std::string_view bytes,
                                bool if_absent, const Pause& pause);

/// Compares a file with its sum: by what the store tells of the object where it tells one, else by
/// reading all of it. Errors: kCorrupt, those of kGet.
Status prove_file(StoreClient& client, const std::string& key, std::uint64_t size_bytes,
                  std::uint32_t crc32c, const Pause& pause);

/// Reads a whole file and compares it with its sum. Errors: kCorrupt, those of kGet.
Status verify_file(StoreClient& client, const std::string& key, std::uint64_t size_bytes,
                   std::uint32_t crc32c, const Pause& pause);

}  // namespace headrace::checkpoint
