// The functions have one form: look up the client (which fails when it is closed, or of another
// process), leave the GIL, do it, take the GIL, make objects or raise. Transfers wait in slices
// and look for signals (without_gil); calls of the control plane run on a thread of their own
// (control), since they block in one piece.
//
// `client` is a copy of the shared pointer: another thread may close the store meanwhile, and then
// this call fails, but what it uses is still there.
#include "store.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "buffers.h"
#include "cluster_options.h"
#include "errors.h"
#include "headrace/store_url.h"
#include "keys.h"
#include "metrics.h"
#include "object_settings.h"
#include "store_options.h"

namespace headrace {
namespace {

void open_client(PyStore* self, StoreOptions options,
                 const std::map<std::string, std::string>& overrides, std::uint64_t memory_bytes,
                 const AccessLogOptions& log, const CacheOptions& cache, const nb::list& cluster) {
  const std::string url = options.url;
  auto client = StoreClient::open(options, make_environment(overrides), memory_bytes, log, cache,
                                  parse_cluster_caches(cluster));
  new (self) PyStore{Guarded<StoreClient>("the store", value_or_raise(std::move(client), url))};
}

/// Raises MemoryError.
nb::bytes make_bytes(std::uint64_t size) {
  const auto most = static_cast<std::uint64_t>(PY_SSIZE_T_MAX);
  nb::object bytes =
      nb::steal(size > most ? PyErr_NoMemory()
                            : PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
  if (!bytes.is_valid()) throw nb::python_error();
  return nb::borrow<nb::bytes>(bytes);
}

std::span<std::byte> writable(nb::bytes& bytes) {
  return {reinterpret_cast<std::byte*>(PyBytes_AsString(bytes.ptr())), bytes.size()};
}

/// How one version of an object is read; `version_id` empty: the newest.
RangeFetcher::Options read_options(StoreClient& client, const Pause& pause,
                                   const std::string& version_id) {
  RangeFetcher::Options options = client.read_options(pause);
  options.call.version_id = version_id;
  return options;
}

ObjectInfo head(PyStore& self, const std::string& key, const std::string& version_id);

nb::bytes get(PyStore& self, const std::string& key, const std::string& version_id) {
  auto client = self.client.get();
  // Until the first part is given back, which waits for Python's lock: other calls are not to think
  // meanwhile that nobody will give memory back.
  std::optional<StoreClient::Holding> holding(*client);
  // The first part tells the size; most objects end in it.
  Completion first = without_gil([&](const Pause& pause) {
    Completion failed;
    auto slab = client->acquire(client->part_bytes(), pause);
    if (!slab) {
      failed.status = std::move(slab).error();
      return failed;
    }
    Request request;
    request.key = key;
    request.version_id = version_id;
    request.allow_short = true;
    request.length_bytes = client->part_bytes();
    request.slab = *std::move(slab);
    return client->run(std::move(request), pause);
  });
  raise_if_error(first.status, key);
  std::uint64_t size = std::max(first.object_size_bytes, first.length_bytes);
  // As read_object() does: a server that does not tell the total may have more.
  if (first.object_size_bytes == 0 && first.length_bytes == client->part_bytes()) {
    const ObjectInfo whole = head(self, key, version_id);
    if (whole.etag != first.etag) {
      const std::string url = client->store().object_url(key);
      raise_if_error(Status(Code::kChanged, url + ": changed while being read"), key);
    }
    size = whole.size_bytes;
  }
  nb::bytes result = make_bytes(size);
  const auto out = writable(result);
  if (first.length_bytes > 0)
    std::memcpy(out.data(), first.slab.bytes().data(), first.length_bytes);
  // Given back before the rest is read: that may need the memory.
  first.slab = Slab();
  holding.reset();
  if (first.length_bytes < size) {
    raise_if_error(without_gil([&](const Pause& pause) {
                     return client->fetch(key, first.etag, first.length_bytes,
                                          out.subspan(first.length_bytes),
                                          read_options(*client, pause, version_id));
                   }),
                   key);
  }
  return result;
}

void read_range(PyStore& self, const std::string& key, std::uint64_t offset,
                std::span<std::byte> out, const std::string& etag, const std::string& version_id) {
  auto client = self.client.get();
  raise_if_error(without_gil([&](const Pause& pause) {
                   return client->fetch(key, etag, offset, out,
                                        read_options(*client, pause, version_id));
                 }),
                 key);
}

nb::bytes get_range(PyStore& self, const std::string& key, std::uint64_t offset,
                    std::uint64_t length, const std::string& etag, const std::string& version_id) {
  nb::bytes result = make_bytes(length);
  read_range(self, key, offset, writable(result), etag, version_id);
  return result;
}

void get_range_into(PyStore& self, const std::string& key, std::uint64_t offset, nb::handle out,
                    const std::string& etag, const std::string& version_id) {
  const BufferArgument target(out, /*is_written=*/true);
  read_range(self, key, offset, target.writable(), etag, version_id);
}

ObjectInfo put(PyStore& self, const std::string& key, nb::handle data, bool if_absent,
               const nb::dict& fields) {
  auto client = self.client.get();
  const ObjectSettings settings = parse_settings(fields);
  const BufferArgument source(data);
  return value_or_raise(without_gil([&](const Pause& pause) {
                          return client->put(key, source.bytes(),
                                             {.if_absent = if_absent, .settings = &settings},
                                             pause);
                        }),
                        key);
}

/// Runs one control-plane call of the store so that Ctrl-C ends it, and close(), which ends only
/// transfers by itself. (At exit a call that does not end would be cut off inside of C++.)
template <class Call>
auto control(PyStore& self, Call&& call) {
  auto client = self.client.get();
  return run_interruptible([&](std::stop_token stop) {
    std::stop_source either;
    const auto end = [&] { either.request_stop(); };
    std::stop_callback interrupted(stop, end);
    std::stop_callback closed(client->closing(), end);
    return call(client->store(), CallOptions{.stop = either.get_token()});
  });
}

CallOptions with_version(const CallOptions& call, const std::string& version_id) {
  CallOptions out = call;
  out.version_id = version_id;
  return out;
}

ObjectInfo head(PyStore& self, const std::string& key, const std::string& version_id) {
  return value_or_raise(control(self,
                                [&](Store& store, const CallOptions& call) {
                                  return store.head(key, with_version(call, version_id));
                                }),
                        key);
}

void remove_one(PyStore& self, const std::string& key, const std::string& version_id) {
  raise_if_error(control(self,
                         [&](Store& store, const CallOptions& call) {
                           return store.remove(key, with_version(call, version_id));
                         }),
                 key);
}

ObjectInfo copy(PyStore& self, const std::string& from_key, const std::string& to_key,
                const std::string& version_id, const nb::dict& fields) {
  const ObjectSettings settings = parse_settings(fields);
  return value_or_raise(control(self,
                                [&](Store& store, const CallOptions& call) {
                                  CallOptions all = with_version(call, version_id);
                                  all.settings = &settings;
                                  return store.copy(from_key, to_key, all);
                                }),
                        from_key);
}

ObjectInfo set_storage_class(PyStore& self, const std::string& key,
                             const std::string& storage_class) {
  return value_or_raise(control(self,
                                [&](Store& store, const CallOptions& call) {
                                  return store.set_storage_class(key, storage_class, call);
                                }),
                        key);
}

std::tuple<std::vector<ObjectInfo>, std::vector<std::string>, std::string> list_page(
    PyStore& self, const std::string& prefix, const std::string& delimiter,
    const std::string& continuation) {
  auto page = value_or_raise(
      control(self,
              [&](Store& store, const CallOptions& call) {
                return store.list(
                    {.prefix = prefix, .delimiter = delimiter, .continuation = continuation}, call);
              }),
      prefix);
  return {std::move(page.objects), std::move(page.common_prefixes), std::move(page.continuation)};
}

nb::list metrics(PyStore& self) {
  MetricList list;
  self.client.get()->append_metrics(list);
  return make_metrics(list);
}

void close(PyStore& self) {
  Status logged;
  if (auto client = self.client.peek()) {
    ReleaseGil release;
    client->close();
    logged = client->flush_logs();
  }
  self.client.drop();
  raise_if_error(logged);
}

void bind_object_info(nb::module_& m) {
  nb::class_<ObjectInfo>(m, "ObjectInfo", "One object of a store.")
      .def(
          "__init__",
          [](ObjectInfo* self, std::string key, std::uint64_t size, std::string etag,
             std::optional<std::int64_t> modified) {
            new (self) ObjectInfo{std::move(key), size, std::move(etag), modified.value_or(0)};
          },
          nb::arg("key"), nb::arg("size"), nb::arg("etag") = "", nb::arg("modified") = nb::none())
      .def_ro("key", &ObjectInfo::key, "Name relative to the store's root.")
      .def_ro("size", &ObjectInfo::size_bytes, "Bytes.")
      .def_ro("etag", &ObjectInfo::etag, "Opaque version.")
      .def_prop_ro(
          "modified",
          [](const ObjectInfo& info) {
            return info.modified_unix_s == 0 ? std::nullopt : std::optional(info.modified_unix_s);
          },
          "Seconds since 1970 UTC, None when unknown.")
      .def_prop_ro(
          "settings",
          [](const ObjectInfo& info) {
            return info.details ? nb::object(make_settings(info.details->settings)) : nb::none();
          },
          "Those that it was written with, as keyword arguments of Store.put(); None when they "
          "were "
          "not asked for (listings) or the store keeps none (files).")
      .def_prop_ro(
          "version_id",
          [](const ObjectInfo& info) {
            const bool is_told = info.details && !info.details->version_id.empty();
            return is_told ? std::optional(info.details->version_id) : std::nullopt;
          },
          "In a bucket that keeps versions; None when it was not told.")
      .def_prop_ro(
          "storage_class",
          [](const ObjectInfo& info) {
            const std::string& told =
                info.details ? info.details->settings.storage_class : info.storage_class;
            return told.empty() ? std::nullopt : std::optional(told);
          },
          "In the vendor's word; None when it was not told (S3's HEAD: the standard one).")
      .def("__repr__", [](const ObjectInfo& info) {
        return "ObjectInfo(key='" + info.key + "', size=" + std::to_string(info.size_bytes) +
               ", etag='" + info.etag + "')";
      });
}

/// (key, error) of each object that could not be deleted.
nb::list remove_many(PyStore& self, const std::vector<std::string>& keys) {
  const std::vector<Status> statuses = control(
      self, [&](Store& store, const CallOptions& call) { return store.remove_many(keys, call); });
  nb::list failures;
  for (std::size_t i = 0; i < statuses.size(); ++i) {
    if (!statuses[i].ok())
      failures.append(nb::make_tuple(keys[i], make_error(statuses[i], keys[i])));
  }
  return failures;
}

std::string presign(PyStore& self, const std::string& key, bool writes, std::int64_t seconds,
                    const std::string& version_id) {
  PresignRequest request;
  request.key = key;
  request.version_id = version_id;
  request.op = writes ? Op::kPut : Op::kGet;
  request.lifetime = std::chrono::seconds(seconds);
  auto client = self.client.get();
  return value_or_raise(run_interruptible([&](const std::stop_token& stop) {
                          return client->presign(request, stop);
                        }),
                        key);
}

}  // namespace

void bind_store(nb::module_& m) {
  bind_buffers(m);
  bind_object_info(m);
  m.attr("DEFAULT_MAX_IN_FLIGHT") = StoreOptions().max_in_flight;
  nb::class_<PyStore>(m, "Store")
      .def(
          "__init__",
          [](PyStore* self, const std::string& url, std::uint64_t memory_bytes,
             const nb::dict& options, const std::map<std::string, std::string>& environment,
             const std::string& access_log, std::optional<std::uint32_t> rank,
             const std::string& cache, std::uint64_t cache_limit_bytes,
             const std::string& cache_key, bool cache_group, const nb::list& cluster) {
            AccessLogOptions log;
            log.path = access_log;
            log.rank = rank;
            CacheOptions cached;
            cached.directory = cache;
            cached.limit_bytes = cache_limit_bytes;
            cached.is_group_shared = cache_group;
            if (!cache_key.empty()) cached.key = read_key(cache_key);
            open_client(self, parse_store_options(url, options), environment, memory_bytes, log,
                        cached, cluster);
          },
          nb::arg("url"), nb::arg("memory_bytes"), nb::arg("options"), nb::arg("environment"),
          nb::arg("access_log") = "", nb::arg("rank") = nb::none(), nb::arg("cache") = "",
          nb::arg("cache_limit_bytes") = 0, nb::arg("cache_key") = "",
          nb::arg("cache_group") = false, nb::arg("cluster") = nb::list())
      .def_prop_ro("url", [](PyStore& self) { return self.client.get()->store().url(); })
      .def_prop_ro("closed", [](PyStore& self) { return self.client.is_closed(); })
      .def("get", &get, nb::arg("key"), nb::arg("version_id") = "")
      .def("get_range", &get_range, nb::arg("key"), nb::arg("offset"), nb::arg("length"),
           nb::arg("etag") = "", nb::arg("version_id") = "")
      .def("get_range_into", &get_range_into, nb::arg("key"), nb::arg("offset"), nb::arg("out"),
           nb::arg("etag") = "", nb::arg("version_id") = "")
      .def("put", &put, nb::arg("key"), nb::arg("data"), nb::arg("if_absent") = false,
           nb::arg("settings") = nb::dict())
      .def("head", &head, nb::arg("key"), nb::arg("version_id") = "")
      .def("list_page", &list_page, nb::arg("prefix"), nb::arg("delimiter"),
           nb::arg("continuation"))
      .def("remove", &remove_one, nb::arg("key"), nb::arg("version_id") = "")
      .def("remove_many", &remove_many, nb::arg("keys"))
      .def(
          "uploads",
          [](PyStore& self, const std::string& prefix) {
            auto found = value_or_raise(control(self,
                                                [&](Store& store, const CallOptions& call) {
                                                  return store.list_uploads(prefix, call);
                                                }),
                                        prefix);
            std::vector<std::tuple<std::string, std::string, std::int64_t>> out;
            for (const PendingUpload& each : found)
              out.emplace_back(each.key, each.upload_id, each.started_unix_s);
            return out;
          },
          nb::arg("prefix"))
      .def(
          "abort_upload",
          [](PyStore& self, const std::string& key, const std::string& upload_id) {
            raise_if_error(control(self,
                                   [&](Store& store, const CallOptions& call) {
                                     return store.abort_upload(key, upload_id, call);
                                   }),
                           key);
          },
          nb::arg("key"), nb::arg("upload_id"))
      .def("presign", &presign, nb::arg("key"), nb::arg("writes"), nb::arg("seconds"),
           nb::arg("version_id") = "")
      .def("copy", &copy, nb::arg("from_key"), nb::arg("to_key"), nb::arg("version_id") = "",
           nb::arg("settings") = nb::dict())
      .def("set_storage_class", &set_storage_class, nb::arg("key"), nb::arg("storage_class"))
      .def(
          "check_settings",
          [](PyStore& self, const nb::dict& settings) {
            raise_if_error(self.client.get()->store().check_settings(parse_settings(settings)));
          },
          nb::arg("settings"))
      .def("metrics", &metrics)
      .def("close", &close);
  m.def(
      "check_store_url", [](std::string_view url) { raise_if_error(check_store_url(url)); },
      nb::arg("url"));
}

}  // namespace headrace
