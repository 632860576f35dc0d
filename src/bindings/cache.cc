// A cache needs no store: what is asked here is about a directory. Calls that look at every file
// run on a thread of their own (run_interruptible), so that Ctrl-C ends the wait for them.
#include "headrace/cache.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bind.h"
#include "errors.h"
#include "process.h"
#include "waiting.h"

namespace headrace {
namespace {

struct PyCache {
  std::shared_ptr<Cache> cache;
};

nb::dict usage(PyCache& self) {
  const auto result =
      run_interruptible([cache = self.cache](const std::stop_token&) { return cache->usage(); });
  if (!result) raise_if_error(result.error(), self.cache->directory());
  nb::dict out;
  out["extents"] = (*result).extent_count;
  out["data_bytes"] = (*result).data_bytes;
  out["file_bytes"] = (*result).file_bytes;
  return out;
}

nb::list extents(PyCache& self) {
  std::vector<CachedExtent> all;
  raise_if_error(
      run_interruptible([&](const std::stop_token&) {
        return self.cache->list([&](const CachedExtent& extent) { all.push_back(extent); });
      }),
      self.cache->directory());
  nb::list out;
  for (const CachedExtent& extent : all) {
    out.append(nb::make_tuple(extent.path, extent.url, extent.etag, extent.offset_bytes,
                              extent.length_bytes, extent.object_size_bytes));
  }
  return out;
}

nb::tuple verify(PyCache& self, const nb::object& progress) {
  ProgressRelay relay(progress);
  const auto result = run_interruptible(
      [&](const std::stop_token& stop) {
        return self.cache->verify([&](std::uint64_t bytes) {
          relay.store({bytes, 0, 0});
          return !stop.stop_requested();
        });
      },
      [&] { relay.report(); });
  if (!result) raise_if_error(result.error(), self.cache->directory());
  return nb::make_tuple((*result).extent_count, (*result).data_bytes, (*result).broken_count);
}

}  // namespace

void bind_cache(nb::module_& m) {
  nb::class_<PyCache>(m, "Cache")
      .def(
          "__init__",
          [](PyCache* self, const std::string& directory, std::uint64_t limit_bytes) {
            CacheOptions options;
            options.directory = directory;
            options.limit_bytes = limit_bytes;
            new (self) PyCache{value_or_raise(Cache::open(options), directory)};
          },
          nb::arg("directory"), nb::arg("limit_bytes") = 0)
      .def("usage", &usage)
      .def("extents", &extents)
      .def("verify", &verify, nb::arg("progress") = nb::none())
      .def(
          "remove",
          [](PyCache& self, const std::string& url_prefix) {
            return value_or_raise(
                run_interruptible([&, cache = self.cache](const std::stop_token&) {
                  return cache->remove(url_prefix);
                }),
                self.cache->directory());
          },
          nb::arg("url_prefix"))
      .def(
          "shrink",
          [](PyCache& self, std::uint64_t bytes) {
            return value_or_raise(run_interruptible([&](const std::stop_token&) {
                                    return self.cache->shrink(bytes);
                                  }),
                                  self.cache->directory());
          },
          nb::arg("bytes"))
      .def("flush", [](PyCache& self) {
        ReleaseGil release;
        self.cache->flush();
      });
}

}  // namespace headrace
