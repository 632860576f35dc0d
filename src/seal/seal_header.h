#pragma once
/// \file
/// What stands before something encrypted. Layout (little-endian): "HRSEALED", u32 version (1), u32
/// zero, 8 bytes of the key's id, 16 of salt. Pure; any thread.
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "headrace/seal_key.h"
#include "headrace/status.h"
#include "seal/sealer.h"

namespace headrace::seal {

inline constexpr std::size_t kSealHeaderBytes = 40;

std::string make_seal_header(const SealKey& key, std::span<const std::byte, kSaltBytes> salt);
bool has_seal_header(std::string_view bytes) noexcept;
/// The salt of what begins with `bytes`. Errors: kDenied (another key; `key` is nullptr; it is not
/// encrypted), kUnsupported (another version).
Result<Salt> read_seal_header(std::string_view bytes, const SealKey* key);

}  // namespace headrace::seal
