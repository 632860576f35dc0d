#pragma once
/// \file
/// LocalBackend: objects on this machine, reached by calls that return when they are done.
/// LocalStore turns one into a Store.
///
/// Threads: every function from any number of threads at once.
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "headrace/clock.h"
#include "headrace/status.h"
#include "headrace/store.h"

namespace headrace {

/// What may end a call early. Backends ask between pieces of work that take long.
class Interrupt {
 public:
  Interrupt(const Clock& clock, TimePoint deadline, std::stop_token stop,
            const std::atomic<bool>* is_cancelled = nullptr)
      : clock_(clock), deadline_(deadline), stop_(std::move(stop)), is_cancelled_(is_cancelled) {}
  /// ok, kCancelled or kDeadline.
  Status check() const {
    // Relaxed: the flag alone matters, it publishes nothing.
    const bool is_cancelled =
        is_cancelled_ != nullptr && is_cancelled_->load(std::memory_order_relaxed);
    if (is_cancelled || stop_.stop_requested()) return Status(Code::kCancelled, "cancelled");
    if (deadline_ != TimePoint::max() && clock_.now() >= deadline_)
      return Status(Code::kDeadline, "deadline passed");
    return {};
  }

 private:
  const Clock& clock_;
  TimePoint deadline_;
  std::stop_token stop_;
  const std::atomic<bool>* is_cancelled_;
};

/// What a transfer yields beside its bytes.
struct Transferred {
  std::uint64_t length_bytes = 0;
  std::uint64_t object_size_bytes = 0;           ///< kGet
  std::string etag;                              ///< Not needed for a get that names its etag.
  std::shared_ptr<const ObjectDetails> details;  ///< kGet, where they are wanted.
};

/// The functions mean what those of Store mean; `bytes` is the part of the slab that the request
/// names, Request::settings those of the store included. Messages name what went wrong; LocalStore
/// adds operation, object and range, and refuses settings that are not kept.
class LocalBackend {
 public:
  virtual ~LocalBackend() = default;
  virtual Status get(const Request& request, std::span<std::byte> bytes, const Interrupt& interrupt,
                     Transferred& out) = 0;
  virtual Status put(const Request& request, std::span<const std::byte> bytes,
                     const Interrupt& interrupt, Transferred& out) = 0;
  virtual Status put_part(const Request& request, std::span<const std::byte> bytes,
                          const Interrupt& interrupt, Transferred& out) = 0;

  virtual Result<ObjectInfo> head(const std::string& key) = 0;
  virtual Result<ListPage> list(const ListRequest& request, const Interrupt& interrupt) = 0;
  virtual Status remove(const std::string& key) = 0;
  virtual Result<ObjectInfo> copy(const std::string& from_key, const std::string& to_key,
                                  const ObjectSettings& settings, const Interrupt& interrupt) = 0;
  virtual Result<std::string> create_upload(const std::string& key,
                                            const ObjectSettings& settings) = 0;
  virtual Result<ObjectInfo> complete_upload(const std::string& key, const std::string& upload_id,
                                             std::span<const UploadedPart> parts,
                                             const Interrupt& interrupt) = 0;
  virtual Status abort_upload(const std::string& key, const std::string& upload_id) = 0;
};

/// Which part of an object of `size_bytes` a get moves: its length, or kCorrupt when the object is
/// shorter than the request demands.
Result<std::uint64_t> readable_bytes(const Request& request, std::uint64_t size_bytes);

/// Parts in rising order of their number, at least one, numbers in 1 .. 10000; else
/// kInvalidArgument.
Status check_part_list(std::span<const UploadedPart> parts);

}  // namespace headrace
