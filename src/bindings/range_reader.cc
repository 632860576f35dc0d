
#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "buffers.h"
#include "errors.h"
#include "store.h"

namespace headrace {
namespace {

/// Iterator behind Store.get_ranges(): keeps reads of an iterable of (key, offset, length) in
/// flight and yields results in order of completion. Memory comes from the store's budget; a result
/// gives it back when its view is dropped.
class RangeReader {
 public:
  RangeReader(std::shared_ptr<StoreClient> client, nb::object ranges, nb::object result_type,
              std::size_t in_flight)
      : client_(std::move(client)),
        source_(nb::iter(ranges)),
        result_type_(std::move(result_type)),
        limit_(in_flight),
        lease_(std::make_unique<StoreClient::Lease>(*client_)) {
    raise_if_error(lease_->take());
  }
  ~RangeReader() {
    if (generation_ != fork_generation()) {
      static_cast<void>(lease_.release());
      new std::shared_ptr<StoreClient>(std::move(client_));
      return;
    }
    drop();
  }
  RangeReader(const RangeReader&) = delete;
  RangeReader& operator=(const RangeReader&) = delete;

  nb::object next() {
    if (generation_ != fork_generation()) raise_unusable("this iterator", false);
    if (!lease_) throw nb::stop_iteration();
    while (ready_.empty()) {
      fill();
      if (in_flight_ == 0) {
        if (!has_pending_) {
          drop();
          throw nb::stop_iteration();
        }
        pending_slab_ = acquire_or_raise();
        continue;
      }
      wait();
    }
    return take_ready();
  }

  void close() {
    if (generation_ == fork_generation()) drop();
  }

 private:
  /// A range asked for; its key must not move while the store looks at it.
  struct Range {
    nb::object key;
    std::string key_text;
    std::uint64_t offset_bytes = 0;
    std::uint64_t length_bytes = 0;
  };

  void drop() {
    ready_.clear();
    ReleaseGil release;
    lease_.reset();
  }

  /// Takes the next range of the iterable into pending_; false at its end.
  bool pull() {
    PyObject* item = PyIter_Next(source_.ptr());
    if (item == nullptr) {
      if (PyErr_Occurred() != nullptr) throw nb::python_error();
      return false;
    }
    const nb::object range = nb::steal(item);
    const nb::object fields = nb::steal(PySequence_Tuple(range.ptr()));
    if (!fields.is_valid()) throw nb::python_error();
    if (PyTuple_GET_SIZE(fields.ptr()) != 3) {
      raise(Status(Code::kInvalidArgument, "get_ranges: each range must be (key, offset, length)"));
    }
    const auto field = [&](Py_ssize_t i) { return nb::handle(PyTuple_GET_ITEM(fields.ptr(), i)); };
    pending_.key = nb::borrow(field(0));
    pending_.key_text = nb::cast<std::string>(field(0));
    pending_.offset_bytes = nb::cast<std::uint64_t>(field(1));
    pending_.length_bytes = nb::cast<std::uint64_t>(field(2));
    return true;
  }

  /// Submits ranges until the limit, the memory or the iterable ends.
  void fill() {
    while (in_flight_ < limit_) {
      if (!has_pending_ && !is_source_done_) {
        has_pending_ = pull();
        is_source_done_ = !has_pending_;
      }
      if (!has_pending_) return;
      if (!pending_slab_ && pending_.length_bytes > 0) {
        auto slab = client_->pool()->try_acquire(pending_.length_bytes);
        if (!slab && slab.error().code() == Code::kExhausted) return;
        if (!slab) {
          has_pending_ = false;
          raise(slab.error(), pending_.key_text);
        }
        pending_slab_ = *std::move(slab);
      }
      if (!submit_pending()) return;
    }
  }

  bool submit_pending() {
    std::size_t slot = ranges_.size();
    if (free_slots_.empty()) {
      ranges_.emplace_back();
    } else {
      slot = free_slots_.back();
      free_slots_.pop_back();
    }
    std::swap(ranges_[slot], pending_);
    Request request;
    request.key = ranges_[slot].key_text;
    request.offset_bytes = ranges_[slot].offset_bytes;
    request.length_bytes = ranges_[slot].length_bytes;
    request.slab = std::move(pending_slab_);
    request.tag = slot;
    if ((*lease_)->submit({&request, 1}) == 0) {
      pending_slab_ = std::move(request.slab);
      std::swap(ranges_[slot], pending_);
      free_slots_.push_back(slot);
      if (in_flight_ == 0)
        raise(Status(Code::kCancelled, client_->store().url() + ": the store was closed"));
      return false;
    }
    has_pending_ = false;
    ++in_flight_;
    return true;
  }

  Slab acquire_or_raise() {
    auto slab = without_gil(
        [&](const Pause& pause) { return client_->acquire(pending_.length_bytes, pause); });
    if (!slab) {
      has_pending_ = false;
      raise(slab.error(), pending_.key_text);
    }
    return *std::move(slab);
  }

  void wait() {
    Completion done[16];
    std::size_t count = 0;
    {
      ReleaseGil release;
      count = (*lease_)->wait(done, slice_end());
    }
    for (std::size_t i = 0; i < count; ++i) ready_.push_back(std::move(done[i]));
    in_flight_ -= count;
    if (count == 0) check_signals();
  }

  nb::object take_ready() {
    Completion done = std::move(ready_.front());
    ready_.pop_front();
    Range range;
    std::swap(range, ranges_[done.tag]);
    free_slots_.push_back(done.tag);
    raise_if_error(done.status, range.key_text);
    nb::object data =
        make_memoryview(SlabBuffer(client_->pool(), std::move(done.slab), done.length_bytes));
    return result_type_(range.key, range.offset_bytes, data);
  }

  std::shared_ptr<StoreClient> client_;
  nb::object source_;
  nb::object result_type_;
  const std::size_t limit_;
  const std::uint32_t generation_ = fork_generation();
  std::deque<Range> ranges_;  // By tag; a deque keeps the keys in place.
  std::vector<std::size_t> free_slots_;
  Range pending_;
  Slab pending_slab_;
  bool has_pending_ = false;
  bool is_source_done_ = false;
  std::size_t in_flight_ = 0;
  std::unique_ptr<StoreClient::Lease> lease_;  // After what its requests point to.
  std::deque<Completion> ready_;
};

}  // namespace

void bind_range_reader(nb::module_& m) {
  nb::class_<RangeReader>(m, "RangeReader")
      .def(
          "__init__",
          [](RangeReader* self, PyStore& store, nb::object ranges, nb::object result_type,
             std::uint32_t in_flight) {
            new (self) RangeReader(store.client.get(), std::move(ranges), std::move(result_type),
                                   std::clamp<std::size_t>(in_flight, 1, 4096));
          },
          nb::arg("store"), nb::arg("ranges"), nb::arg("result_type"), nb::arg("in_flight"))
      .def("__iter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__next__", &RangeReader::next)
      .def("close", &RangeReader::close);
}

}  // namespace headrace
