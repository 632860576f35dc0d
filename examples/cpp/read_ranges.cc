// Reads ranges of an object, all at once, and writes them to standard output in the order given.
//
//   read_ranges s3://bucket/folder part-0.tar 0+512 1048576+512
#include <charconv>
#include <cstdio>
#include <vector>

#include "common.h"
#include "headrace/store_client.h"

namespace {

using namespace headrace;

constexpr std::uint64_t kMemoryBytes = std::uint64_t{64} << 20;

struct Range {
  std::uint64_t offset_bytes = 0, length_bytes = 0;
};

/// "OFFSET+LENGTH".
Result<Range> parse_range(std::string_view text) {
  Range range;
  const char* const end = text.data() + text.size();
  const auto [plus, error] = std::from_chars(text.data(), end, range.offset_bytes);
  if (error == std::errc() && plus != end && *plus == '+') {
    const auto [rest, length_error] = std::from_chars(plus + 1, end, range.length_bytes);
    if (length_error == std::errc() && rest == end && range.length_bytes > 0) return range;
  }
  return Status(Code::kInvalidArgument,
                std::string(text) + ": no range; say OFFSET+LENGTH, as in 0+4096");
}

/// The slabs that hold `ranges`, in their order. Reads finish in any order; their tags tell which
/// is which.
Result<std::vector<RangeData>> read_all(StoreClient& client, std::string_view key,
                                        const std::vector<Range>& ranges) {
  std::vector<RangeData> found(ranges.size());
  HEADRACE_TRY(client.read(client.read_options({}), [&](RangeFetcher& fetcher) -> Status {
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      RangeRead read;
      read.key = key;
      read.offset_bytes = ranges[i].offset_bytes;
      read.length_bytes = ranges[i].length_bytes;
      read.tag = i;
      fetcher.start(read);
    }
    while (fetcher.pending() > 0) {
      HEADRACE_TRY_ASSIGN(RangeData data, fetcher.next());
      found[data.tag] = std::move(data);
    }
    return {};
  }));
  return found;
}

Status run(const std::string& url, const std::string& key, std::span<char*> texts) {
  std::vector<Range> ranges;
  for (const char* text : texts) {
    HEADRACE_TRY_ASSIGN(ranges.emplace_back(), parse_range(text));
  }
  StoreOptions options;
  options.url = url;
  HEADRACE_TRY_ASSIGN(const auto client,
                      StoreClient::open(options, process_environment(), kMemoryBytes));
  HEADRACE_TRY_ASSIGN(const auto found, read_all(*client, key, ranges));
  for (const RangeData& data : found) {
    std::fwrite(data.bytes().data(), 1, data.bytes().size(), stdout);
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fputs("usage: read_ranges URL KEY OFFSET+LENGTH...\n", stderr);
    return 2;
  }
  return report(run(argv[1], argv[2], std::span(argv + 3, static_cast<std::size_t>(argc) - 3)));
}
