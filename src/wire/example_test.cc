#include "wire/example.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include "base/random.h"

namespace headrace::detail {
namespace {

std::string field(int number, const std::string& bytes) {
  std::string text(1, static_cast<char>(number << 3 | 2));
  std::size_t size = bytes.size();
  for (; size >= 0x80; size >>= 7) text.push_back(static_cast<char>(size | 0x80));
  text.push_back(static_cast<char>(size));
  return text + bytes;
}

std::string entry(const std::string& key, const std::string& feature) {
  return field(1, field(1, key) + field(2, feature));
}

/// What find_feature() is to give, by reading all features; false: broken.
bool find_slowly(std::span<const std::byte> record, std::string_view key, FeatureView& out) {
  out = {};
  return read_example(record, [&](const FeatureView& view, bool is_list) {
    if (!is_list && view.key == key) out = view;
    return true;
  });
}

TEST(FindFeature, FindsWhatReadingAllFeaturesFinds) {
  const std::string numbers = field(3, field(1, std::string("\x01\x02\x03")));
  const std::string good =
      field(1, entry("a", numbers) + entry("long", field(1, field(1, std::string(200, 'x')))) +
                   entry("b", field(2, field(1, "1234"))) + entry("a", field(3, field(1, "\x05"))) +
                   field(1, field(2, numbers) + field(1, "turned")) + field(7, "unknown")) +
      field(2, entry("a", field(1, numbers)));
  Random random(9);
  int found = 0;
  for (int round = 0; round < 30000; ++round) {
    std::string text = random.below(4) == 0 ? good.substr(0, random.below(good.size() + 1)) : good;
    for (std::uint64_t flips = random.below(3); flips > 0 && !text.empty(); --flips)
      text[random.below(text.size())] = static_cast<char>(random.next());
    // Of its own, so that a sanitizer sees what reads behind the end.
    const auto bytes = std::make_unique<std::byte[]>(text.size());
    std::memcpy(bytes.get(), text.data(), text.size());
    const std::span<const std::byte> record(bytes.get(), text.size());
    for (const char* key : {"a", "b", "long", "turned", "absent"}) {
      FeatureView quick;
      FeatureView slow;
      const bool is_good = find_feature(record, key, quick);
      // Broken values of other features are not looked at.
      if (!find_slowly(record, key, slow)) continue;
      ASSERT_TRUE(is_good);
      ASSERT_EQ(quick.entry.data(), slow.entry.data());
      ASSERT_EQ(quick.entry.size(), slow.entry.size());
      ASSERT_EQ(quick.kind, slow.kind);
      ASSERT_EQ(quick.value_count, slow.value_count);
      found += quick.kind != FeatureKind::kNone;
    }
  }
  EXPECT_GT(found, 30000);
}

}  // namespace
}  // namespace headrace::detail
