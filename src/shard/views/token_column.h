#pragma once
/// \file
/// TokenColumn: how many tokens a document has, by the size of its sample alone, and where they are
/// in its value. Pure.
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "headrace/views.h"

namespace headrace::detail {

class TokenColumn {
 public:
  /// Errors: those of pack_tokens() that speak of columns.
  static Result<TokenColumn> create(const Dataset& dataset, const PackTokensOptions& options);

  std::size_t index() const noexcept { return index_; }
  const std::string& dtype() const noexcept { return dtype_; }
  std::uint32_t item_bytes() const noexcept { return item_bytes_; }
  bool is_signed() const noexcept { return dtype_.front() == 'i'; }

  /// Tokens of the document whose sample takes `sample_bytes`; nullopt when no document does.
  std::optional<std::uint32_t> count_of(std::uint64_t sample_bytes) const noexcept;
  /// The tokens in a document's value; nullopt unless they are `count`.
  std::optional<std::span<const std::byte>> tokens_in(std::span<const std::byte> value,
                                                      std::uint32_t count) const noexcept;

 private:
  /// What stands before the tokens in a value.
  enum class Header : std::uint8_t {
    kNone,
    kShape,      ///< MDS "ndarray:dtype": byte (dimensions << 2 | k), a length of 2^k bytes.
    kTypeShape,  ///< MDS "ndarray": a byte for the dtype before that.
  };
  Status find_type(const Column& column, const PackTokensOptions& options);
  std::uint64_t header_bytes(std::uint64_t count) const noexcept;

  std::size_t index_ = 0;
  std::string dtype_;
  std::uint32_t item_bytes_ = 0;
  Header header_ = Header::kNone;
  std::uint64_t fixed_tokens_ = 0;    ///< Of every document; 0: by size.
  std::uint64_t overhead_bytes_ = 0;  ///< Of a sample, beside the value.
};

}  // namespace headrace::detail
