#pragma once
/// \file
/// Decoders for the tests of src/feed: what they make follows from the value and its key, and they
/// find the values of chosen samples bad.
///
/// Threads: immutable.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <string>

#include "feed/fake_dataset.h"
#include "headrace/decode.h"

namespace headrace::feed_test {

/// Makes of column "x" its bytes inverted, and 8 bytes of the key (0 where it has an identity); of
/// "text" the text twice.
struct FakeDecode final : Decode {
  /// Samples whose "x" is bad by its header, or only when it is decoded.
  explicit FakeDecode(const std::set<std::uint64_t>& bad_headers = {},
                      const std::set<std::uint64_t>& bad_bodies = {}) {
    for (const std::uint64_t id : bad_headers) headers.insert(FakeDataset::fixed_value(id));
    for (const std::uint64_t id : bad_bodies) bodies.insert(FakeDataset::fixed_value(id));
  }

  /// Everything is bad but what the samples of the dataset hold.
  explicit FakeDecode(const FakeDataset& dataset) {
    for (std::uint64_t id = 0; id < dataset.sample_count(); ++id)
      good.insert(FakeDataset::fixed_value(id));
  }

  static constexpr std::size_t kFixedBytes = FakeDataset::kFixedBytes + 8;

  static std::string fixed_value(std::uint64_t id, std::uint64_t key) {
    std::string bytes = FakeDataset::fixed_value(id);
    for (char& c : bytes) c = static_cast<char>(~c);
    bytes.append(reinterpret_cast<const char*>(&key), sizeof(key));
    return bytes;
  }

  struct Fixed final : ValueDecoder {
    explicit Fixed(const FakeDecode& of)
        : headers_(of.headers), bodies_(of.bodies), good_(of.good), identity_(of.identity) {}
    Result<DecodeNeeds> needs(std::span<const std::byte> value) const override {
      if (headers_.contains(text(value))) return Status(Code::kUnsupported, "fake header");
      return DecodeNeeds{.output_bytes = kFixedBytes, .workspace_bytes = 5000};
    }
    Status decode(std::span<const std::byte> value, std::uint64_t key,
                  std::span<std::byte> out) const override {
      const bool is_known = good_.empty() || good_.contains(text(value));
      if (!is_known || bodies_.contains(text(value))) return Status(Code::kCorrupt, "fake body");
      EXPECT_EQ(out.size(), kFixedBytes);
      for (std::size_t i = 0; i < value.size(); ++i) out[i] = ~value[i];
      if (!identity_.empty()) key = 0;
      std::memcpy(out.data() + value.size(), &key, sizeof(key));
      return {};
    }
    std::string identity() const override { return identity_; }
    static std::string text(std::span<const std::byte> bytes) {
      return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }
    const std::set<std::string> headers_;
    const std::set<std::string> bodies_;
    const std::set<std::string> good_;
    const std::string identity_;
  };

  struct Twice final : ValueDecoder {
    Result<DecodeNeeds> needs(std::span<const std::byte> value) const override {
      return DecodeNeeds{.output_bytes = 2 * value.size()};
    }
    Status decode(std::span<const std::byte> value, std::uint64_t,
                  std::span<std::byte> out) const override {
      EXPECT_EQ(out.size(), 2 * value.size());
      std::copy(value.begin(), value.end(), out.begin());
      std::copy(value.begin(), value.end(),
                out.begin() + static_cast<std::ptrdiff_t>(value.size()));
      return {};
    }
  };

  Result<DecodedColumns> bind(const OutputColumn& stored) const override {
    OutputColumn output = stored;
    if (stored.name == "text")
      return DecodedColumns{{.output = output, .decoder = std::make_shared<Twice>()}};
    output.fixed_size_bytes = kFixedBytes;
    return DecodedColumns{{.output = output, .decoder = std::make_shared<Fixed>(*this)}};
  }

  std::set<std::string> headers;
  std::set<std::string> bodies;
  std::set<std::string> good;
  std::string identity;
};

/// Every value of the batch is what `decode` makes of it; other columns as they are stored.
inline void expect_decoded_bytes(const FakeDataset& dataset, const Batch& batch,
                                 const LoaderOptions& options) {
  for (std::uint32_t i = 0; i < batch.count(); ++i) {
    const auto id = static_cast<std::uint64_t>(batch.ids()[i]);
    for (const BatchColumn& column : batch.columns()) {
      if (!options.decode.contains(column.column->name)) continue;
      if (column.column->name == "x") {
        const auto& fake = dynamic_cast<const FakeDecode&>(*options.decode.at("x"));
        const std::uint64_t key =
            fake.identity.empty() ? decode_key(options.seed, batch.epoch(), id) : 0;
        ASSERT_EQ(
            text_of(column.values.subspan(i * FakeDecode::kFixedBytes, FakeDecode::kFixedBytes)),
            FakeDecode::fixed_value(id, key));
      } else {
        const std::string text = dataset.text_value(id);
        ASSERT_EQ(text_of(column.values.subspan(column.offsets[i],
                                                column.offsets[i + 1] - column.offsets[i])),
                  text + text);
      }
    }
  }
}

}  // namespace headrace::feed_test
