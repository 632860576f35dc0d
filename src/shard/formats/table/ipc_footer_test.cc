#include <gtest/gtest.h>

#include <string>

#include "base/endian.h"
#include "shard/formats/table/ipc_table.h"

namespace headrace::detail {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

template <class T>
void append(std::string& out, T value) {
  std::byte bytes[sizeof(T)];
  store_le<T>(bytes, value);
  out.append(reinterpret_cast<const char*>(bytes), sizeof(T));
}

// A footer by hand: root offset; vtable; table {version, _, dictionaries, batches}; two vectors.
struct FooterText {
  std::int16_t version = 4;
  std::int64_t offset = 200;
  std::int32_t metadata_bytes = 64;
  std::int64_t body_bytes = 32;
  std::uint32_t batch_count = 1;

  std::string write() const {
    std::string out;
    append<std::uint32_t>(out, 16);  // Root table.
    append<std::uint16_t>(out, 12);  // vtable at 4: its bytes, the table's bytes, 4 fields
    append<std::uint16_t>(out, 16);
    append<std::uint16_t>(out, 4);   // version
    append<std::uint16_t>(out, 0);   // schema: absent
    append<std::uint16_t>(out, 8);   // dictionaries
    append<std::uint16_t>(out, 12);  // recordBatches
    append<std::int32_t>(out, 16 - 4);
    append<std::int16_t>(out, version);
    append<std::int16_t>(out, 0);
    append<std::uint32_t>(out, 8);            // at 24: dictionaries at 32
    append<std::uint32_t>(out, 8);            // at 28: batches at 36
    append<std::uint32_t>(out, 0);            // at 32: none
    append<std::uint32_t>(out, batch_count);  // at 36
    append<std::int64_t>(out, offset);
    append<std::int32_t>(out, metadata_bytes);
    append<std::int32_t>(out, 0);
    append<std::int64_t>(out, body_bytes);
    append<std::int32_t>(out, static_cast<std::int32_t>(out.size()));
    return out + "ARROW1";
  }
};

constexpr std::uint64_t kFileBytes = 1000;

TEST(IpcFooter, FindsTheBlocks) {
  const std::string text = FooterText{}.write();
  auto footer = parse_ipc_footer(bytes_of(text), kFileBytes);
  ASSERT_TRUE(footer.has_value()) << footer.error().message();
  EXPECT_TRUE(footer->dictionaries.empty());
  ASSERT_EQ(footer->batches.size(), 1U);
  EXPECT_EQ(footer->batches[0].offset_bytes, 200U);
  EXPECT_EQ(footer->batches[0].end_bytes(), 296U);
  EXPECT_EQ(footer->schema_end_bytes, 200U);
}

TEST(IpcFooter, RefusesWhatDoesNotFit) {
  const auto code = [](const FooterText& footer) {
    const std::string text = footer.write();
    const auto result = parse_ipc_footer(bytes_of(text), kFileBytes);
    return result ? Code::kOk : result.error().code();
  };
  EXPECT_EQ(code({.version = 3}), Code::kUnsupported);
  EXPECT_EQ(code({.offset = 7}), Code::kCorrupt);
  EXPECT_EQ(code({.offset = -1}), Code::kCorrupt);
  EXPECT_EQ(code({.offset = 990}), Code::kCorrupt);
  EXPECT_EQ(code({.offset = 8}), Code::kCorrupt);  // No schema before it.
  EXPECT_EQ(code({.metadata_bytes = -1}), Code::kCorrupt);
  EXPECT_EQ(code({.body_bytes = 1000}), Code::kCorrupt);
  EXPECT_EQ(code({.body_bytes = -1}), Code::kCorrupt);
  EXPECT_EQ(code({.batch_count = 2}), Code::kCorrupt);
  EXPECT_EQ(code({.batch_count = 0xffffffffU}), Code::kCorrupt);
  const std::string text = FooterText{}.write();
  EXPECT_FALSE(ipc_footer_bytes(bytes_of(text), 20).has_value());
  EXPECT_FALSE(ipc_footer_bytes(bytes_of(text.substr(0, text.size() - 1)), 500).has_value());
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (const int bit : {0, 3, 7}) {
      std::string bad = text;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      (void)parse_ipc_footer(bytes_of(bad), kFileBytes);  // Any verdict; sanitizers watch.
    }
  }
}

TEST(IpcFooter, RefusesMessagesThatAreNoRecordBatch) {
  EXPECT_FALSE(parse_ipc_batch({}).has_value());
  std::string message;
  append<std::uint32_t>(message, 0xffffffffU);
  append<std::int32_t>(message, 64);
  EXPECT_FALSE(parse_ipc_batch(bytes_of(message)).has_value());
  message.append(64, '\0');
  EXPECT_FALSE(parse_ipc_batch(bytes_of(message)).has_value());
  auto broken = bytes_of(message);
  EXPECT_FALSE(next_ipc_message(broken).has_value());
  EXPECT_FALSE(ipc_workspace_bytes(bytes_of(message)).has_value());
}

}  // namespace
}  // namespace headrace::detail
