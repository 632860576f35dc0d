#include "headrace/pack.h"

#include <mutex>
#include <string>

#include "errors.h"
#include "store.h"

namespace headrace {
namespace {

nb::dict pack_stores(PyStore& source, PyStore& target, const std::string& format,
                     std::uint64_t shard_bytes, const std::string& compression,
                     const std::string& hash, std::uint32_t tokens_per_sample,
                     std::uint32_t workers, std::uint64_t memory_bytes,
                     const nb::object& progress) {
  auto from = source.client.get();
  auto to = target.client.get();
  PackOptions options;
  options.format = format;
  options.shard_bytes = shard_bytes;
  options.compression = compression;
  options.hash = hash;
  options.tokens_per_sample = tokens_per_sample;
  options.worker_count = workers;
  options.memory_bytes = memory_bytes;
  ProgressRelay relay(progress);
  if (!progress.is_none()) {
    options.progress = [&relay](std::uint64_t done, std::uint64_t total, std::uint64_t written) {
      relay.store({done, total, written});
    };
  }
  const PackResult result = value_or_raise(run_interruptible(
      [&](std::stop_token stop) {
        return pack(from->store(), to->store(), options, std::move(stop));
      },
      [&relay] { relay.report(); }));
  relay.report();
  nb::dict out;
  out["file_count"] = result.file_count;
  out["sample_count"] = result.sample_count;
  out["shard_count"] = result.shard_count;
  out["read_bytes"] = result.read_bytes;
  out["written_bytes"] = result.written_bytes;
  out["resumed_shard_count"] = result.resumed_shard_count;
  return out;
}

}  // namespace

void bind_pack(nb::module_& m) {
  m.def("pack", &pack_stores, nb::arg("source"), nb::arg("target"), nb::kw_only(),
        nb::arg("format") = "mds", nb::arg("shard_bytes") = std::uint64_t{64} << 20,
        nb::arg("compression") = "", nb::arg("hash") = "", nb::arg("tokens_per_sample") = 0,
        nb::arg("workers") = 0, nb::arg("memory_bytes") = std::uint64_t{256} << 20,
        nb::arg("progress") = nb::none());
}

}  // namespace headrace
