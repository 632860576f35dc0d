#pragma once
/// \file
/// finish_upload(): completes a multipart upload, and knows afterwards whether it has. Completing
/// takes minutes for large objects, its answer may be lost, and a repetition then finds the upload
/// gone: so before failing it looks whether the object is there.
///
/// Threads: any.
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>

#include "headrace/clock.h"
#include "headrace/status.h"
#include "headrace/store.h"

namespace headrace {

/// How long the store may take for one answer, and all attempts together may take where the caller
/// names no deadline. S3 API reference, CompleteMultipartUpload: "several minutes".
constexpr std::chrono::minutes kCompleteAnswerTime{5};
constexpr std::chrono::minutes kCompleteTime{10};

struct UploadEnd {
  std::string what;  ///< For messages: "COMPLETE s3://bucket/key".
  /// Asks once for the end of the upload, by this deadline. What it answers may be wrong when it is
  /// retryable, kDeadline or kCorrupt: it may have had its effect.
  std::function<Status(TimePoint deadline)> complete;
  /// The object, when it is this upload's for sure; nullopt: none, or another one. Errors: nothing
  /// is known.
  std::function<Result<std::optional<ObjectInfo>>(TimePoint deadline)> find;
  TimePoint deadline = TimePoint::max();
  std::chrono::milliseconds pause{200};  ///< Before the second attempt; doubles.
  std::chrono::milliseconds longest_pause{5'000};
};

/// Errors: those of `complete`; kNotFound when the upload is gone and the object not there.
Result<std::optional<ObjectInfo>> finish_upload(const UploadEnd& end, Clock& clock,
                                                const std::stop_token& stop);

std::uint64_t total_bytes(std::span<const UploadedPart> parts) noexcept;

/// What is known of the object that an upload became where it may not be looked at: who may only
/// write gets no more than what was sent, and what the answer says.
ObjectInfo written_object(const std::string& key, std::span<const UploadedPart> parts,
                          std::string etag);

/// Waits; false when stopped.
bool pause_for(std::chrono::milliseconds time, const std::stop_token& stop);

}  // namespace headrace
