// Memory of tensors is handed over as (address, bytes): numpy has no bfloat16, and torch no
// buffers. The caller keeps what is behind an address alive during the call.
#include "headrace/checkpoint.h"

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bind.h"
#include "buffers.h"
#include "errors.h"
#include "keys.h"
#include "names.h"
#include "store.h"

namespace headrace {
namespace {

using Shape = std::vector<std::uint64_t>;

struct PyWriter {
  Guarded<checkpoint::DataWriter> writer;
  std::string key;
  std::vector<checkpoint::PlacedPiece> places;   ///< As pieces are staged.
  std::vector<checkpoint::StageSource> sources;  ///< Of each piece.
};

checkpoint::WrittenCheck parse_check(const std::string& name) {
  using enum checkpoint::WrittenCheck;
  return by_name<checkpoint::WrittenCheck>("check", name,
                                           {{"auto", kAuto}, {"read", kReadBack}, {"none", kNone}});
}

checkpoint::FingerprintKey parse_fingerprint_key(const nb::bytes& bytes) {
  checkpoint::FingerprintKey key;
  if (bytes.size() != key.size()) throw nb::value_error("a fingerprint key has 16 bytes");
  std::memcpy(key.data(), bytes.c_str(), key.size());
  return key;
}

/// Numbers as bytes, and back.
template <typename T>
nb::bytes pack(const std::vector<T>& each) {
  return nb::bytes(reinterpret_cast<const char*>(each.data()), each.size() * sizeof(T));
}

template <typename T>
std::vector<T> unpack(const nb::bytes& bytes) {
  std::vector<T> each(bytes.size() / sizeof(T));
  if (!each.empty()) std::memcpy(each.data(), bytes.c_str(), each.size() * sizeof(T));
  return each;
}

Result<checkpoint::DataLayout> make_layout(std::vector<checkpoint::Piece> pieces,
                                           const std::map<std::string, std::string>& metadata,
                                           const PySealKey* seal_key, bool compress) {
  using checkpoint::DataLayout;
  const auto key = seal_key != nullptr ? seal_key->key : nullptr;
  if (compress) return DataLayout::make_compressed(std::move(pieces), key);
  if (key != nullptr) return DataLayout::make_sealed(std::move(pieces), key);
  return DataLayout::make(std::move(pieces), metadata);
}

void begin(PyWriter* self, PyStore& store, const std::string& key,
           const std::vector<std::tuple<std::string, std::string, Shape>>& pieces,
           const std::map<std::string, std::string>& metadata, std::uint64_t part_bytes,
           std::uint32_t copy_threads, const std::string& check, bool scan_values,
           const std::optional<nb::bytes>& fingerprint_key, const PySealKey* seal_key,
           bool compress) {
  auto client = store.client.get();
  std::vector<checkpoint::Piece> given;
  given.reserve(pieces.size());
  for (const auto& [name, dtype, shape] : pieces) given.push_back({name, dtype, shape});
  checkpoint::WriteOptions options;
  if (part_bytes != 0) options.part_bytes = part_bytes;
  options.copy_threads = copy_threads;
  options.check = parse_check(check);
  options.scan_values = scan_values;
  if (fingerprint_key) options.fingerprint_key = parse_fingerprint_key(*fingerprint_key);
  auto layout = value_or_raise(make_layout(std::move(given), metadata, seal_key, compress), key);
  std::vector<checkpoint::PlacedPiece> places = layout.places();
  const std::size_t piece_count = places.size();
  auto writer = value_or_raise(run_interruptible([&](const std::stop_token&) {
                                 return checkpoint::DataWriter::begin(client, key,
                                                                      std::move(layout), options);
                               }),
                               key);
  new (self) PyWriter{Guarded<checkpoint::DataWriter>(
                          "the writer", std::shared_ptr<checkpoint::DataWriter>(std::move(writer))),
                      key, std::move(places), std::vector<checkpoint::StageSource>(piece_count)};
}

/// (piece, address, bytes there, which byte of the piece is the first)
using SourceRow = std::tuple<std::size_t, std::uintptr_t, std::uint64_t, std::uint64_t>;

/// Of pieces that are not in `rows` the source stays what it was.
void stage(PyWriter& self, const std::vector<SourceRow>& rows, std::uint32_t first_part,
           std::uint32_t end_part) {
  auto writer = self.writer.get();
  for (const auto& [piece, address, length, from] : rows) {
    if (piece >= self.sources.size()) throw nb::value_error("a source of no piece");
    self.sources[piece] = {{reinterpret_cast<const std::byte*>(address), length}, from};
  }
  raise_if_error(without_gil([&](const Pause& pause) {
                   return writer->stage(self.sources, first_part, end_part, pause);
                 }),
                 self.key);
}

nb::list places_of(const std::vector<checkpoint::PlacedPiece>& places) {
  nb::list out;
  for (const auto& place : places)
    out.append(nb::make_tuple(place.offset_bytes, place.length_bytes));
  return out;
}

nb::tuple finish(PyWriter& self) {
  auto writer = self.writer.get();
  checkpoint::DataFile file = value_or_raise(
      without_gil([&](const Pause& pause) { return writer->finish(pause); }), self.key);
  nb::list sums;
  for (const auto& some : file.sums) sums.append(pack(some));
  nb::list tags;
  for (const auto& some : file.tags) tags.append(pack(some));
  nb::list values;
  for (const checkpoint::PieceValues& each : file.values)
    values.append(nb::make_tuple(each.not_finite, each.is_zero));
  nb::list fingerprints;
  for (const auto& some : file.fingerprints) fingerprints.append(pack(some));
  nb::list stored;
  for (const auto& some : file.stored_bytes) stored.append(pack(some));
  return nb::make_tuple(file.size_bytes, file.crc32c, file.etag, sums, values, fingerprints, tags,
                        stored, places_of(file.places));
}

/// (address, length, sums, fingerprints) of each piece
using WrittenRow = std::tuple<std::uintptr_t, std::uint64_t, nb::bytes, nb::bytes>;

nb::list find_unchanged(const std::vector<WrittenRow>& rows, const nb::bytes& fingerprint_key,
                        std::uint32_t threads) {
  std::vector<std::vector<std::uint32_t>> sums;
  std::vector<std::vector<checkpoint::Fingerprint>> fingerprints;
  std::vector<const std::byte*> sources;
  std::vector<checkpoint::WrittenPiece> pieces;
  sums.reserve(rows.size());
  fingerprints.reserve(rows.size());
  for (const auto& [address, length, some_sums, some_fingerprints] : rows) {
    sources.push_back(reinterpret_cast<const std::byte*>(address));
    pieces.push_back(
        {length, sums.emplace_back(unpack<std::uint32_t>(some_sums)),
         fingerprints.emplace_back(unpack<checkpoint::Fingerprint>(some_fingerprints))});
  }
  const checkpoint::FingerprintKey key = parse_fingerprint_key(fingerprint_key);
  const std::vector<bool> unchanged =
      value_or_raise(without_gil([&](const Pause& pause) {
                       return checkpoint::find_unchanged(sources, pieces, key, threads, pause);
                     }),
                     "pieces that were written before");
  nb::list out;
  for (const bool each : unchanged) out.append(each);
  return out;
}

/// (offset, length, proofs or None, element bytes, shape, start, count, address, strides in bytes)
using BoxRow = std::tuple<std::uint64_t, std::uint64_t, std::optional<nb::bytes>, std::uint32_t,
                          Shape, Shape, Shape, std::uintptr_t, std::vector<std::int64_t>>;

/// Of a piece's blocks: all sums, then, in an encrypted file, all tags, then, in a compressed one,
/// how many bytes each has there. So how many bytes they are together tells whether it is
/// compressed.
struct Proofs {
  Proofs(const std::optional<nb::bytes>& joined, std::uint64_t length_bytes, bool has_tags) {
    if (!joined) return;
    const std::uint64_t blocks =
        (length_bytes + checkpoint::kSumBlockBytes - 1) / checkpoint::kSumBlockBytes;
    const std::size_t proof_bytes = sizeof sums[0] + (has_tags ? sizeof tags[0] : 0);
    const std::size_t all_bytes = proof_bytes + sizeof stored_bytes[0];
    const bool is_compressed =
        joined->size() % all_bytes == 0 && joined->size() / all_bytes == blocks;
    const std::size_t count = joined->size() / (is_compressed ? all_bytes : proof_bytes);
    const char* from = joined->c_str();
    take(sums, count, from);
    if (has_tags) take(tags, count, from);
    if (is_compressed) take(stored_bytes, count, from);
  }
  std::vector<std::uint32_t> sums;
  std::vector<checkpoint::SealTag> tags;
  std::vector<std::uint16_t> stored_bytes;

 private:
  template <typename T>
  static void take(std::vector<T>& each, std::size_t count, const char*& from) {
    each.resize(count);
    if (count > 0) std::memcpy(each.data(), from, count * sizeof(T));
    from += count * sizeof(T);
  }
};

/// Boxes, and what they point to.
class Boxes {
 public:
  /// `only`: of each box the blocks to read, [first, end) as u64; empty: all of all boxes.
  Boxes(const std::vector<BoxRow>& rows, bool has_tags, const std::vector<nb::bytes>& only = {}) {
    if (!only.empty() && only.size() != rows.size())
      throw nb::value_error("blocks to read of each box, or none");
    proofs_.reserve(rows.size());
    only_.reserve(rows.size());
    boxes_.reserve(rows.size());
    for (const auto& [offset, length, some, width, shape, start, count, address, strides] : rows) {
      const Proofs& proofs = proofs_.emplace_back(some, length, has_tags);
      only_.push_back(only.empty() ? std::vector<checkpoint::BlockRange>{}
                                   : unpack<checkpoint::BlockRange>(only[only_.size()]));
      boxes_.push_back({.place = {offset, length},
                        .sums = proofs.sums,
                        .has_sums = some.has_value(),
                        .tags = proofs.tags,
                        .stored_bytes = proofs.stored_bytes,
                        .element_bytes = width,
                        .shape = shape,
                        .start = start,
                        .count = count,
                        .to = reinterpret_cast<std::byte*>(address),
                        .to_strides_bytes = strides,
                        .only = only_.back()});
    }
  }
  std::span<const checkpoint::WantedBox> all() const { return boxes_; }

 private:
  std::vector<Proofs> proofs_;
  std::vector<std::vector<checkpoint::BlockRange>> only_;
  std::vector<checkpoint::WantedBox> boxes_;
};

nb::tuple read(PyStore& store, const std::string& key, const std::string& etag,
               const std::vector<BoxRow>& rows, const std::vector<nb::bytes>& only,
               const PySealKey* seal_key) {
  auto client = store.client.get();
  const Boxes boxes(rows, seal_key != nullptr, only);
  const SealKey* const own = seal_key != nullptr ? seal_key->key.get() : nullptr;
  const auto totals =
      value_or_raise(without_gil([&](const Pause& pause) {
                       return checkpoint::read_boxes(*client, key, etag, boxes.all(), own, pause);
                     }),
                     key);
  return nb::make_tuple(totals.requests, totals.bytes);
}

/// Of each box: [first, end) of the blocks that it needs, as u64.
nb::list needed_blocks(const Boxes& self) {
  nb::list out;
  for (const checkpoint::WantedBox& box : self.all()) {
    const auto ranges = value_or_raise(checkpoint::needed_blocks(box), "a box");
    out.append(pack(ranges));
  }
  return out;
}

/// `held`: (box, first block, bytes, address), each u64.
void copy_blocks(const Boxes& self, const std::string& object, nb::handle held) {
  const BufferArgument table(held);
  std::vector<std::uint64_t> numbers(table.bytes().size() / sizeof(std::uint64_t));
  if (!numbers.empty()) std::memcpy(numbers.data(), table.bytes().data(), numbers.size() * 8);
  if (numbers.size() % 4 != 0) throw nb::value_error("four numbers a run of blocks");
  std::vector<checkpoint::HeldBlocks> runs(numbers.size() / 4);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::uint64_t* row = &numbers[4 * i];
    runs[i] = {static_cast<std::uint32_t>(row[0]),
               row[1],
               {reinterpret_cast<const std::byte*>(row[3]), row[2]}};
  }
  raise_if_error(
      without_gil([&](const Pause&) { return checkpoint::copy_blocks(object, self.all(), runs); }),
      object);
}

struct PySharedFile {
  Guarded<checkpoint::SharedFile> file;
  std::string key;
};

void open_shared(PySharedFile* self, PyStore& store, const std::string& key, std::uint64_t size,
                 std::uint64_t part_bytes, const std::string& joins, const std::string& check) {
  auto client = store.client.get();
  checkpoint::SharedOptions options{.key = key,
                                    .size_bytes = size,
                                    .part_bytes = part_bytes,
                                    .joins = joins,
                                    .check = parse_check(check)};
  auto file = value_or_raise(run_interruptible([&](const std::stop_token&) {
                               return checkpoint::SharedFile::open(client, std::move(options));
                             }),
                             key);
  new (self) PySharedFile{Guarded<checkpoint::SharedFile>(
                              "the file", std::shared_ptr<checkpoint::SharedFile>(std::move(file))),
                          key};
}

/// `rows`: (offset in the part, length, address), each u64.
void put_part(PySharedFile& self, std::uint32_t part, nb::handle rows) {
  auto file = self.file.get();
  const BufferArgument table(rows);
  std::vector<std::uint64_t> numbers(table.bytes().size() / sizeof(std::uint64_t));
  if (!numbers.empty()) std::memcpy(numbers.data(), table.bytes().data(), numbers.size() * 8);
  if (numbers.size() % 3 != 0) throw nb::value_error("three numbers a run");
  std::vector<checkpoint::PartRun> runs(numbers.size() / 3);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    runs[i] = {numbers[3 * i], numbers[3 * i + 1],
               reinterpret_cast<const std::byte*>(numbers[3 * i + 2])};
  }
  raise_if_error(without_gil([&](const Pause& pause) { return file->put(part, runs, pause); }),
                 self.key);
}

/// (part number, ETag, bytes, the store's checksum, CRC32C)
using PartRow = std::tuple<std::uint32_t, std::string, std::uint64_t, std::string, std::uint32_t>;

std::vector<PartRow> settle(PySharedFile& self) {
  auto file = self.file.get();
  auto parts = value_or_raise(without_gil([&](const Pause& pause) { return file->settle(pause); }),
                              self.key);
  std::vector<PartRow> out;
  for (const auto& [part, sum] : parts)
    out.emplace_back(part.part_number, part.etag, part.size_bytes, part.checksum, sum);
  return out;
}

std::string publish(PySharedFile& self, const std::vector<PartRow>& rows) {
  auto file = self.file.get();
  std::vector<checkpoint::SharedPart> parts;
  for (const auto& [number, etag, size, checksum, sum] : rows)
    parts.push_back({{number, etag, size, checksum}, sum});
  return value_or_raise(
      without_gil([&](const Pause& pause) { return file->publish(parts, pause); }), self.key);
}

/// (header, [(offset, length)] of each piece, bytes of the file)
nb::tuple layout_of(const std::vector<std::tuple<std::string, std::string, Shape>>& pieces,
                    const std::map<std::string, std::string>& metadata) {
  std::vector<checkpoint::Piece> given;
  given.reserve(pieces.size());
  for (const auto& [name, dtype, shape] : pieces) given.push_back({name, dtype, shape});
  const auto layout =
      value_or_raise(checkpoint::DataLayout::make(std::move(given), metadata), "the file");
  const std::string& header = layout.header();
  return nb::make_tuple(nb::bytes(header.data(), header.size()), places_of(layout.places()),
                        layout.size_bytes());
}

std::string write_small(PyStore& store, const std::string& key, nb::handle data, bool if_absent) {
  auto client = store.client.get();
  const BufferArgument source(data);
  const std::string_view text(reinterpret_cast<const char*>(source.bytes().data()),
                              source.bytes().size());
  return value_or_raise(without_gil([&](const Pause& pause) {
                          return checkpoint::write_small(*client, key, text, if_absent, pause);
                        }),
                        key);
}

}  // namespace

void bind_checkpoint(nb::module_& m) {
  nb::class_<PyWriter>(m, "CheckpointWriter")
      .def("__init__", &begin, nb::arg("store"), nb::arg("key"), nb::arg("pieces"),
           nb::arg("metadata"), nb::arg("part_bytes") = 0, nb::arg("copy_threads") = 2,
           nb::arg("check") = "auto", nb::arg("scan_values") = true,
           nb::arg("fingerprint_key") = nb::none(), nb::arg("seal_key") = nb::none(),
           nb::arg("compress") = false)
      .def("stage", &stage, nb::arg("sources"), nb::arg("first_part"), nb::arg("end_part"))
      .def_prop_ro("part_count",
                   [](const PyWriter& self) { return self.writer.get()->part_count(); })
      .def_prop_ro("part_bytes",
                   [](const PyWriter& self) { return self.writer.get()->part_bytes(); })
      .def("places", [](const PyWriter& self) { return places_of(self.places); })
      .def("finish", &finish)
      .def("close", [](PyWriter& self) { self.writer.drop(); });
  nb::class_<PySharedFile>(m, "SharedFile")
      .def("__init__", &open_shared, nb::arg("store"), nb::arg("key"), nb::arg("size"),
           nb::arg("part_bytes"), nb::arg("joins") = "", nb::arg("check") = "auto")
      .def("token", [](const PySharedFile& self) { return self.file.get()->token(); })
      .def("put", &put_part, nb::arg("part"), nb::arg("rows"))
      .def("settle", &settle)
      .def("publish", &publish, nb::arg("parts"))
      .def("close", [](PySharedFile& self) { self.file.drop(); });
  nb::class_<Boxes>(m, "CheckpointBoxes")
      .def(nb::init<const std::vector<BoxRow>&, bool>(), nb::arg("boxes"),
           nb::arg("has_tags") = false)
      .def("needed_blocks", &needed_blocks)
      .def("copy_blocks", &copy_blocks, nb::arg("object"), nb::arg("held"));
  m.def("checkpoint_layout", &layout_of, nb::arg("pieces"), nb::arg("metadata"));
  m.def(
      "prepare_checkpoint_memory",
      [](PyStore& store, std::uint64_t size, std::uint64_t part_bytes) {
        checkpoint::prepare_memory(*store.client.get()->pool(), size, part_bytes);
      },
      nb::arg("store"), nb::arg("size"), nb::arg("part_bytes"));
  m.def(
      "checkpoint_copy_file",
      [](PyStore& from, const std::string& from_key, PyStore& to, const std::string& to_key,
         std::uint64_t size, std::uint32_t crc32c, std::uint64_t part_bytes,
         const std::string& check) {
        auto source = from.client.get();
        auto target = to.client.get();
        checkpoint::WriteOptions options;
        options.part_bytes = part_bytes;
        options.check = parse_check(check);
        return value_or_raise(without_gil([&](const Pause& pause) {
                                return checkpoint::copy_file(*source, from_key, target, to_key,
                                                             size, crc32c, options, pause);
                              }),
                              to_key);
      },
      nb::arg("source"), nb::arg("source_key"), nb::arg("target"), nb::arg("target_key"),
      nb::arg("size"), nb::arg("crc32c"), nb::arg("part_bytes"), nb::arg("check") = "auto");
  m.def("checkpoint_find_unchanged", &find_unchanged, nb::arg("pieces"), nb::arg("fingerprint_key"),
        nb::arg("threads"));
  m.def("checkpoint_read", &read, nb::arg("store"), nb::arg("key"), nb::arg("etag"),
        nb::arg("boxes"), nb::arg("only") = std::vector<nb::bytes>{},
        nb::arg("seal_key") = nb::none());
  m.def("checkpoint_write_small", &write_small, nb::arg("store"), nb::arg("key"), nb::arg("data"),
        nb::arg("if_absent") = false);
  m.def(
      "checkpoint_prove_file",
      [](PyStore& store, const std::string& key, std::uint64_t size, std::uint32_t crc32c) {
        auto client = store.client.get();
        raise_if_error(without_gil([&](const Pause& pause) {
                         return checkpoint::prove_file(*client, key, size, crc32c, pause);
                       }),
                       key);
      },
      nb::arg("store"), nb::arg("key"), nb::arg("size"), nb::arg("crc32c"));
  m.def(
      "checkpoint_verify_file",
      [](PyStore& store, const std::string& key, std::uint64_t size, std::uint32_t crc32c) {
        auto client = store.client.get();
        raise_if_error(without_gil([&](const Pause& pause) {
                         return checkpoint::verify_file(*client, key, size, crc32c, pause);
                       }),
                       key);
      },
      nb::arg("store"), nb::arg("key"), nb::arg("size"), nb::arg("crc32c"));
  m.def(
      "crc32c",
      [](nb::handle data, std::uint32_t before) {
        const BufferArgument source(data);
        return checkpoint::sum_of(source.bytes(), before);
      },
      nb::arg("data"), nb::arg("before") = 0);
  m.def("checkpoint_sum_block_bytes", [] { return checkpoint::kSumBlockBytes; });
  m.def(
      "bits_of_dtype",
      [](const std::string& dtype) {
        return value_or_raise(checkpoint::bits_of_dtype(dtype), dtype);
      },
      nb::arg("dtype"));
}

}  // namespace headrace
