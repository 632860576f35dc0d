// A cache needs no store: what is asked here is about a directory. Calls that look at every file
// run on a thread of their own (run_interruptible), so that Ctrl-C ends the wait for them.
#include "cache.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dataset.h"
#include "errors.h"
#include "keys.h"
#include "store.h"
#include "waiting.h"

namespace headrace {
namespace {

/// Makes a call of a cache on a thread of its own.
template <class Call>
auto call_apart(PyCache& self, const Call& call) {
  const auto cache = self.cache.get();
  return value_or_raise(run_interruptible([&](const std::stop_token&) { return call(*cache); }),
                        cache->directory());
}

nb::dict usage(PyCache& self) {
  const CacheUsage found = call_apart(self, [](Cache& cache) { return cache.usage(); });
  nb::dict out;
  out["extents"] = found.extent_count;
  out["data_bytes"] = found.data_bytes;
  out["file_bytes"] = found.file_bytes;
  out["key_id"] = found.key_id;
  return out;
}

nb::list extents(PyCache& self) {
  const auto cache = self.cache.get();
  std::vector<CachedExtent> all;
  raise_if_error(run_interruptible([&](const std::stop_token&) {
                   return cache->list([&](const CachedExtent& extent) { all.push_back(extent); });
                 }),
                 cache->directory());
  nb::list out;
  for (const CachedExtent& extent : all) {
    out.append(nb::make_tuple(extent.path, extent.url, extent.etag, extent.offset_bytes,
                              extent.length_bytes, extent.object_size_bytes));
  }
  return out;
}

nb::tuple verify(PyCache& self, const nb::object& progress) {
  const auto cache = self.cache.get();
  ProgressRelay relay(progress);
  const auto result = run_interruptible(
      [&](const std::stop_token& stop) {
        return cache->verify([&](std::uint64_t bytes) {
          relay.store({bytes, 0, 0});
          return !stop.stop_requested();
        });
      },
      [&] { relay.report(); });
  if (!result) raise_if_error(result.error(), cache->directory());
  return nb::make_tuple((*result).extent_count, (*result).data_bytes, (*result).broken_count);
}

nb::dict to_dict(const FillReport& report) {
  nb::dict out;
  out["total_bytes"] = report.total_bytes;
  out["held_bytes"] = report.held_bytes;
  out["fetched_bytes"] = report.fetched_bytes;
  out["missing_bytes"] = report.missing_bytes;
  out["file_bytes"] = report.file_bytes;
  return out;
}

/// `needs`: by block, batches; those of kNever are left out. Empty: all, in the dataset's order.
nb::dict fill(PyCache& self, PyDataset& dataset, PyStore& store,
              const std::vector<std::uint64_t>& needs, std::uint32_t share,
              std::uint32_t share_count, bool is_all_required, std::uint64_t memory_bytes,
              const nb::object& progress) {
  const auto cache = self.cache.get();
  auto client = store.client.get();
  auto data = dataset.reader.get()->dataset();
  ProgressRelay relay(progress);
  FillOptions options;
  options.wants = order_wants(needs);
  options.share = share;
  options.share_count = share_count;
  options.is_all_required = is_all_required;
  options.memory_bytes = memory_bytes;
  options.progress = [&relay](const FillReport& report) {
    relay.store({report.held_bytes, report.fetched_bytes, report.total_bytes});
  };
  auto report = run_interruptible(
      [&](const std::stop_token& stop) {
        // The store may be closed meanwhile.
        std::stop_source either;
        const auto end = [&] { either.request_stop(); };
        const std::stop_callback on_call(stop, end);
        const std::stop_callback on_close(client->closing(), end);
        return fill_cache(*data, client->store(), *cache, options, either.get_token());
      },
      [&] { relay.report(); });
  relay.report();
  return to_dict(value_or_raise(std::move(report), cache->directory()));
}

nb::dict simulate(PyReadTrace& self, std::uint64_t limit_bytes, bool is_lru,
                  double line_bytes_per_s, double first_byte_s, double disk_bytes_per_s,
                  double step_s) {
  const auto found = run_interruptible([&, trace = self.trace](const std::stop_token&) {
    return simulate_cache(*trace, limit_bytes, is_lru ? CachePolicy::kLru : CachePolicy::kNextUse,
                          {.line_bytes_per_s = line_bytes_per_s,
                           .first_byte_s = first_byte_s,
                           .disk_bytes_per_s = disk_bytes_per_s,
                           .step_s = step_s});
  });
  nb::dict out;
  out["hit_bytes"] = found.hit_bytes;
  out["fetched_bytes"] = found.fetched_bytes;
  out["epoch_fetched_bytes"] = nb::cast(found.epoch_fetched_bytes);
  out["evicted_bytes"] = found.evicted_bytes;
  out["left_out_bytes"] = found.left_out_bytes;
  out["stall_seconds"] = found.stall_s;
  out["run_seconds"] = found.run_s;
  return out;
}

void bind_value_cache(nb::module_& m) {
  nb::class_<PyValueCache>(m, "ValueCache")
      .def(
          "__init__",
          [](PyValueCache* self, PyCache& cache, PyStore& store) {
            new (self) PyValueCache{
                value_or_raise(open_value_cache(cache.cache.get(), store.client.get()->store()))};
          },
          nb::arg("cache"), nb::arg("store"));
  m.def(
      "route_value_caches",
      [](const std::vector<std::optional<PyValueCache>>& caches) {
        std::vector<std::shared_ptr<ValueCache>> routed;
        for (const auto& cache : caches) routed.push_back(cache ? cache->values : nullptr);
        return PyValueCache{route_value_caches(std::move(routed))};
      },
      nb::arg("caches"));
}

}  // namespace

void bind_cache(nb::module_& m) {
  bind_value_cache(m);
  nb::class_<PyCache>(m, "Cache")
      .def(
          "__init__",
          [](PyCache* self, const std::string& directory, std::uint64_t limit_bytes,
             const std::string& key, bool is_group_shared) {
            CacheOptions options;
            options.directory = directory;
            options.limit_bytes = limit_bytes;
            options.is_group_shared = is_group_shared;
            options.is_for_reads = false;
            if (!key.empty()) options.key = read_key(key);
            new (self)
                PyCache{Guarded<Cache>("Cache", value_or_raise(Cache::open(options), directory))};
          },
          nb::arg("directory"), nb::arg("limit_bytes") = 0, nb::arg("key") = "",
          nb::arg("is_group_shared") = false)
      .def("usage", &usage)
      .def("extents", &extents)
      .def("verify", &verify, nb::arg("progress") = nb::none())
      .def(
          "remove",
          [](PyCache& self, const std::string& url_prefix) {
            return call_apart(self, [&](Cache& cache) { return cache.remove(url_prefix); });
          },
          nb::arg("url_prefix"))
      .def(
          "shrink",
          [](PyCache& self, std::uint64_t bytes) {
            return call_apart(self, [&](Cache& cache) { return cache.shrink(bytes); });
          },
          nb::arg("bytes"))
      .def("fill", &fill, nb::arg("dataset"), nb::arg("store"), nb::kw_only(), nb::arg("needs"),
           nb::arg("share") = 0, nb::arg("share_count") = 1, nb::arg("is_all_required") = false,
           nb::arg("memory_bytes") = std::uint64_t{64} << 20, nb::arg("progress") = nb::none())
      .def("capacity", [](PyCache& self) { return self.cache.get()->capacity_bytes(); })
      .def(
          "pin",
          [](PyCache& self, const std::string& url_prefix) {
            const auto cache = self.cache.get();
            raise_if_error(cache->pin(url_prefix), cache->directory());
          },
          nb::arg("url_prefix"))
      .def(
          "unpin",
          [](PyCache& self, const std::string& url_prefix) {
            const auto cache = self.cache.get();
            return value_or_raise(cache->unpin(url_prefix), cache->directory());
          },
          nb::arg("url_prefix"))
      .def("pins",
           [](PyCache& self) {
             const auto cache = self.cache.get();
             return value_or_raise(cache->pins(), cache->directory());
           })
      .def("flush", [](PyCache& self) {
        const auto cache = self.cache.get();
        ReleaseGil release;
        cache->flush();
      });
  nb::class_<PyReadTrace>(m, "ReadTrace")
      .def_prop_ro("data_bytes", [](PyReadTrace& self) { return self.trace->data_bytes; })
      .def_prop_ro("file_bytes", [](PyReadTrace& self) { return self.trace->file_bytes; })
      .def("simulate", &simulate, nb::kw_only(), nb::arg("limit_bytes"), nb::arg("is_lru"),
           nb::arg("line_bytes_per_s"), nb::arg("first_byte_s"), nb::arg("disk_bytes_per_s"),
           nb::arg("step_s"));
  nb::class_<PyFill>(m, "Fill")
      .def("report", [](PyFill& self) { return to_dict(self.fill.get()->report()); })
      .def_prop_ro("is_over", [](PyFill& self) { return self.fill.get()->is_over(); })
      .def("check", [](PyFill& self) { raise_if_error(self.fill.get()->status()); })
      .def("close", [](PyFill& self) {
        if (auto running = self.fill.peek()) {
          ReleaseGil release;
          running->stop();
        }
        self.fill.drop();
      });
}

}  // namespace headrace
