#pragma once
/// \file
/// Value scan: numbers that are seldom meant to be saved. Pure.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace headrace::checkpoint {

/// How to tell whether a number is NaN or infinite: all bits of its exponent are ones (IEEE 754;
/// bfloat16 is float32's upper half).
enum class NumberKind : std::uint8_t { kOther, kF16, kBf16, kF32, kF64 };

/// Of a safetensors dtype; complex numbers are two of their parts. Of kOther nothing is counted:
/// whole numbers, and floats of eight bits and less, some of which have no infinity.
NumberKind number_kind(std::string_view dtype) noexcept;

/// Elements that are NaN or infinite. `bytes`: whole elements, any alignment.
std::uint64_t count_not_finite(NumberKind kind, std::span<const std::byte> bytes) noexcept;

bool is_all_zero(std::span<const std::byte> bytes) noexcept;

}  // namespace headrace::checkpoint
