#pragma once
/// \file
/// SumStore: tells the sums of whole objects, as a remote store does, over a store that has none.
/// For tests of src/feed.
///
/// Threads: each handle by one thread.
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/crc32c.h"
#include "base/crc64nvme.h"
#include "feed/fake_dataset.h"
#include "headrace/forwarding_store.h"
#include "insight/counter.h"

namespace headrace::feed_test {

class SumStore final : public ForwardingStore {
 public:
  struct Shared {
    StoreTraits traits;
    std::map<std::string, Checksum, std::less<>> sums;
    Code head_error = Code::kOk;
    Counter heads, gets;
  };

  /// Over the objects of `dataset`, whose extents name the version kFakeVersion.
  SumStore(const FakeDataset& dataset, SlabPool& pool, ObjectSums sums, ChecksumKind kind)
      : SumStore(dataset.make_store(pool), std::make_shared<Shared>()) {
    shared_->traits = inner().traits();
    shared_->traits.object_sums = sums;
    for (const auto& [key, text] : dataset.objects()) {
      const auto bytes = std::as_bytes(std::span(text));
      shared_->sums[key] = {kind, kind == ChecksumKind::kCrc32c ? crc32c(bytes) : crc64nvme(bytes)};
    }
  }
  Shared& shared() noexcept { return *shared_; }

  std::size_t submit(std::span<Request> requests) override {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      Request& request = requests[i];
      const auto sum = shared_->sums.find(request.key);
      if (request.op == Op::kHead) {
        answer(request, sum);
        continue;
      }
      if (request.etag == kFakeVersion) request.etag = {};
      if (inner().submit({&request, 1}) == 0) return i;
      shared_->gets.add();
      if (sum != shared_->sums.end()) told_[request.tag] = sum->second;
    }
    return requests.size();
  }
  std::size_t wait(std::span<Completion> out, TimePoint until, std::stop_token stop) override {
    std::size_t count = 0;
    for (; count < out.size() && !answers_.empty(); answers_.pop_front())
      out[count++] = std::move(answers_.front());
    if (count > 0) return count;
    count = inner().wait(out, until, std::move(stop));
    if (shared_->traits.object_sums != ObjectSums::kEveryGet) return count;
    for (Completion& done : out.first(count)) done.object_checksum = told_[done.tag];
    return count;
  }
  const StoreTraits& traits() const noexcept override { return shared_->traits; }

 private:
  SumStore(std::unique_ptr<Store> inner, std::shared_ptr<Shared> shared)
      : ForwardingStore(std::move(inner)), shared_(std::move(shared)) {}
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(new SumStore(std::move(handle), shared_));
  }
  template <class Found>
  void answer(const Request& request, Found sum) {
    shared_->heads.add();
    Completion done;
    done.tag = request.tag;
    if (shared_->head_error != Code::kOk) {
      done.status = Status(shared_->head_error, "HEAD: refused");
    } else if (sum != shared_->sums.end()) {
      done.object_checksum = sum->second;
    }
    answers_.push_back(std::move(done));
  }

  const std::shared_ptr<Shared> shared_;
  std::deque<Completion> answers_;
  std::map<std::uint64_t, Checksum> told_;  ///< By tag of a kGet.
};

}  // namespace headrace::feed_test
