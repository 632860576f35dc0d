#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "base/base64.h"
#include "base/strings.h"
#include "base/temporary_directory.h"
#include "headrace/seal_key.h"
#include "headrace/sealed_text.h"
#include "seal/sealer.h"

namespace headrace::seal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::byte> bytes_of(std::string_view hex) {
  std::string out;
  EXPECT_TRUE(from_hex(hex, out));
  const auto bytes = std::as_bytes(std::span(out));
  return {bytes.begin(), bytes.end()};
}

SealKey::Bytes key_of(int first) {
  SealKey::Bytes bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(static_cast<int>(i) + first);
  return bytes;
}

// --- keys ---

// An independent implementation (Python's hmac module) gave these.
TEST(SealKey, DerivesByHkdf) {
  const SealKey key(key_of(0));
  EXPECT_EQ(to_hex(key.derive("purpose", bytes_of("00112233445566778899aabbccddeeff"))),
            "d14b0fe5d82a5205b0abb648bc9c1d5ecb4ee2eb1cc689868fd763971c4f6a41");
  EXPECT_EQ(key.id(), "d213a8775bcee86f");
}

TEST(SealKey, PurposesSaltsAndKeysGiveOthers) {
  const SealKey key(key_of(0)), other(key_of(1));
  const auto salt = bytes_of("01"), other_salt = bytes_of("02");
  const std::set<std::string> all{to_hex(key.derive("a", salt)),
                                  to_hex(key.derive("b", salt)),
                                  to_hex(key.derive("a", other_salt)),
                                  to_hex(other.derive("a", salt)),
                                  key.id(),
                                  other.id()};
  EXPECT_EQ(all.size(), 6U);
}

class KeySource : public ::testing::Test {
 protected:
  std::string write(const std::string& content, unsigned mode = 0600) {
    const std::string path = directory_.path() + "/key";
    std::ofstream(path, std::ios::binary) << content;
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return "file:" + path;
  }
  Result<std::shared_ptr<const SealKey>> read(const std::string& source) const {
    return SealKey::read(source, environment_);
  }
  std::string id(const std::string& source) const {
    auto key = read(source);
    return key ? (*key)->id() : std::string(key.error().message());
  }
  std::string message(const std::string& source, Code code) const {
    const auto key = read(source);
    if (key) return "a key";
    EXPECT_EQ(key.error().code(), code) << key.error().message();
    return std::string(key.error().message());
  }

  TemporaryDirectory directory_;
  Environment environment_{{{"PATH", "/usr/bin:/bin"}}};
  const SealKey::Bytes bytes_ = key_of(0x41);
  const std::string raw_{reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  const std::string hex_ = to_hex(raw_), text_ = base64(raw_), id_ = SealKey(bytes_).id();
};

TEST_F(KeySource, FilesHoldBytesOrText) {
  for (const std::string& content : {raw_, hex_, hex_ + "\n", " " + text_ + "\r\n"})
    EXPECT_EQ(id(write(content)), id_) << content;
}

TEST_F(KeySource, VariablesHoldText) {
  for (const std::string& content : {hex_, text_ + "\n"}) {
    environment_.variables["THE_KEY"] = content;
    EXPECT_EQ(id("env:THE_KEY"), id_);
  }
  environment_.variables["THE_KEY"] = raw_;
  EXPECT_THAT(message("env:THE_KEY", Code::kInvalidArgument), HasSubstr("no key"));
  EXPECT_THAT(message("env:OTHER", Code::kInvalidArgument), HasSubstr("no such variable"));
}

TEST_F(KeySource, ProgramsWriteIt) {
  EXPECT_EQ(id("command:printf %s '" + text_ + "'"), id_);
  EXPECT_EQ(id("command:printf '%s\\n' " + hex_), id_);
  EXPECT_EQ(id("command:printf %s '" + raw_ + "'"), id_);
}

TEST_F(KeySource, ProgramsThatFailSayWhy) {
  EXPECT_THAT(
      message("command:sh -c 'echo " + hex_ + "; echo vault is sealed >&2; exit 3'", Code::kDenied),
      HasSubstr("ended with code 3: vault is sealed"));
  EXPECT_THAT(message("command:there-is-no-such-program", Code::kDenied), HasSubstr("PATH"));
  EXPECT_THAT(message("command:sh -c 'open", Code::kInvalidArgument), HasSubstr("open quote"));
}

TEST_F(KeySource, OthersMayNotReadTheFile) {
  for (const unsigned mode : {0604U, 0644U, 0602U, 0620U, 0601U})
    EXPECT_THAT(message(write(hex_, mode), Code::kDenied), HasSubstr("chmod 600")) << mode;
  EXPECT_EQ(id(write(hex_, 0640)), id_);
}

TEST_F(KeySource, WhatIsNoKeyIsNotShown) {
  const std::string short_key = hex_.substr(2);
  for (const std::string& content : {short_key, hex_.substr(32), std::string(), raw_ + "\n",
                                     hex_ + hex_, std::string(5000, 'a'), std::string(64, 'g')}) {
    const std::string said = message(write(content), Code::kInvalidArgument);
    EXPECT_THAT(said, HasSubstr("are no key; a key is 32 bytes"));
    if (content.size() > 20) {
      EXPECT_THAT(said, Not(HasSubstr(content.substr(0, 20))));
    }
  }
  for (const std::string& source : {hex_, "file:" + std::string(), "hex:" + hex_, std::string()})
    EXPECT_THAT(message(source, Code::kInvalidArgument), Not(HasSubstr(hex_)));
}

TEST_F(KeySource, WhatIsNoFileIsAnError) {
  EXPECT_THAT(message("file:" + directory_.path() + "/none", Code::kNotFound), HasSubstr("none"));
  EXPECT_THAT(message("file:" + directory_.path(), Code::kInvalidArgument),
              HasSubstr("not a file"));
}

// --- sealing ---

std::vector<std::byte> text_bytes(std::size_t size) {
  std::vector<std::byte> out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>(i * 7 + 1);
  return out;
}

struct Sealed {
  std::vector<std::byte> data;
  std::array<std::byte, kTagBytes> tag;
};

class SealerTest : public ::testing::Test {
 protected:
  Sealed seal(std::uint64_t number, std::vector<std::byte> data, std::string_view context = "c") {
    Sealed out{std::move(data), {}};
    sealer_.seal(number, std::as_bytes(std::span(context)), out.data, out.data, out.tag);
    return out;
  }
  static bool opens(Sealer& sealer, std::uint64_t number, Sealed sealed,
                    std::string_view context = "c") {
    return sealer.open(number, std::as_bytes(std::span(context)), sealed.data, sealed.data,
                       sealed.tag);
  }

  const SealKey key_{key_of(0)};
  const Salt salt_{};
  Sealer sealer_{key_, "test", salt_};
};

TEST_F(SealerTest, OpensWhatItSealedAtEverySize) {
  for (const std::size_t size : {0U, 1U, 15U, 16U, 17U, 4096U, 65536U, 100001U}) {
    Sealed sealed = seal(size, text_bytes(size));
    if (size > 15) {
      EXPECT_NE(sealed.data, text_bytes(size));
    }
    std::vector<std::byte> out(size);
    EXPECT_TRUE(sealer_.open(size, std::as_bytes(std::span(std::string_view("c"))), sealed.data,
                             out, sealed.tag));
    EXPECT_EQ(out, text_bytes(size));
  }
}

TEST_F(SealerTest, EveryChangeIsFound) {
  const Sealed sealed = seal(7, text_bytes(40));
  EXPECT_TRUE(opens(sealer_, 7, sealed));
  for (std::size_t i = 0; i < sealed.data.size(); ++i) {
    Sealed changed = sealed;
    changed.data[i] ^= std::byte{0x10};
    EXPECT_FALSE(opens(sealer_, 7, changed));
  }
  for (std::size_t i = 0; i < kTagBytes; ++i) {
    Sealed changed = sealed;
    changed.tag[i] ^= std::byte{1};
    EXPECT_FALSE(opens(sealer_, 7, changed));
  }
  Sealed cut = sealed;
  cut.data.pop_back();
  EXPECT_FALSE(opens(sealer_, 7, cut));
  EXPECT_FALSE(opens(sealer_, 8, sealed));
  EXPECT_FALSE(opens(sealer_, 7 + (std::uint64_t{1} << 32), sealed));
  EXPECT_FALSE(opens(sealer_, 7, sealed, "d"));
  EXPECT_FALSE(opens(sealer_, 7, sealed, ""));
}

TEST_F(SealerTest, OtherKeysPurposesAndSaltsDoNotOpenIt) {
  const Sealed sealed = seal(7, text_bytes(40));
  const SealKey other(key_of(1));
  Salt salt = salt_;
  salt[15] = std::byte{1};
  Sealer by_key(other, "test", salt_), by_purpose(key_, "tests", salt_),
      by_salt(key_, "test", salt);
  Sealer same(key_, "test", salt_);
  EXPECT_FALSE(opens(by_key, 7, sealed));
  EXPECT_FALSE(opens(by_purpose, 7, sealed));
  EXPECT_FALSE(opens(by_salt, 7, sealed));
  EXPECT_TRUE(opens(same, 7, sealed));
}

// Another implementation (the Python package cryptography) made it.
TEST_F(SealerTest, IsAesGcm) {
  const Sealed sealed = seal(0x0102030405060708, text_bytes(20), "context");
  EXPECT_EQ(to_hex(sealed.data) + to_hex(sealed.tag),
            "401df32c39256bd2faa6f9f0221182f2c75eed0f5082d1ef1176c6a1faa2f12503a7b42b");
}

// --- texts ---

class SealedText : public ::testing::Test {
 protected:
  static std::string opened(const SealKey* key, std::string_view purpose, const std::string& text) {
    auto out = open_text(key, purpose, text);
    return out ? *std::move(out) : std::string(out.error().message());
  }
  static Code code(const SealKey* key, std::string_view purpose, const std::string& text) {
    const auto out = open_text(key, purpose, text);
    return out ? Code::kOk : out.error().code();
  }
  const SealKey key_{key_of(0)}, other_{key_of(1)};
};

TEST_F(SealedText, OpensForItsKeyAndPurpose) {
  for (const std::string& text : {std::string(), std::string("a"), std::string(100'000, 'x')}) {
    const std::string sealed = seal_text(key_, "p", text);
    EXPECT_EQ(opened(&key_, "p", sealed), text);
    EXPECT_EQ(code(&key_, "q", sealed), Code::kCorrupt);
    EXPECT_EQ(seal_text(key_, "p", text), sealed) << "the same again";
  }
  EXPECT_EQ(seal_text(key_, "p", std::string(100, 'x')).find("xxxx"), std::string::npos);
}

TEST_F(SealedText, AWrongKeyIsNoDamage) {
  const std::string sealed = seal_text(key_, "p", "text");
  EXPECT_EQ(code(&other_, "p", sealed), Code::kDenied);
  EXPECT_THAT(opened(&other_, "p", sealed),
              ::testing::AllOf(HasSubstr(key_.id()), HasSubstr(other_.id())));
  EXPECT_EQ(code(nullptr, "p", sealed), Code::kDenied);
  EXPECT_THAT(opened(nullptr, "p", sealed), HasSubstr(key_.id()));
  EXPECT_EQ(code(&key_, "p", "text"), Code::kDenied);
  EXPECT_THAT(opened(&key_, "p", "text"), HasSubstr("not encrypted"));
  EXPECT_EQ(opened(nullptr, "p", "text"), "text");
}

TEST_F(SealedText, EveryChangeIsFound) {
  const std::string sealed = seal_text(key_, "p", "some text");
  for (std::size_t i = 0; i < sealed.size(); ++i) {
    std::string changed = sealed;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_NE(code(&key_, "p", changed), Code::kOk) << i;
    EXPECT_NE(code(&key_, "p", sealed.substr(0, i)), Code::kOk) << i;
  }
  EXPECT_EQ(code(&key_, "p", sealed + "x"), Code::kCorrupt);
}

TEST(Salt, IsRandom) { EXPECT_NE(random_salt(), random_salt()); }

}  // namespace
}  // namespace headrace::seal
