// Invariant: is_broken_ is set while a part is under way to the uploader, and stays set when an
// error or an exception of pause ends that: an object that lacks a part is never completed.
#include "headrace/upload.h"

#include <cstring>
#include <functional>
#include <utility>

#include "io/uploader.h"

namespace headrace {
namespace {

// As many as StoreClient::upload() has.
constexpr std::size_t kPartsInFlight = 8;

}  // namespace

StoreClient::Upload::Upload(std::shared_ptr<StoreClient> client, std::string key, Pause pause)
    : client_(std::move(client)),
      key_(std::move(key)),
      pause_(std::move(pause)),
      lease_(*client_) {}

Result<std::unique_ptr<StoreClient::Upload>> StoreClient::Upload::create(
    std::shared_ptr<StoreClient> client, std::string key, Pause pause, ObjectSettings settings) {
  std::unique_ptr<Upload> upload(new Upload(std::move(client), std::move(key), std::move(pause)));
  upload->settings_ = std::move(settings);
  HEADRACE_TRY(upload->lease_.take());
  return upload;
}

StoreClient::Upload::~Upload() = default;

Status StoreClient::Upload::begin() {
  // close() of the client stops its handles, which ends the parts; the calls that create and
  // complete have only this token.
  std::stop_callback closed(client_->closing(), [this] { stop_.request_stop(); });
  const auto memory = [this](std::size_t size) { return client_->acquire(size, pause_); };
  auto uploader = io::Uploader::begin(*client_->store_, *lease_, key_,
                                      {.call = {.stop = stop_.get_token(), .settings = &settings_},
                                       .max_in_flight = kPartsInFlight,
                                       .pause = pause_,
                                       .acquire = memory});
  if (!uploader) return client_->why(std::move(uploader).error());
  uploader_ = *std::move(uploader);
  return {};
}

Status StoreClient::Upload::send(std::span<const std::byte> part) {
  HEADRACE_TRY_ASSIGN(Slab slab, uploader_->acquire(*client_->pool_, part.size()));
  std::memcpy(slab.bytes().data(), part.data(), part.size());
  return uploader_->put(std::move(slab), part.size());
}

Status StoreClient::Upload::put(std::span<const std::byte> part) {
  if (is_broken_) return Status(Code::kCancelled, key_ + ": this upload has failed before");
  Holding active(*client_);
  is_broken_ = true;
  Status sent = send(part);
  if (!sent.ok()) return client_->why(std::move(sent));
  is_broken_ = false;
  return {};
}

Result<ObjectInfo> StoreClient::Upload::finish() {
  if (is_broken_) return Status(Code::kCancelled, key_ + ": this upload has failed before");
  std::stop_callback closed(client_->closing(), [this] { stop_.request_stop(); });
  is_broken_ = true;
  auto info = uploader_->finish();
  if (!info) return client_->why(std::move(info).error());
  uploader_.reset();
  lease_.finish();
  return info;
}

}  // namespace headrace
