#pragma once
/// \file
/// Mosaic's shuffles: which sample id comes at which place of a shuffled epoch.
///
/// Place: src/order/mosaic; pure. Definition: docs/order.md, "Shuffles".
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "headrace/status.h"
#include "order/numpy_random/generator.h"

namespace headrace::mosaic {

enum class ShuffleAlgo : std::uint8_t { kPy1e, kPy1s, kPy1br, kPy2s, kNaive };
/// Errors: kInvalidArgument naming the known ones.
Result<ShuffleAlgo> parse_shuffle_algo(const std::string& name);

struct ShuffleSpec {
  ShuffleAlgo algo = ShuffleAlgo::kPy1e;
  std::uint64_t canonical_nodes = 1;
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t block_size = 1 << 18;  ///< Samples; used by py1e and py1br.
};

/// Errors: kInvalidArgument for what Mosaic refuses: blocks too small, and under py1e a canonical
/// node without samples. Cheap; shuffle_units() returns the same.
Status check_shuffle(const ShuffleSpec& spec, std::uint64_t samples);

/// `units`: sizes that the ids 0..sum-1 fall into; out.size() is their sum, at most 2^32 for
/// T = uint32_t. `threads` >= 1 changes nothing but the time.
template <class T>
Status shuffle_units(std::span<const std::uint64_t> units, const ShuffleSpec& spec,
                     std::span<T> out, std::uint32_t threads);

/// A run of ids [begin, end).
struct Span {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t size() const noexcept { return end - begin; }
};
/// Spans [first, last) of a canonical node, in an array of all.
using Part = std::pair<std::size_t, std::size_t>;

/// Units shuffled with the run's seed and cut at the borders of canonical nodes.
struct DividedSpans {
  std::vector<Span> spans;
  std::vector<Part> parts;
};
/// `spans` in the order given. divide_spans() of Mosaic.
DividedSpans divide_spans(std::vector<Span> spans, std::uint64_t samples, std::uint64_t parts);
/// The prologue of py1s, py1br and py1e: spans per canonical node in the order of this epoch.
DividedSpans epoch_spans(std::span<const std::uint64_t> units, const ShuffleSpec& spec,
                         numpy_random::Generator& epoch_rng);

/// Lower and upper (exclusive) bound of a random block.
std::pair<std::int64_t, std::int64_t> block_bounds(std::uint64_t block_size) noexcept;

/// See shuffle_py1e.cc.
template <class T>
void shuffle_py1e(std::span<const std::uint64_t> units, const ShuffleSpec& spec, std::span<T> out,
                  std::uint32_t threads);

}  // namespace headrace::mosaic
