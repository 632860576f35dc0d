// Begins the upload when the first part comes, so that making one contacts nobody. Parts are sent
// by the calling thread, which looks for signals; what blocks in one piece (begin, finish) runs on
// a thread of its own.
//
// In a child of fork() the parent's upload is left as it is: it is the parent's to finish.
#include "headrace/upload.h"

#include <memory>
#include <string>
#include <utility>

#include "buffers.h"
#include "errors.h"
#include "object_settings.h"
#include "store.h"

namespace headrace {
namespace {

class PyUpload {
  void check_usable() const {
    if (generation_ != fork_generation()) raise_unusable("this upload", false);
    if (!upload_) raise_unusable("this upload", true);
  }

  template <class Call>
  auto control(Call&& call) {
    return run_interruptible([&](std::stop_token stop) {
      std::stop_callback relay(stop, [&] { upload_->cancel(); });
      return call();
    });
  }

 public:
  PyUpload(std::shared_ptr<StoreClient> client, std::string key, ObjectSettings settings)
      : key_(std::move(key)) {
    const Pause pause = [] {
      nb::gil_scoped_acquire acquire;
      check_signals();
    };
    upload_ = value_or_raise(
        StoreClient::Upload::create(std::move(client), key_, pause, std::move(settings)), key_);
  }
  ~PyUpload() {
    if (generation_ != fork_generation()) {
      static_cast<void>(upload_.release());
      return;
    }
    abort();
  }
  PyUpload(const PyUpload&) = delete;
  PyUpload& operator=(const PyUpload&) = delete;

  void put(nb::handle data) {
    check_usable();
    const BufferArgument part(data);
    if (!is_begun_) {
      raise_if_error(control([&] { return upload_->begin(); }), key_);
      is_begun_ = true;
    }
    const Status sent = [&] {
      ReleaseGil release;
      return upload_->put(part.bytes());
    }();
    raise_if_error(sent, key_);
  }

  ObjectInfo finish() {
    check_usable();
    if (!is_begun_) raise(Status(Code::kInvalidArgument, "an upload without a part"), key_);
    auto info = value_or_raise(control([&] { return upload_->finish(); }), key_);
    abort();
    return info;
  }

  void abort() {
    if (!upload_ || generation_ != fork_generation()) return;
    auto dying = std::move(upload_);
    ReleaseGil release;
    dying.reset();
  }

 private:
  const std::string key_;
  const std::uint32_t generation_ = fork_generation();
  bool is_begun_ = false;
  std::unique_ptr<StoreClient::Upload> upload_;
};

}  // namespace

void bind_upload(nb::module_& m) {
  nb::class_<PyUpload>(m, "Upload")
      .def(
          "__init__",
          [](PyUpload* self, PyStore& store, std::string key, const nb::dict& settings) {
            new (self) PyUpload(store.client.get(), std::move(key), parse_settings(settings));
          },
          nb::arg("store"), nb::arg("key"), nb::arg("settings") = nb::dict())
      .def("put", &PyUpload::put, nb::arg("part"))
      .def("finish", &PyUpload::finish)
      .def("abort", &PyUpload::abort);
}

}  // namespace headrace
