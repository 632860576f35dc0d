// Owns one thing in three forms: ranges that were asked for (ranges_, by tag; a key must stay in
// place until its request is over), reads under way (fetcher_) and results, which own their memory
// from then on. The iterable is Python's and may block or raise: it is only asked when nothing is
// ready, so that results are never kept waiting by it.
//
// In a child of fork() the threads behind the lease do not exist, so nothing of it may be ended
// there. What the child inherited is left where it is, on purpose.
#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "buffers.h"
#include "errors.h"
#include "headrace/range_fetcher.h"
#include "store.h"

namespace headrace {
namespace {

/// Iterator behind Store.get_ranges(): keeps reads of an iterable of (key, offset, length[, etag])
/// in flight and yields results in order of completion. Memory comes from the store's budget; a
/// result gives it back when its view is dropped. Results and errors have the very key object that
/// the iterable gave, so that a caller can tell which of its ranges it was.
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
    RangeFetcher::Options options = client_->read_options([] {
      nb::gil_scoped_acquire acquire;
      check_signals();
    });
    options.max_in_flight = limit_;
    fetcher_ = std::make_unique<RangeFetcher>(**lease_, *client_->pool(), std::move(options));
  }
  ~RangeReader() {
    if (generation_ != fork_generation()) {
      static_cast<void>(fetcher_.release());
      static_cast<void>(lease_.release());
      // Never freed: the last owner would destroy the store.
      new std::shared_ptr<StoreClient>(std::move(client_));
      return;
    }
    drop();
  }
  RangeReader(const RangeReader&) = delete;
  RangeReader& operator=(const RangeReader&) = delete;

  nb::object next() {
    if (generation_ != fork_generation()) raise_unusable("this iterator", false);
    if (!fetcher_) throw nb::stop_iteration();
    if (fetcher_->ready() == 0) pull();
    if (fetcher_->pending() == 0) {
      drop();
      throw nb::stop_iteration();
    }
    return take();
  }

  void close() {
    if (generation_ == fork_generation()) drop();
  }

 private:
  /// A range asked for; its names must not move until its read is submitted.
  struct Range {
    nb::object key;
    std::string key_text;
    std::string etag;
    std::uint64_t offset_bytes = 0;
    std::uint64_t length_bytes = 0;
  };

  void drop() {
    ReleaseGil release;
    fetcher_.reset();
    lease_.reset();
  }

  /// Starts ranges of the iterable until the limit or its end.
  void pull() {
    while (fetcher_->pending() < limit_ && !is_source_done_) {
      PyObject* item = PyIter_Next(source_.ptr());
      if (item == nullptr) {
        if (PyErr_Occurred() != nullptr) throw nb::python_error();
        is_source_done_ = true;
        return;
      }
      start(nb::steal(item));
    }
  }

  void start(const nb::object& asked) {
    const nb::object fields = nb::steal(PySequence_Tuple(asked.ptr()));
    if (!fields.is_valid()) throw nb::python_error();
    const Py_ssize_t count = PyTuple_Size(fields.ptr());
    if (count != 3 && count != 4) {
      raise(Status(Code::kInvalidArgument,
                   "get_ranges: each range must be (key, offset, length) or (key, offset, length, "
                   "etag)"));
    }
    const auto field = [&](Py_ssize_t i) { return nb::handle(PyTuple_GetItem(fields.ptr(), i)); };
    Range range;
    range.key = nb::borrow(field(0));
    range.key_text = nb::cast<std::string>(field(0));
    range.offset_bytes = nb::cast<std::uint64_t>(field(1));
    range.length_bytes = nb::cast<std::uint64_t>(field(2));
    if (count == 4) range.etag = nb::cast<std::string>(field(3));
    std::size_t slot = ranges_.size();
    if (free_slots_.empty()) {
      ranges_.emplace_back();
    } else {
      slot = free_slots_.back();
      free_slots_.pop_back();
    }
    ranges_[slot] = std::move(range);
    fetcher_->start({.key = ranges_[slot].key_text,
                     .etag = ranges_[slot].etag,
                     .offset_bytes = ranges_[slot].offset_bytes,
                     .length_bytes = ranges_[slot].length_bytes,
                     .tag = slot});
  }

  nb::object take() {
    constexpr std::uint64_t kNone = ~std::uint64_t{0};
    std::uint64_t slot = kNone;
    auto data = [&] {
      if (fetcher_->ready() > 0) return fetcher_->next(&slot);
      ReleaseGil release;
      return fetcher_->next(&slot);
    }();
    if (!data && slot == kNone) raise(client_->why(data.error().clone()));
    Range range = std::exchange(ranges_[slot], Range());
    free_slots_.push_back(slot);
    if (!data) raise(data.error(), range.key);
    nb::object view =
        make_memoryview(SlabBuffer(client_->pool(), std::move(data->slab), data->length_bytes));
    return result_type_(range.key, range.offset_bytes, view);
  }

  std::shared_ptr<StoreClient> client_;
  nb::object source_;
  nb::object result_type_;
  const std::size_t limit_;
  const std::uint32_t generation_ = fork_generation();
  std::deque<Range> ranges_;  // By tag; a deque keeps the keys in place.
  std::vector<std::size_t> free_slots_;
  bool is_source_done_ = false;
  std::unique_ptr<StoreClient::Lease> lease_;
  std::unique_ptr<RangeFetcher> fetcher_;  // On the lease's handle; goes before it.
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
