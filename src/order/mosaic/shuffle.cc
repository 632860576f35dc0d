// Every draw counts: one more or one less, or two in another sequence, and all samples behind it
// come elsewhere than in Mosaic. So the loops here have Mosaic's order even where another is more
// natural, as in py1br, which draws the staggers of all nodes before the first size of a block.
//
// Two generators: one of the seed alone, which is the same in every epoch, and one of seed +
// epoch. The first one orders the units before they are divided among canonical nodes. Each node
// therefore keeps its samples in all epochs (as long as the sampling gives the same ones), and the
// second one mixes only inside of a node. py2s lets the first shuffle the samples of each shard as
// well; naive knows no nodes and has only the second.
#include "order/mosaic/shuffle.h"

#include <algorithm>
#include <numeric>

#include "order/numpy_random/target_stream.h"

namespace headrace::mosaic {

using numpy_random::Generator;
using numpy_random::TargetStream;

namespace {

std::vector<Span> unit_spans(std::span<const std::uint64_t> units) {
  std::vector<Span> spans;
  spans.reserve(units.size());
  std::uint64_t next = 0;
  for (const std::uint64_t size : units) {
    spans.push_back({next, next + size});
    next += size;
  }
  return spans;
}

template <class T>
std::span<T> fill_ids(std::span<T> out, const Span& span) {
  std::iota(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(span.size()),
            static_cast<T>(span.begin));
  return out.first(span.size());
}

/// Shuffles of up to 2^32 items in bulk, of more one draw after another.
template <class T>
void shuffle_items(Generator& rng, std::span<T> items) {
  if (items.size() <= numpy_random::kMax32) {
    TargetStream stream(rng);
    numpy_random::shuffle_in_bulk(stream, items);
  } else {
    rng.shuffle(items);
  }
}

template <class T>
void shuffle_naive(const ShuffleSpec& spec, std::span<T> out) {
  Generator rng(spec.seed + spec.epoch);
  std::iota(out.begin(), out.end(), T{0});
  shuffle_items(rng, out);
}

template <class T>
void shuffle_py1s(std::span<const std::uint64_t> units, const ShuffleSpec& spec, std::span<T> out) {
  Generator rng(spec.seed + spec.epoch);
  std::size_t at = 0;
  for (const Span& span : epoch_spans(units, spec, rng).spans) {
    shuffle_items(rng, fill_ids(out.subspan(at), span));
    at += span.size();
  }
}

template <class T>
void shuffle_py2s(std::span<const std::uint64_t> units, const ShuffleSpec& spec, std::span<T> out) {
  Generator fixed(spec.seed);
  std::vector<Span> shards = unit_spans(units);
  fixed.shuffle(std::span(shards));
  std::size_t at = 0;
  for (Span& shard : shards) {  // from here on: places in `out`, not ids
    shuffle_items(fixed, fill_ids(out.subspan(at), shard));
    shard = {at, at + shard.size()};
    at += shard.size();
  }
  DividedSpans pieces = divide_spans(std::move(shards), out.size(), spec.canonical_nodes);
  Generator rng(spec.seed + spec.epoch);
  std::vector<T> before;
  at = 0;
  for (const auto& [first, last] : pieces.parts) {
    const auto part = std::span(pieces.spans).subspan(first, last - first);
    const std::size_t begin = at;
    for (const Span& piece : part) at += piece.size();
    // The pieces change places inside of the part, so they are written from a copy of it.
    before.assign(out.begin() + static_cast<std::ptrdiff_t>(begin),
                  out.begin() + static_cast<std::ptrdiff_t>(at));
    rng.shuffle(part);
    std::size_t to = begin;
    for (const Span& piece : part) {
      const auto target = out.subspan(to, piece.size());
      std::copy_n(before.begin() + static_cast<std::ptrdiff_t>(piece.begin - begin), piece.size(),
                  target.begin());
      shuffle_items(rng, target);
      to += piece.size();
    }
  }
}

template <class T>
void shuffle_py1br(std::span<const std::uint64_t> units, const ShuffleSpec& spec,
                   std::span<T> out) {
  Generator rng(spec.seed + spec.epoch);
  const DividedSpans divided = epoch_spans(units, spec, rng);
  const auto [low, high] = block_bounds(spec.block_size);
  std::vector<std::int64_t> staggers(spec.canonical_nodes);
  for (std::int64_t& stagger : staggers) stagger = rng.integers(0, low);
  std::vector<std::pair<std::int64_t, std::int64_t>> blocks;
  std::size_t at = 0;
  for (std::size_t node = 0; node < divided.parts.size(); ++node) {
    const auto start = static_cast<std::int64_t>(at);
    for (std::size_t s = divided.parts[node].first; s < divided.parts[node].second; ++s) {
      fill_ids(out.subspan(at), divided.spans[s]);
      at += divided.spans[s].size();
    }
    const auto stop = static_cast<std::int64_t>(at);
    blocks.clear();
    // Each block moves `end` on by at least one: a stagger is smaller than any block.
    for (std::int64_t end = start; end < stop; end += blocks.back().second - blocks.back().first) {
      const std::int64_t size = rng.integers(low, high);
      blocks.emplace_back(std::max(end - staggers[node], start),
                          std::min(end + size - staggers[node], stop));
    }
    for (const auto& [begin, end] : blocks) {
      shuffle_items(
          rng, out.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
    }
  }
}

Status too_small(const ShuffleSpec& spec, std::string_view algo, std::uint64_t least) {
  return Status(Code::kInvalidArgument, "shuffle_block_size " + std::to_string(spec.block_size) +
                                            " (of a stream: its share)"
                                            " is too small for " +
                                            std::string(algo) + ", which needs " +
                                            std::to_string(least) + "; raise shuffle_block_size");
}

}  // namespace

Result<ShuffleAlgo> parse_shuffle_algo(const std::string& name) {
  if (name == "py1e") return ShuffleAlgo::kPy1e;
  if (name == "py1s") return ShuffleAlgo::kPy1s;
  if (name == "py1br") return ShuffleAlgo::kPy1br;
  if (name == "py2s") return ShuffleAlgo::kPy2s;
  if (name == "naive") return ShuffleAlgo::kNaive;
  return Status(Code::kInvalidArgument,
                "shuffle_algo=" + name + ": expected py1e, py1s, py1br, py2s or naive");
}

std::pair<std::int64_t, std::int64_t> block_bounds(std::uint64_t block_size) noexcept {
  const auto size = static_cast<double>(block_size);
  // Truncated, as Python's int() does it.
  return {static_cast<std::int64_t>(0.75 * size), static_cast<std::int64_t>(1.25 * size)};
}

DividedSpans divide_spans(std::vector<Span> spans, std::uint64_t samples, std::uint64_t parts) {
  DividedSpans out;
  out.spans.reserve(spans.size() + parts);
  out.parts.reserve(parts);
  std::size_t next = 0;
  std::size_t first = 0;
  std::uint64_t so_far = 0;
  for (std::uint64_t part = 0; part < parts; ++part) {
    const std::uint64_t stop = samples * (part + 1) / parts;
    for (; next < spans.size() && so_far + spans[next].size() <= stop; ++next) {
      so_far += spans[next].size();
      out.spans.push_back(spans[next]);
    }
    // A span across a node's border: its first samples end this node, the others begin the next.
    if (next < spans.size() && so_far < stop) {
      Span& cut = spans[next];
      out.spans.push_back({cut.begin, cut.begin + (stop - so_far)});
      cut.begin += stop - so_far;
      so_far = stop;
    }
    out.parts.emplace_back(first, out.spans.size());
    first = out.spans.size();
  }
  return out;
}

DividedSpans epoch_spans(std::span<const std::uint64_t> units, const ShuffleSpec& spec,
                         Generator& epoch_rng) {
  std::vector<Span> spans = unit_spans(units);
  const std::uint64_t samples = spans.empty() ? 0 : spans.back().end;
  Generator(spec.seed).shuffle(std::span(spans));
  DividedSpans divided = divide_spans(std::move(spans), samples, spec.canonical_nodes);
  for (const auto& [first, last] : divided.parts) {
    epoch_rng.shuffle(std::span(divided.spans).subspan(first, last - first));
  }
  return divided;
}

Status check_shuffle(const ShuffleSpec& spec, std::uint64_t samples) {
  if (spec.algo == ShuffleAlgo::kPy1br && spec.block_size < 2) return too_small(spec, "py1br", 2);
  if (spec.algo == ShuffleAlgo::kPy1e) {
    if (spec.block_size < 1) return too_small(spec, "py1e", 1);
    if (samples < spec.canonical_nodes) {
      return Status(
          Code::kInvalidArgument,
          "The number of samples assigned to a canonical node must be at least 1, but py1e has " +
              std::to_string(samples) + " samples of a stream for " +
              std::to_string(spec.canonical_nodes) + " canonical nodes; lower num_canonical_nodes");
    }
  }
  return Status();
}

template <class T>
Status shuffle_units(std::span<const std::uint64_t> units, const ShuffleSpec& spec,
                     std::span<T> out, std::uint32_t threads) {
  HEADRACE_TRY(check_shuffle(spec, out.size()));
  switch (spec.algo) {
    case ShuffleAlgo::kPy1e:
      shuffle_py1e(units, spec, out, threads);
      break;
    case ShuffleAlgo::kPy1s:
      shuffle_py1s(units, spec, out);
      break;
    case ShuffleAlgo::kPy1br:
      shuffle_py1br(units, spec, out);
      break;
    case ShuffleAlgo::kPy2s:
      shuffle_py2s(units, spec, out);
      break;
    case ShuffleAlgo::kNaive:
      shuffle_naive(spec, out);
      break;
  }
  return Status();
}

template Status shuffle_units<std::uint32_t>(std::span<const std::uint64_t>, const ShuffleSpec&,
                                             std::span<std::uint32_t>, std::uint32_t);
template Status shuffle_units<std::uint64_t>(std::span<const std::uint64_t>, const ShuffleSpec&,
                                             std::span<std::uint64_t>, std::uint32_t);

}  // namespace headrace::mosaic
