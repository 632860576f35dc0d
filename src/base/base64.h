#pragma once
/// \file
/// Base64 as RFC 4648 has it. Pure; any thread.
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace headrace {

/// Section 4: with padding.
std::string base64(std::string_view bytes);
void append_base64(std::span<const std::byte> bytes, std::string& out);
void append_base64(std::string_view bytes, std::string& out);
/// The same into a buffer. \pre out has 4 bytes for each 3 or fewer of `bytes`.
void encode_base64(std::span<const std::byte> bytes, std::span<char> out);
/// Section 5, without padding.
std::string base64_url(std::string_view bytes);

/// Undoes base64(). Nullopt for anything but whole, padded groups.
std::optional<std::string> decode_base64(std::string_view text);
/// The same into a buffer; false also when it has another size than the decoded bytes.
bool decode_base64(std::string_view text, std::span<std::byte> out) noexcept;

}  // namespace headrace
