#include "checkpoint/stream_copy.h"

#include <gtest/gtest.h>

#include <vector>

namespace headrace::checkpoint {
namespace {

TEST(StreamCopy, CopiesWhateverTheAlignmentAndNothingElse) {
  std::vector<std::byte> from(5000);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
  for (const std::size_t length : {0U, 1U, 31U, 63U, 64U, 65U, 127U, 200U, 4096U, 4500U}) {
    for (const std::size_t to_offset : {0U, 1U, 31U, 32U, 33U, 63U, 64U}) {
      for (const std::size_t from_offset : {0U, 1U, 32U, 77U}) {
        std::vector<std::byte> to(5000, std::byte{0xee});
        const auto source = std::span(from).subspan(from_offset, length);
        stream_copy(to.data() + to_offset, source);
        std::vector<std::byte> expected(5000, std::byte{0xee});
        std::copy(source.begin(), source.end(),
                  expected.begin() + static_cast<std::ptrdiff_t>(to_offset));
        ASSERT_EQ(to, expected) << length << ' ' << to_offset << ' ' << from_offset;
      }
    }
  }
}

}  // namespace
}  // namespace headrace::checkpoint
