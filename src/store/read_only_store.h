#pragma once
/// \file
/// ReadOnlyStore: an EngineStore whose objects nothing here can change. Requests that would are
/// refused by its protocol, calls here.
///
/// Threads: as class Store says.
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "store/engine_store.h"

namespace headrace {

class ReadOnlyStore : public EngineStore {
 public:
  /// `reason`: who can only be read, and what to do instead; for messages.
  ReadOnlyStore(std::shared_ptr<TransferEngine> engine, const char* reason)
      : EngineStore(std::move(engine)), reason_(reason) {}

  Status remove(const std::string& key, const CallOptions&) override {
    return refuse("DELETE", key);
  }
  Result<ObjectInfo> copy(const std::string&, const std::string& to_key,
                          const CallOptions&) override {
    return refuse("COPY", to_key);
  }
  Result<std::string> create_upload(const std::string& key, const CallOptions&) override {
    return refuse("UPLOAD", key);
  }
  Result<ObjectInfo> complete_upload(const std::string& key, const std::string&,
                                     std::span<const UploadedPart>, const CallOptions&) override {
    return refuse("COMPLETE", key);
  }
  Status abort_upload(const std::string& key, const std::string&, const CallOptions&) override {
    return refuse("ABORT", key);
  }

 private:
  Status refuse(const char* what, const std::string& key) const {
    return Status(Code::kUnsupported, std::string(what) + " " + object_url(key) + ": " + reason_);
  }

  const char* const reason_;
};

}  // namespace headrace
