#pragma once
/// \file
/// Status and Result<T>: how every fallible function of Headrace reports failure. The core never
/// throws; bindings turn a Status into a Python exception in exactly one place.
///
/// Threads: values; no sharing. Place: below everything else, no dependencies.
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace headrace {

/// What the caller can do about a failure. Order is stable: the values are exported to Python.
enum class Code : std::uint8_t {
  kOk = 0,
  kCancelled,        ///< The caller asked to stop. Never retried, never logged as an error.
  kDeadline,         ///< The time budget ran out; the last underlying cause is in the detail.
  kInvalidArgument,  ///< Wrong call. Fix the program.
  kNotFound,         ///< No such bucket, object or shard.
  kDenied,           ///< Credentials missing, expired or insufficient.
  kChanged,          ///< The object is not the version we opened (ETag mismatch).
  kUnavailable,      ///< Transient: connection reset, 500, 503 without slow-down. Retry.
  kThrottled,        ///< The store asked us to slow down. Retry later, lower the rate.
  kExhausted,        ///< A local budget is used up: slabs, connections, file descriptors.
  kCorrupt,          ///< Bytes arrived but checksum or format is wrong.
  kUnsupported,      ///< Valid request this build or store cannot serve.
  kInternal,         ///< A broken invariant of ours. Always a bug.
};

/// Stable lower-case name of a code: "ok", "cancelled", "deadline", "invalid_argument", ... (the
/// enumerator without k).
constexpr std::string_view code_name(Code c) noexcept {
  constexpr std::string_view kNames[] = {"ok",        "cancelled", "deadline", "invalid_argument",
                                         "not_found", "denied",    "changed",  "unavailable",
                                         "throttled", "exhausted", "corrupt",  "unsupported",
                                         "internal"};
  return kNames[static_cast<std::size_t>(c)];
}

constexpr bool is_retryable(Code c) noexcept {
  return c == Code::kUnavailable || c == Code::kThrottled;
}

/// Success, or a code plus a heap-allocated detail. One pointer wide; success never allocates.
class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  Status(Code code, std::string message)
      : detail_(std::make_unique<Detail>(Detail{code, std::move(message)})) {
    assert(code != Code::kOk);
  }
  bool ok() const noexcept { return detail_ == nullptr; }
  Code code() const noexcept { return detail_ ? detail_->code : Code::kOk; }
  std::string_view message() const noexcept {
    return detail_ ? std::string_view(detail_->message) : "ok";
  }

  /// A copy, for the rare place that must report one failure twice (a sticky error). Allocates.
  Status clone() const { return detail_ ? Status(detail_->code, detail_->message) : Status(); }

  /// Prepends what was being attempted: `while reading shard 12: ...`.
  Status&& annotate(std::string_view doing) && {
    if (detail_) detail_->message.insert(0, std::string(doing) + ": ");
    return std::move(*this);
  }

 private:
  struct Detail {
    Code code;
    std::string message;
  };
  std::unique_ptr<Detail> detail_;
};

/// A value or the Status that explains its absence. Subset of std::expected's interface.
template <class T>
class [[nodiscard]] Result {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): `return value;`
  Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor): `return status;`
  Result(Status s) : v_(std::in_place_index<1>, std::move(s)) { assert(!std::get<1>(v_).ok()); }
  bool has_value() const noexcept { return v_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }
  T& operator*() & {
    assert(has_value());
    return *std::get_if<0>(&v_);
  }
  T&& operator*() && {
    assert(has_value());
    return std::move(*std::get_if<0>(&v_));
  }
  const T& operator*() const& {
    assert(has_value());
    return *std::get_if<0>(&v_);
  }
  T* operator->() {
    assert(has_value());
    return std::get_if<0>(&v_);
  }
  const Status& error() const& {
    assert(!has_value());
    return *std::get_if<1>(&v_);
  }
  Status&& error() && {
    assert(!has_value());
    return std::move(*std::get_if<1>(&v_));
  }

 private:
  std::variant<T, Status> v_;
};

}  // namespace headrace

// NOLINTBEGIN(bugprone-macro-parentheses, readability-identifier-naming): a declaration takes no
// parentheses
#define HEADRACE_CONCAT_(a, b) a##b
#define HEADRACE_CONCAT(a, b) HEADRACE_CONCAT_(a, b)
/// Leaves the function with the Status if it is an error.
#define HEADRACE_TRY(expr)                                   \
  do {                                                       \
    if (::headrace::Status s_ = (expr); !s_.ok()) return s_; \
  } while (false)
/// `HEADRACE_TRY_ASSIGN(auto slab, pool.acquire(n));`
#define HEADRACE_TRY_ASSIGN(decl, expr) \
  HEADRACE_TRY_ASSIGN_(HEADRACE_CONCAT(result_, __LINE__), decl, expr)
#define HEADRACE_TRY_ASSIGN_(tmp, decl, expr) \
  auto tmp = (expr);                          \
  if (!tmp) return std::move(tmp).error();    \
  decl = *std::move(tmp)
// NOLINTEND(bugprone-macro-parentheses, readability-identifier-naming)
