#pragma once
/// \file
/// What the heads of answers to blob requests say. Pure.
#include <string>

#include "headrace/store.h"
#include "http/response.h"
#include "store/http_protocol.h"

namespace headrace::azure {

/// Errors: kCorrupt.
Result<http::ResponseHead> head_of(const HttpAnswer& answer);

/// Version and time; no size.
ObjectInfo object_info(const std::string& key, const http::ResponseHead& head);

/// The same of a whole blob, with what else the answer to HEAD tells. Errors: kCorrupt.
Result<ObjectInfo> blob_info(const std::string& key, const http::ResponseHead& head);

/// What accounts with a hierarchical namespace have beside blobs.
bool is_directory(const http::ResponseHead& head) noexcept;

}  // namespace headrace::azure
